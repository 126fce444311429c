package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestMain fails the run if a goroutine is left: whatever becomes of Redis, no
// call may leave one behind for longer than its client lives. The binary is also
// run as one of several processes, see TestF55_EightProcesses.
func TestMain(m *testing.M) {
	redis.SetLogger(silent{})
	if text := os.Getenv(errandVariable); text != "" {
		if err := obey(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	longtest.Default("test.parallel", "4") // many wait most of the time
	longtest.Default("rapid.checks", longtest.Of("25", "100"))
	debug.SetGCPercent(800) // miniredis makes a Lua state for each call: most of what tests allocate
	// Of a client that found no server: it ends within a second of the client's Close.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// silent keeps go-redis from writing about each refused connection.
type silent struct{}

// Printf writes nothing.
func (silent) Printf(context.Context, string, ...any) {}

// patient is for tests in which the own timeout is not the point: a busy machine
// must not end the call.
const patient = time.Minute

// soon bounds, in full, what ought to happen at once; the clients' own timeouts are longer.
const soon = 3 * time.Second

// behindProxy runs a test on a real Redis and a miniredis of its own, each behind
// a faulty network.
func behindProxy(t *testing.T, test func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client)) {
	t.Helper()
	for name, start := range map[string]func(t *testing.T) string{
		"miniredis": func(t *testing.T) string { return miniredis.RunT(t).Addr() },
		"redis":     func(t *testing.T) string { return redistest.Start(t).Addr },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := start(t)
			test(t, redistest.NewProxy(t, addr), defaultClient(t, addr))
		})
	}
}

// defaultClient has go-redis' defaults: it sends again what was not answered, and
// heeds no context's deadline.
func defaultClient(t testing.TB, addr string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// onceClient sends nothing again. Its pool is large, since go-redis tells of the last refused
// connection for a while when as many were refused as the pool has.
func onceClient(t testing.TB, addr string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, PoolSize: 100,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// used asks over another connection what the global scope has used and booked.
func used(t testing.TB, direct *redis.Client, name string, scopes []throttle.Scope) (used, booked int64) {
	t.Helper()
	th, err := throttle.New(name, direct, scopes, &throttle.Options{Timeout: patient, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	usage, err := th.Inspector().Usage(t.Context(), throttle.Global, "")
	if err != nil {
		t.Fatalf("usage: %v", err)
	}
	return usage.Limits[0].Used, usage.Limits[0].Booked
}

func unavailable(t testing.TB, what string, err error, failure string) *throttle.UnavailableError {
	t.Helper()
	var u *throttle.UnavailableError
	if !errors.As(err, &u) || !errors.Is(err, throttle.ErrUnavailable) {
		t.Fatalf("%s: got %v, want an *UnavailableError", what, err)
	}
	if u.Failure != failure {
		t.Fatalf("%s: got failure %s (%v), want %s", what, u.Failure, err, failure)
	}
	return u
}

// TestF01_F21_ReplyLostIsSentAgainByTheClient: the script ran and its reply was
// lost; go-redis, with its defaults, asks again by itself. One charge, the same
// answer.
func TestF01_F21_ReplyLostIsSentAgainByTheClient(t *testing.T) {
	t.Parallel()
	behindProxy(t, func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client) {
		scopes := globalScope(throttle.PerHour(10))
		th := newThrottle(t, defaultClient(t, proxy.Addr), scopes, &throttle.Options{Timeout: patient})
		reserve(t, th, throttle.Job{ID: "warm", Weight: 1})

		proxy.DropNextReply("evalsha")
		got := reserve(t, th, throttle.Job{ID: "lost", Weight: 4})
		if proxy.Dropped() != 1 {
			t.Fatalf("%d replies were lost, want 1", proxy.Dropped())
		}
		if got.Outcome != throttle.Granted || got.Source != throttle.FallbackClosed {
			t.Errorf("granted, reply lost: got %+v, want granted", got)
		}
		if u, _ := used(t, direct, th.Name(), scopes); u != 1+4 {
			t.Errorf("granted, reply lost: %d units used, want 5", u)
		}

		first := reserve(t, th, throttle.Job{ID: "full", Weight: 6})
		proxy.DropNextReply("evalsha")
		got = reserve(t, th, throttle.Job{ID: "late", Weight: 5})
		if got.Outcome != throttle.Booked || !got.Start.After(first.Now) || got.Replayed {
			t.Errorf("booked, reply lost: got %+v, want booked", got)
		}
		if u, b := used(t, direct, th.Name(), scopes); u != 5 || b != 6+5 {
			t.Errorf("booked, reply lost: %d used and %d booked, want 5 and 11", u, b)
		}

		proxy.DropNextReply("evalsha")
		if _, err := th.Cancel(t.Context(), throttle.Job{ID: "late", Weight: 5}); err != nil {
			t.Errorf("cancel, reply lost: %v", err)
		}
		if u, b := used(t, direct, th.Name(), scopes); u != 5 || b != 6 {
			t.Errorf("cancel, reply lost: %d used and %d booked, want 5 and 6", u, b)
		}
		if proxy.Dropped() != 3 {
			t.Errorf("%d replies were lost, want 3", proxy.Dropped())
		}
	})
}

// TestF01_ReplyLostIsAskedAgainByTheCaller: the same, with a client that gives up;
// the caller asks again with the nonce from the error.
func TestF01_ReplyLostIsAskedAgainByTheCaller(t *testing.T) {
	t.Parallel()
	behindProxy(t, func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client) {
		scopes := globalScope(throttle.PerHour(10))
		th := newThrottle(t, onceClient(t, proxy.Addr), scopes, &throttle.Options{Timeout: patient})
		reserve(t, th, throttle.Job{ID: "warm", Weight: 1})

		proxy.DropNextReply("evalsha")
		job, asked := throttle.Job{ID: "lost", Weight: 4}, time.Now()
		_, err := th.Reserve(t.Context(), job)
		u := unavailable(t, "reply lost", err, "other")
		if u.Job != "lost" || u.Nonce == "" {
			t.Fatalf("reply lost: got %+v, want the job and the nonce that was used", u)
		}
		job.Nonce = u.Nonce
		got := reserve(t, th, job)
		if got.Outcome != throttle.Granted || !got.Replayed && isKept(asked) || got.Job.Nonce != u.Nonce {
			t.Errorf("asked again: got %+v, want granted and replayed", got)
		}
		if u, _ := used(t, direct, th.Name(), scopes); u != 1+4 {
			t.Errorf("asked again: %d units used, want 5", u)
		}
		// Once it is answered, and without the nonce, it is another decision.
		job.Nonce = ""
		if got := reserve(t, th, job); got.Outcome != throttle.Granted || got.Replayed {
			t.Errorf("asked anew: got %+v, want granted anew", got)
		}
		if u, _ := used(t, direct, th.Name(), scopes); u != 1+4+4 {
			t.Errorf("asked anew: %d units used, want 9", u)
		}
	})
}

// TestF01_ReplyToAnyRequestLost: whichever of the first requests loses its reply
// (the greeting, NOSCRIPT, SCRIPT LOAD, the decision), one job is charged once.
func TestF01_ReplyToAnyRequestLost(t *testing.T) {
	t.Parallel()
	behindProxy(t, func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client) {
		for n := 1; n <= 6; n++ {
			lost := proxy.Dropped()
			scopes := globalScope(throttle.PerHour(10))
			client := defaultClient(t, proxy.Addr)
			th := newThrottle(t, client, scopes, &throttle.Options{Timeout: patient})
			if err := direct.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			proxy.DropReply("", n)
			if got := reserve(t, th, throttle.Job{ID: "x", Weight: 4}); got.Outcome != throttle.Granted {
				t.Errorf("reply %d lost: got %+v, want granted", n, got)
			}
			if u, _ := used(t, direct, th.Name(), scopes); u != 4 {
				t.Errorf("reply %d lost: %d units used, want 4", n, u)
			}
			// Where there were fewer requests, use the loss up.
			for proxy.Dropped() == lost {
				_ = client.Ping(t.Context()).Err()
			}
		}
	})
}

// TestF02_StalledReply: the caller is freed by the throttle's own timeout although
// the client would wait for seconds; the request still arrives; asked again with
// the nonce it is charged once.
func TestF02_StalledReply(t *testing.T) {
	t.Parallel()
	behindProxy(t, func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client) {
		scopes := globalScope(throttle.PerHour(10))
		client := defaultClient(t, proxy.Addr)
		warm := newThrottle(t, client, scopes, &throttle.Options{Timeout: patient})
		reserve(t, warm, throttle.Job{ID: "warm", Weight: 1})
		warm.AwaitPublished() // it leaves the connection to the request
		th := newThrottle(t, client, scopes, &throttle.Options{Timeout: 100 * time.Millisecond, BreakAfter: -1})

		proxy.Stall()
		job, began := throttle.Job{ID: "stalled", Weight: 4}, time.Now()
		_, err := th.Reserve(t.Context(), job)
		u := unavailable(t, "stalled", err, "timeout")
		if took := time.Since(began); longtest.Full() && took > soon || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stalled: got %v after %s, want a timeout after 100 ms", err, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := th.Peek(ctx, throttle.Job{ID: "other", Weight: 1}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stalled, with a context's deadline: got %v, want %v", err, context.DeadlineExceeded)
		}
		proxy.Unstall()
		redistest.Await(t, "the stalled request arrives", func() bool {
			got, _ := used(t, direct, th.Name(), scopes)
			return got == 4
		})

		job.Nonce = u.Nonce
		redistest.Await(t, "an answer to who asks again", func() bool {
			got, err := th.Reserve(t.Context(), job)
			return err == nil && got.Outcome == throttle.Granted
		})
		if got, _ := used(t, direct, th.Name(), scopes); got != 4 {
			t.Errorf("asked again: %d units used, want 4", got)
		}
	})
}

// TestF03_Refused: while Redis refuses connections each policy does what it says,
// and afterwards decisions come from Redis again.
func TestF03_Refused(t *testing.T) {
	t.Parallel()
	behindProxy(t, func(t *testing.T, proxy *redistest.Proxy, _ *redis.Client) {
		client := onceClient(t, proxy.Addr)
		scopes := globalScope(throttle.PerHour(10))
		policy := func(fallback throttle.Fallback) *throttle.Throttle {
			return newThrottle(t, client, scopes, &throttle.Options{
				Fallback: fallback, LocalShare: 0.5, Timeout: patient, BreakPeriod: 20 * time.Millisecond,
			})
		}
		closed, open, local := policy(throttle.FallbackClosed), policy(throttle.FallbackOpen), policy(throttle.FallbackLocal)
		proxy.Refuse()
		granted := 0
		for i := range 20 {
			job := throttle.Job{ID: fmt.Sprint(i), Weight: 1}
			if _, err := closed.Reserve(t.Context(), job); !errors.Is(err, throttle.ErrUnavailable) {
				t.Errorf("closed, job %d: got %v, want an error of the class ErrUnavailable", i, err)
			}
			got := reserve(t, open, job)
			if got.Outcome != throttle.Granted || got.Source != throttle.FallbackOpen || got.Delay() != 0 {
				t.Errorf("open, job %d: got %+v, want granted at once, from open", i, got)
			}
			switch got, err := local.Reserve(t.Context(), job); {
			case err == nil && got.Source == throttle.FallbackLocal && got.Outcome == throttle.Granted:
				granted++
			case !errors.Is(err, throttle.ErrUnavailable):
				t.Errorf(
					"local, job %d: got %+v, %v; want granted from local, or an error of the class ErrUnavailable", i, got, err)
			}
		}
		if granted < 1 || granted > 5 {
			t.Errorf("local: granted %d of 20, want some, and at most half of 10", granted)
		}
		for call, err := range everyCall(t.Context(), open, throttle.Job{ID: "x", Weight: 1}) {
			// Only what decides has a fallback: what was not read is not made up.
			if decides := call == "Reserve" || call == "Wait"; (err == nil) != decides {
				t.Errorf("open, %s: got %v", call, err)
			}
		}
		proxy.Accept()
		for name, th := range map[string]*throttle.Throttle{"closed": closed, "open": open, "local": local} {
			redistest.Await(t, name+" is decided by Redis again", func() bool {
				got, err := th.Reserve(t.Context(), throttle.Job{ID: "back", Weight: 1})
				return err == nil && got.Source == throttle.FallbackClosed
			})
		}
	})
}

// TestF04_BlackHole: a Redis that is stopped in its tracks holds nobody for longer
// than the timeout, the breaker opens, and Redis is used again when it is back. How soon
// is asserted in full.
func TestF04_BlackHole(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	scopes := globalScope(throttle.PerHour(1000))
	reserve(t, newThrottle(t, client, scopes, nil), throttle.Job{ID: "warm", Weight: 1})
	breaking := throttle.Options{Timeout: 100 * time.Millisecond, BreakAfter: 3, BreakPeriod: time.Hour}
	th := newThrottle(t, client, scopes, &breaking)
	let := throttle.Options{Timeout: 50 * time.Millisecond, Fallback: throttle.FallbackOpen}
	open := newThrottle(t, client, scopes, &let)
	breaking.BreakPeriod = 300 * time.Millisecond
	trying := newThrottle(t, client, scopes, &breaking)

	server.Pause()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := th.Reserve(ctx, throttle.Job{ID: "mine", Weight: 1}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a context's deadline: got %v, want %v", err, context.DeadlineExceeded)
	}
	opened := false
	for i := 0; i < 10 && !opened; i++ {
		_, err := th.Reserve(t.Context(), throttle.Job{ID: fmt.Sprint(i), Weight: 1})
		var away *throttle.UnavailableError
		if opened = errors.As(err, &away) && away.Failure == "breaker"; !opened {
			unavailable(t, fmt.Sprintf("call %d", i), err, "timeout")
		} else if i < 1 {
			t.Errorf("the breaker is open at call %d", i)
		}
	}
	if got := reserve(t, open, throttle.Job{ID: "open", Weight: 1}); got.Source != throttle.FallbackOpen {
		t.Errorf("open: got %+v, want granted from open", got)
	}
	freed := 0 // at once; the others where the machine stands still for as long as the timeout
	for i := range 1000 {
		_, err := th.Reserve(t.Context(), throttle.Job{ID: fmt.Sprint(i), Weight: 1})
		var away *throttle.UnavailableError
		if !errors.As(err, &away) || away.Failure != "breaker" && away.Failure != "timeout" {
			t.Fatalf("with the breaker open, call %d: got %v", i, err)
		}
		if away.Failure == "breaker" {
			freed++
		}
	}
	if freed < 500 {
		t.Errorf("with the breaker open %d of 1000 calls were freed at once", freed)
	}
	if took := time.Since(began); longtest.Full() && took > soon {
		t.Errorf("a stopped Redis held its callers for %s", took)
	}

	ask := func() error {
		_, err := trying.Reserve(t.Context(), throttle.Job{ID: "back", Weight: 1})
		return err
	}
	redistest.Await(t, "the breaker is open", func() bool {
		var away *throttle.UnavailableError
		return errors.As(ask(), &away) && away.Failure == "breaker"
	})
	server.Resume()
	back := time.Now()
	redistest.Await(t, "decided again", func() bool { return ask() == nil })
	if took := time.Since(back); longtest.Full() && took > soon {
		t.Errorf("back after %s, want about the break period", took)
	}
}

// TestF04_EveryKindOfClientFreesItsCallers: whatever a client heeds, a call ends in
// the throttle's time: on a connection that is silent, one that does not come
// about, and where others hold all there are.
func TestF04_EveryKindOfClientFreesItsCallers(t *testing.T) {
	t.Parallel()
	heedless := redis.Options{DialerRetries: 1}
	heedful := redis.Options{DialerRetries: 1, ContextTimeoutEnabled: true}
	behindProxy(t, func(t *testing.T, proxy *redistest.Proxy, _ *redis.Client) {
		client := func(opts redis.Options) *redis.Client {
			opts.Addr = proxy.Addr
			c := redis.NewClient(&opts)
			t.Cleanup(func() { _ = c.Close() })
			if err := c.Ping(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			return c
		}
		hanging := func(opts redis.Options) *redis.Client {
			opts.Addr = proxy.Addr
			opts.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
				select {
				case <-ctx.Done(): // the client's own 5 s
				case <-t.Context().Done():
				}
				return nil, context.DeadlineExceeded
			}
			c := redis.NewClient(&opts)
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		clients := map[string]redis.Scripter{
			"with defaults":              client(heedless),
			"that heeds contexts":        client(heedful),
			"of a kind not known":        struct{ redis.Scripter }{client(heedless)},
			"that cannot connect":        hanging(heedless),
			"that heeds and cannot":      hanging(heedful),
			"of no kind and cannot":      struct{ redis.Scripter }{hanging(heedless)},
			"whose connections are held": held(t, client(redis.Options{DialerRetries: 1, PoolSize: 1})),
		}
		proxy.Stall()
		defer proxy.Unstall()
		for name, client := range clients {
			th := newThrottle(t, client, globalScope(throttle.PerHour(10)),
				&throttle.Options{Timeout: 50 * time.Millisecond, BreakAfter: -1})
			began := time.Now()
			calls := everyCall(t.Context(), th, throttle.Job{ID: "x", Weight: 1})
			for call, err := range calls {
				unavailable(t, call+" of a client "+name, err, "timeout")
			}
			if took := time.Since(began); longtest.Full() && took > time.Duration(len(calls))*50*time.Millisecond+soon {
				t.Errorf("a client %s held its callers for %s, want %d times about 50 ms", name, took, len(calls))
			}
		}
	})
}

// held takes the client's only connection until the test ends.
func held(t *testing.T, client *redis.Client) *redis.Client {
	t.Helper()
	conn := client.Conn()
	if err := conn.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return client
}

// TestBreaker: after BreakAfter failures in a row Redis is left alone for
// BreakPeriod; a negative number asks every time; what is the caller's own doing
// does not count.
func TestBreaker(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	client := onceClient(t, proxy.Addr)
	scopes := globalScope(throttle.PerHour(10))
	job := throttle.Job{ID: "x", Weight: 1}
	always := newThrottle(t, client, scopes, &throttle.Options{Timeout: patient, BreakAfter: -1})
	breaks := newThrottle(t, client, scopes, &throttle.Options{Timeout: patient, BreakAfter: 2, BreakPeriod: time.Hour})

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for range 5 {
		if _, err := breaks.Reserve(cancelled, job); !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled: got %v", err)
		}
		var never *throttle.NeverFitsError
		if _, err := breaks.Reserve(t.Context(), throttle.Job{ID: "x", Weight: 11}); !errors.As(err, &never) {
			t.Fatalf("too heavy: got %v", err)
		}
	}
	reserve(t, breaks, job)

	proxy.Refuse()
	for range 10 {
		_, err := always.Reserve(t.Context(), job)
		unavailable(t, "never breaks", err, "other")
	}
	for i, want := range []string{"other", "other", "breaker", "breaker"} {
		_, err := breaks.Reserve(t.Context(), job)
		unavailable(t, fmt.Sprintf("breaks after 2, call %d", i), err, want)
	}
	proxy.Accept()
	reserve(t, always, job)
	_, err := breaks.Reserve(t.Context(), job)
	unavailable(t, "within the period", err, "breaker")
}

// TestF05_F20_DataLost: after a restart without data, or FLUSHALL, it goes on at once, with no word of
// a missing script, and lets at most one more limit pass.
func TestF05_F20_DataLost(t *testing.T) {
	t.Parallel()
	mini := miniredis.RunT(t)
	own := redistest.Start(t)
	for name, lose := range map[string]struct {
		addr string
		data func()
	}{
		"miniredis, flushed": {mini.Addr(), mini.FlushAll},
		"redis, restarted":   {own.Addr, own.Restart},
		"redis, flushed": {own.Addr, func() {
			if err := own.Client(t).FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		scopes := globalScope(throttle.PerHour(5))
		th := newThrottle(t, defaultClient(t, lose.addr), scopes, &throttle.Options{Timeout: patient})
		granted := 0
		for i := range 10 {
			if reserve(t, th, throttle.Job{ID: fmt.Sprint("before", i), Weight: 1}).Outcome == throttle.Granted {
				granted++
			}
		}
		lose.data()
		for i := range 10 {
			// The booked ones come back too, as if they were new.
			for _, id := range []string{"before", "after"} {
				if reserve(t, th, throttle.Job{ID: fmt.Sprint(id, i), Weight: 1}).Outcome == throttle.Granted {
					granted++
				}
			}
		}
		if granted != 5+5 {
			t.Errorf("%s: %d granted, want 5 before and 5 after", name, granted)
		}
	}
}

// TestF06_ScriptsForgotten: SCRIPT FLUSH between two calls is nobody's concern.
func TestF06_ScriptsForgotten(t *testing.T) {
	t.Parallel()
	behindProxy(t, func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client) {
		th := newThrottle(t, onceClient(t, proxy.Addr), globalScope(throttle.PerHour(3)), &throttle.Options{Timeout: patient})
		var granted throttle.Reservation
		for i := range 5 {
			want := throttle.Granted
			if i >= 3 {
				want = throttle.Booked
			}
			got := reserve(t, th, throttle.Job{ID: fmt.Sprint(i), Weight: 1})
			if got.Outcome != want {
				t.Errorf("job %d: got %v, want %v", i, got.Outcome, want)
			}
			if want == throttle.Granted {
				granted = got
			}
			if err := direct.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		job := throttle.Job{ID: "4", Weight: 1}
		for call, ask := range map[string]func() error{
			"Peek":   func() error { _, err := th.Peek(t.Context(), job); return err },
			"Settle": func() error { _, err := th.Settle(t.Context(), granted, 1); return err },
			"Cancel": func() error { _, err := th.Cancel(t.Context(), job); return err },
			"Usage":  func() error { _, err := th.Inspector().Usage(t.Context(), throttle.Global, ""); return err },
			"Count": func() error {
				_, err := th.Inspector().Count(t.Context(), throttle.Global, "", time.Minute, 0)
				return err
			},
			"Pull":   func() error { _, err := th.Driver().Pull(t.Context()); return err },
			"Resume": func() error { _, err := th.Resume(t.Context(), throttle.Global, ""); return err },
			"Lines":  func() error { _, err := th.Inspector().Lines(t.Context(), ""); return err },
		} {
			if err := direct.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			if err := ask(); err != nil {
				t.Errorf("%s: %v", call, err)
			}
		}
	})
}

// forgetful makes Redis forget a script as soon as it is loaded, so many times.
type forgetful struct {
	flush func(ctx context.Context)
	times int
}

// DialHook changes nothing.
func (f *forgetful) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook changes nothing.
func (f *forgetful) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook forgets what was loaded.
func (f *forgetful) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		err := next(ctx, command)
		if command.Name() == "script" && f.times > 0 {
			f.times--
			f.flush(ctx)
		}
		return err
	}
}

// TestF06_ScriptsForgottenAtOnce: SCRIPT FLUSH, or a failover, between the loading of a
// script and the call.
func TestF06_ScriptsForgottenAtOnce(t *testing.T) {
	t.Parallel()
	behindProxy(t, func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client) {
		client := onceClient(t, proxy.Addr)
		client.AddHook(&forgetful{times: 1, flush: func(ctx context.Context) {
			if err := direct.ScriptFlush(ctx).Err(); err != nil {
				t.Error(err)
			}
		}})
		th := newThrottle(t, client, globalScope(throttle.PerHour(3)), &throttle.Options{Timeout: patient})
		if got := reserve(t, th, throttle.Job{ID: "1", Weight: 1}); got.Outcome != throttle.Granted {
			t.Errorf("got %+v, want granted", got)
		}
	})
}

// TestF10_F14_F19_RedisRefusesToWrite: F10, a replica answered; F14, out of memory; F19, too
// few replicas. Nothing is decided and nothing is written, and it goes on when the
// reason is gone.
func TestF10_F14_F19_RedisRefusesToWrite(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		failure    string
		begin, end []any
	}{
		"F10 a replica": {
			"readonly",
			[]any{"REPLICAOF", "127.0.0.1", "1"}, []any{"REPLICAOF", "NO", "ONE"},
		},
		"F14 out of memory": {
			"oom",
			[]any{"CONFIG", "SET", "maxmemory", "1"}, []any{"CONFIG", "SET", "maxmemory", "0"},
		},
		"F19 no replicas": {
			"noreplica",
			[]any{"CONFIG", "SET", "min-replicas-to-write", "1"}, []any{"CONFIG", "SET", "min-replicas-to-write", "0"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--maxmemory-policy", "noeviction")
			direct := server.Client(t)
			scopes := []throttle.Scope{
				{Name: "tenant", Limits: []throttle.Limit{throttle.PerHour(5), throttle.PerDay(500)}},
				{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerHour(8)}},
			}
			do := func(command []any) {
				if err := direct.Do(t.Context(), command...).Err(); err != nil {
					t.Fatal(err)
				}
			}
			for lookahead, want := range map[time.Duration]struct{ second, after throttle.Outcome }{
				maxWindow:   {throttle.Booked, throttle.Granted},
				time.Second: {throttle.Waiting, throttle.Waiting},
			} {
				th := newThrottle(t, onceClient(t, server.Addr), scopes,
					&throttle.Options{Lookahead: lookahead, Timeout: patient, BreakAfter: -1})
				reserve(t, th, throttle.Job{ID: "a", Weight: 3, Keys: of("a")})
				if got := reserve(t, th, throttle.Job{ID: "b", Weight: 3, Keys: of("a")}); got.Outcome != want.second {
					t.Errorf("3 and 3 of 5: got %+v, want %v", got, want.second)
				}
				do(test.begin)
				unchanged(t, direct, th, func() {
					for _, job := range []throttle.Job{
						{ID: "new", Weight: 1, Keys: of("a")}, {ID: "none before", Weight: 1, Keys: of("b")},
						{ID: "booked", Weight: 5, Keys: of("a")}, {ID: "b", Weight: 3, Keys: of("a"), MaxWait: 2 * time.Hour},
					} {
						_, err := th.Reserve(t.Context(), job)
						unavailable(t, "job "+job.ID, err, test.failure)
					}
				})
				do(test.end)
				if got := reserve(t, th, throttle.Job{ID: "new", Weight: 1, Keys: of("a")}); got.Outcome != want.after {
					t.Errorf("afterwards: got %+v, want %v", got, want.after)
				}
			}
		})
	}
}

// TestF17_Busy: a script of somebody else blocks Redis. Each call gets a typed
// error, and it goes on when that script has been killed.
func TestF17_Busy(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--lua-time-limit", "10")
	direct := server.Client(t)
	th := newThrottle(t, onceClient(t, server.Addr), globalScope(throttle.PerHour(1000)),
		&throttle.Options{Timeout: patient, BreakAfter: -1})
	reserve(t, th, throttle.Job{ID: "warm", Weight: 1})
	slow := onceClient(t, server.Addr)
	var wg sync.WaitGroup
	wg.Go(func() { _ = slow.Eval(context.Background(), "while true do end", nil).Err() })
	redistest.Await(t, "Redis is busy", func() bool {
		_, err := th.Reserve(t.Context(), throttle.Job{ID: "probe", Weight: 1})
		var u *throttle.UnavailableError
		return errors.As(err, &u) && u.Failure == "busy"
	})
	for i := range 20 {
		_, err := th.Reserve(t.Context(), throttle.Job{ID: fmt.Sprint(i), Weight: 1})
		unavailable(t, fmt.Sprintf("job %d", i), err, "busy")
	}
	if err := direct.ScriptKill(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	redistest.Await(t, "decided again", func() bool {
		_, err := th.Reserve(t.Context(), throttle.Job{ID: "after", Weight: 1})
		return err == nil
	})
}

// TestF16_ForeignData: a key of another type, or with other text, where one of
// ours should be: ErrState, and nothing is written, neither there nor beside it.
func TestF16_ForeignData(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(ctx context.Context, client *redis.Client, key string) error{
		"a list": func(ctx context.Context, client *redis.Client, key string) error {
			return client.RPush(ctx, key, "x").Err()
		},
		"a string": func(ctx context.Context, client *redis.Client, key string) error {
			return client.Set(ctx, key, "something else", 0).Err()
		},
		"a sorted set": func(ctx context.Context, client *redis.Client, key string) error {
			return client.ZAdd(ctx, key, redis.Z{Score: 1, Member: "something else"}).Err()
		},
		"a hash": func(ctx context.Context, client *redis.Client, key string) error {
			return client.HSet(ctx, key, "id", "something else", "*", "something else").Err()
		},
	}
	ours := map[string]string{ // which of them is as ours are, so far as that can be seen
		"timers": "a sorted set", "wait:tenant:a": "a sorted set",
		"lane:a|global:,tenant:a": "a list", "shares": "a sorted set", "jobs": "a hash",
	}
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := tenantAndGlobal(throttle.PerHour(5), throttle.PerHour(50))
		job := throttle.Job{ID: "id", Weight: 1, Keys: of("a")}
		for _, end := range []string{
			"control", "key:tenant:a", "key:global:", "timers", "jobs", "shares",
			"lane:a|global:,tenant:a", "wait:tenant:a",
		} {
			for kind, put := range kinds {
				for _, before := range []int{0, 1, 3} { // how many jobs came before: the third waits
					th := newThrottle(t, client, scopes,
						&throttle.Options{Lookahead: time.Second, Share: func(string) int { return 2 }})
					for i := range before {
						reserve(t, th, throttle.Job{ID: fmt.Sprint(i), Weight: 2, Keys: of("a")})
					}
					if inLine := !strings.Contains(end, "key:") && end != "control"; kind == ours[end] ||
						inLine && before < 3 && end != "timers" {
						continue // it is not looked at where nobody waits
					}
					key := "thr:{" + th.Name() + "}:4:" + end
					was := client.Rename(t.Context(), key, "aside:"+key).Err() == nil
					if err := put(t.Context(), client, key); err != nil {
						t.Fatal(err)
					}
					what := fmt.Sprintf("%s at %s after %d jobs", kind, end, before)
					held := keyspace(t, client, th)
					_, err := th.Reserve(t.Context(), job)
					if !errors.Is(err, throttle.ErrState) {
						t.Errorf("%s: got %v, want ErrState", what, err)
					}
					if diff := cmp.Diff(held, keyspace(t, client, th)); diff != "" {
						t.Errorf("%s: something was written (-before +after):\n%s", what, diff)
					}
					if err := client.Del(t.Context(), key).Err(); err != nil {
						t.Fatal(err)
					}
					if was {
						if err := client.Rename(t.Context(), "aside:"+key, key).Err(); err != nil {
							t.Fatal(err)
						}
					}
					if _, err := th.Reserve(t.Context(), job); err != nil {
						t.Errorf("%s, when it is gone: got %v, want none", what, err)
					}
				}
			}
		}
	})
}

// TestF55_ManyAtOnce: of 200 goroutines on one key exactly the limit's units are
// granted, in several processes' worth of throttles.
func TestF55_ManyAtOnce(t *testing.T) {
	t.Parallel()
	for _, precision := range []time.Duration{throttle.Exact, time.Minute} {
		t.Run(precision.String(), func(t *testing.T) {
			t.Parallel()
			onServers(t, func(t *testing.T, client *redis.Client) {
				const limit, goroutines = 77, 200
				scopes := tenantAndGlobal(
					throttle.Limit{Units: limit, Window: time.Hour, Precision: precision},
					throttle.Limit{Units: 500, Window: time.Hour, Precision: precision})
				first := newThrottle(t, client, scopes, &throttle.Options{Timeout: time.Minute})
				throttles := []*throttle.Throttle{first}
				for range 3 {
					other, err := throttle.New(first.Name(), defaultClient(t, client.Options().Addr), scopes,
						&throttle.Options{Timeout: time.Minute, Lookahead: maxWindow})
					if err != nil {
						t.Fatal(err)
					}
					throttles = append(throttles, other)
				}
				outcomes := make([]throttle.Outcome, goroutines)
				var wg sync.WaitGroup
				for i := range goroutines {
					wg.Go(func() {
						got, err := throttles[i%len(throttles)].Reserve(t.Context(),
							throttle.Job{ID: fmt.Sprint(i), Weight: 1, Keys: of("a")})
						if err != nil {
							t.Errorf("goroutine %d: %v", i, err)
						}
						outcomes[i] = got.Outcome
					})
				}
				wg.Wait()
				granted, booked := int64(0), int64(0)
				for _, outcome := range outcomes {
					switch outcome {
					case throttle.Granted:
						granted++
					case throttle.Booked:
						booked++
					}
				}
				if granted != limit || booked != goroutines-limit {
					t.Errorf("%d granted and %d booked of %d, want exactly %d granted", granted, booked, goroutines, limit)
				}
				for _, scope := range []struct{ name, key string }{{"tenant", "a"}, {throttle.Global, ""}} {
					usage, err := first.Inspector().Usage(t.Context(), scope.name, scope.key)
					if err != nil || usage.Limits[0].Used != granted || usage.Limits[0].Booked != booked {
						t.Errorf("%s: usage %+v, %v; want %d used and %d booked", scope.name, usage, err, granted, booked)
					}
				}
			})
		})
	}
}
