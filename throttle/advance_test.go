package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// fleet is some processes of one throttle in a bubble, with what they started.
type fleet struct {
	t         *testing.T
	scopes    []throttle.Scope
	processes []*throttle.Throttle
	calls     atomic.Int64

	mu       sync.Mutex
	starts   []throttletest.Start
	advanced int
	told     toldOfAdvances
}

// toldOfAdvances counts units by what observers are told.
type toldOfAdvances struct {
	deaf
	own, charged, started atomic.Int64
}

func (o *toldOfAdvances) Decided(d throttle.Decision) {
	o.charged.Add(d.Advance)
	if d.Reservation.Advanced {
		o.started.Add(d.Reservation.Job.Weight)
	} else {
		o.own.Add(d.Reservation.Job.Weight)
	}
}

// inFleet runs a test with so many processes that have advances. delay is how long a call takes to Redis, and back.
func inFleet(t *testing.T, scopes []throttle.Scope, processes int, delay func() time.Duration,
	test func(t *testing.T, f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		server.ClockTTL(true)
		client := redis.NewClient(&redis.Options{
			Addr:            "127.0.0.1:6379",
			Dialer:          func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
			DisableIdentity: true, ContextTimeoutEnabled: true, // so that the hook is kept
			PoolSize: 200, // go-redis would wait for a connection by timers that all bubbles share
		})
		f := &fleet{t: t, scopes: scopes}
		client.AddHook(slow{delay, &f.calls})
		for range processes {
			th, err := throttle.New("fleet", client, scopes, &throttle.Options{Timeout: 10 * time.Second,
				Advance: time.Second, Logger: zap.NewNop(), Observer: &f.told})
			if err != nil {
				t.Fatal(err)
			}
			f.processes = append(f.processes, th)
		}
		test(t, f)
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		server.Close()
	})
}

// slow delays each script on its way to Redis, and its reply. It lets other commands pass: those of a new connection
// are sent under a lock, which stops a bubble's clock.
type slow struct {
	delay func() time.Duration
	calls *atomic.Int64
}

func (slow) DialHook(next redis.DialHook) redis.DialHook { return next }

func (slow) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s slow) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return next(ctx, cmd)
		}
		s.calls.Add(1)
		time.Sleep(s.delay())
		err := next(ctx, cmd)
		time.Sleep(s.delay())
		return err
	}
}

func noDelay() time.Duration { return 0 }

// start waits until a job may start, and records it.
func (f *fleet) start(ctx context.Context, process int, job throttle.Job) error {
	r, err := f.processes[process].Wait(ctx, job)
	if err != nil {
		return err
	}
	at := time.Now() // Redis' clock is the bubble's
	f.mu.Lock()
	defer f.mu.Unlock()
	f.starts = append(f.starts, throttletest.Start{At: at, Weight: job.Weight, Keys: job.Keys})
	if r.Advanced {
		f.advanced++
		f.checkSubWindows(r, at)
	}
	return nil
}

// checkSubWindows checks that a job has started in the sub-windows to which it is charged, hundredths of the windows.
func (f *fleet) checkSubWindows(r throttle.Reservation, at time.Time) {
	for _, scope := range f.scopes {
		for _, limit := range scope.Limits {
			hundredth := (limit.Window / 100).Microseconds()
			if limit.Window > 0 && at.UnixMicro()/hundredth != r.Now.UnixMicro()/hundredth {
				f.t.Errorf("%s is charged at %s and starts at %s, in another sub-window of %s", r.Job.ID,
					r.Now.Format(time.StampMicro), at.Format(time.StampMicro), limit)
			}
		}
	}
}

// paced has a tenant's jobs come to one process at a rate, for some time.
func (f *fleet) paced(ctx context.Context, process int, tenant string, every, lasts time.Duration) {
	var jobs sync.WaitGroup
	for i := range int(lasts / every) {
		jobs.Go(func() {
			job := throttle.Job{ID: fmt.Sprintf("%s-%d-%d", tenant, process, i), Weight: 1, Keys: of(tenant)}
			if err := f.start(ctx, process, job); err != nil && ctx.Err() == nil {
				f.t.Error(err)
			}
		})
		time.Sleep(every)
	}
	jobs.Wait()
}

func (f *fleet) checkWindows() {
	for _, over := range throttletest.Check(f.scopes, f.starts) {
		f.t.Errorf("window over its limit: %s", over)
	}
}

// checkCharges checks that all starts were charged, by the quota of all jobs.
func (f *fleet) checkCharges() {
	usage, err := inspect.New(f.processes[0]).Usage(f.t.Context(), throttle.Global, "")
	if err != nil {
		f.t.Fatal(err)
	}
	started := int64(0)
	for _, start := range f.starts {
		started += start.Weight
	}
	if quota := usage.Limits[len(usage.Limits)-1]; quota.Used < started {
		f.t.Errorf("%d units started, and %d are charged under %s", started, quota.Used, quota.Limit)
	}
}

// TestAdvanceSavesCalls: with room, few jobs of a busy lane ask Redis, and what no job took is a small part.
func TestAdvanceSavesCalls(t *testing.T) {
	t.Parallel()
	scopes := tenantAndGlobal(throttle.PerMinute(100_000), throttle.Per(1_000_000, time.Hour))
	inFleet(t, scopes, 2, noDelay, func(t *testing.T, f *fleet) {
		var all sync.WaitGroup
		for process := range f.processes {
			all.Go(func() { f.paced(t.Context(), process, "acme", time.Millisecond, 2*time.Second) })
		}
		all.Wait()
		f.checkWindows()
		usage, err := inspect.New(f.processes[0]).Usage(t.Context(), "tenant", "acme")
		if err != nil {
			t.Fatal(err)
		}
		const jobs = 4000
		calls, used := f.calls.Load(), usage.Limits[0].Used
		t.Logf("%d calls, %d starts out of advances, %d units charged", calls, f.advanced, used)
		if len(f.starts) != jobs || calls > jobs/8 || used < jobs || used > jobs*102/100 {
			t.Errorf("%d jobs started with %d calls and %d units charged; want %d, at most %d, and 2 %% more",
				len(f.starts), calls, used, jobs, jobs/8)
		}
		own, charged, started := f.told.own.Load(), f.told.charged.Load(), f.told.started.Load()
		if own+charged != used || own+started != jobs {
			t.Errorf("an observer was told of %d units of jobs that asked, %d charged in advance and %d started out of them;"+
				" want %d charged and %d started in all", own, charged, started, used, jobs)
		}
	})
}

// TestPropertyAdvance: processes with advances start jobs of several tenants and weights through a slow network, under
// windows that are full at times. No window is over by the record of the starts, and all jobs start.
func TestPropertyAdvance(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	advanced := 0
	for seed := range uint64(longtest.Of(2, 8)) {
		r := rand.New(rand.NewPCG(seed, 1))
		window := []time.Duration{5 * time.Second, 10 * time.Second}[r.IntN(2)]
		units := int64(600+r.IntN(1000)) * int64(window/time.Second)
		scopes := []throttle.Scope{
			{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(units, window),
				throttle.PerCalendarDay(units*int64(2+r.IntN(3)), "Asia/Kolkata")}},
			{Name: "tenant", Limits: []throttle.Limit{throttle.Per(units*2/3, window)}},
		}
		var mu sync.Mutex
		draw := func(n int64) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return time.Duration(r.Int64N(n))
		}
		slowest := int64(time.Millisecond) << r.IntN(4)
		delay := func() time.Duration { return draw(slowest) }
		inFleet(t, scopes, 1+r.IntN(4), delay, func(t *testing.T, f *fleet) {
			ctx, cancel := context.WithTimeout(t.Context(), 9*window/4)
			defer cancel()
			var all sync.WaitGroup
			for process := range f.processes {
				for _, tenant := range []string{"a", "a", "a", "a", "a", "a", "b", "b"} {
					weight, caller := int64(1+r.IntN(3)), r.IntN(1000)
					all.Go(func() {
						for i := 0; ctx.Err() == nil; i++ {
							job := throttle.Job{ID: fmt.Sprintf("%s-%d-%d-%d", tenant, process, caller, i), Weight: weight,
								Keys: of(tenant)}
							if err := f.start(ctx, process, job); err != nil && !errors.Is(err, context.DeadlineExceeded) {
								t.Error(err)
							}
							rest := int64(time.Millisecond) // or longer, in every second of two
							if time.Now().Unix()%2 == int64(caller%2) {
								rest *= int64(2 + caller%20)
							}
							time.Sleep(draw(rest))
						}
					})
				}
			}
			all.Wait()
			f.checkWindows()
			f.checkCharges()
			advanced += f.advanced
			t.Logf("seed %d: %d processes, %d in %s, calls of up to %s: %d starts, %d out of advances", seed,
				len(f.processes), units, window, 2*time.Duration(slowest), len(f.starts), f.advanced)
		})
	}
	if advanced == 0 {
		t.Error("nothing started out of an advance")
	}
}

// TestAdvanceEndsWithAPause: a pause acts at once in the process that sets it, and within Options.Advance in others.
func TestAdvanceEndsWithAPause(t *testing.T) {
	t.Parallel()
	scopes := tenantAndGlobal(throttle.PerHour(1_000_000), throttle.PerHour(1_000_000))
	inFleet(t, scopes, 2, noDelay, func(t *testing.T, f *fleet) {
		ctx, cancel := context.WithCancel(t.Context())
		starts := make([][]time.Time, 2)
		var all sync.WaitGroup
		for process := range f.processes {
			all.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					job := throttle.Job{ID: fmt.Sprintf("%d-%d", process, i), Weight: 1, Keys: of("acme")}
					if r, err := f.processes[process].Reserve(ctx, job); err == nil && r.Outcome == throttle.Granted {
						starts[process] = append(starts[process], time.Now())
					}
					time.Sleep(2 * time.Millisecond)
				}
			})
		}
		time.Sleep(3 * time.Second / 2)
		synctest.Wait()
		paused := time.Now()
		if _, err := inspect.New(f.processes[0]).Pause(ctx, "tenant", "acme", time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second / 2)
		cancel()
		all.Wait()
		for process, latest := range []time.Duration{0, time.Second} {
			last := slices.MaxFunc(starts[process], time.Time.Compare)
			if after := last.Sub(paused); after > latest || len(starts[process]) < 500 {
				t.Errorf("process %d: %d starts, the last %s after the pause", process, len(starts[process]), after)
			}
		}
	})
}

// TestAdvanceWithoutLimits: scopes that limit nothing have advances too, which last as long as Options.Advance.
func TestAdvanceWithoutLimits(t *testing.T) {
	t.Parallel()
	scopes := []throttle.Scope{{Name: throttle.Global}, {Name: "tenant"}}
	inFleet(t, scopes, 1, noDelay, func(t *testing.T, f *fleet) {
		f.paced(t.Context(), 0, "acme", time.Millisecond, 400*time.Millisecond)
		if f.advanced < 200 || len(f.starts) != 400 {
			t.Errorf("%d of %d starts were out of an advance, want most", f.advanced, len(f.starts))
		}
	})
}

// TestAdvanceUnderNewLimits: limits of another process begin to count while an advance lasts that was charged before. A
// start out of it is not counted there, so its refund takes nothing from the charges of others.
func TestAdvanceUnderNewLimits(t *testing.T) {
	t.Parallel()
	scopes := tenantAndGlobal(throttle.PerHour(1_000_000), throttle.PerHour(1_000_000))
	inFleet(t, scopes, 2, noDelay, func(t *testing.T, f *fleet) {
		f.paced(t.Context(), 0, "acme", time.Millisecond, 200*time.Millisecond)
		if err := inspect.New(f.processes[1]).SetLimits(t.Context(), "tenant", "", []throttle.Limit{
			throttle.Per(1000, time.Minute)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		if r := reserve(t, f.processes[1], throttle.Job{ID: "other", Weight: 1, Keys: of("acme")}); r.Advanced {
			t.Fatal("started out of an advance of another process")
		}
		r := reserve(t, f.processes[0], throttle.Job{ID: "advanced", Weight: 1, Keys: of("acme")})
		if !r.Advanced || r.Delay() != 0 {
			t.Fatalf("got %+v, want a start out of an advance", r)
		}
		if done, err := f.processes[0].Refund(t.Context(), r); err != nil || !done {
			t.Fatalf("refunded: %t, %v", done, err)
		}
		usage, err := inspect.New(f.processes[1]).Usage(t.Context(), "tenant", "acme")
		if err != nil || usage.Limits[0].Used != 1 {
			t.Errorf("usage %+v, %v; want the unit of the other job", usage.Limits, err)
		}
	})
}

// TestAdvanceLasts: what is left of an advance starts nothing after Options.Advance, though the sub-window is open.
func TestAdvanceLasts(t *testing.T) {
	t.Parallel()
	scopes := tenantAndGlobal(throttle.PerHour(1_000_000), throttle.PerHour(1_000_000))
	inFleet(t, scopes, 2, noDelay, func(t *testing.T, f *fleet) {
		f.paced(t.Context(), 0, "acme", time.Millisecond, 200*time.Millisecond)
		other := inspect.New(f.processes[1])
		if _, err := other.Pause(t.Context(), "tenant", "acme", time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if r := reserve(t, f.processes[0], throttle.Job{ID: "soon", Weight: 1, Keys: of("acme")}); !r.Advanced {
			t.Fatalf("got %+v, want a start out of an advance", r)
		}
		time.Sleep(time.Second)
		if r := reserve(t, f.processes[0], throttle.Job{ID: "late", Weight: 1, Keys: of("acme")}); r.Hold == nil {
			t.Errorf("got %+v, want the pause", r)
		}
	})
}

// TestAdvanceIsOff: without the option, and for jobs that no advance can start, each job asks Redis.
func TestAdvanceIsOff(t *testing.T) {
	t.Parallel()
	running := tenantAndGlobal(throttle.Running(1000), throttle.PerHour(1_000_000))
	exact := tenantAndGlobal(throttle.Limit{Units: 100_000, Window: time.Second}, throttle.PerHour(1_000_000))
	exact[0].Limits[0].Precision = 2 * time.Millisecond
	for name, scopes := range map[string][]throttle.Scope{"running limit": running, "short sub-windows": exact} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inFleet(t, scopes, 1, noDelay, func(t *testing.T, f *fleet) {
				f.paced(t.Context(), 0, "acme", time.Millisecond, 400*time.Millisecond)
				if f.advanced > 0 || len(f.starts) != 400 {
					t.Errorf("%d of %d starts were out of an advance", f.advanced, len(f.starts))
				}
			})
		})
	}
}
