package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// patient is a timeout for tests that do not test the timeout: a busy machine must not
// end the call.
const patient = time.Minute

// soon bounds, in full runs, how long an immediate event takes; the clients' own timeouts are longer.
const soon = 3 * time.Second

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
		late := throttle.Job{ID: "late", Weight: 1, Deadline: time.Now().Add(-time.Second)}
		if got, err := open.Reserve(t.Context(), late); !errors.Is(err, throttle.ErrUnavailable) {
			t.Errorf("open, after its deadline: got %+v, %v, want no start", got, err)
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

// TestF04_BlackHole: a Redis whose process is stopped holds no caller for longer than the
// timeout, the breaker opens, and Redis is used again when it is back. Full runs assert how
// soon.
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

// TestF04_EveryKindOfClientFreesItsCallers: whatever a client heeds, a call ends within
// the throttle's timeout: on a silent connection, on a connection that cannot be made, and
// if other callers hold all connections.
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
// BreakPeriod; with a negative number Redis is asked every time; failures that the
// caller's own context causes do not count.
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
