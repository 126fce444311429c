package worker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/lua"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// record has the starts and ends of handlers, as they note them, whatever the throttle counts.
type record struct {
	mu   sync.Mutex
	runs []throttletest.Start
}

// handler returns a handler that runs for as long as a task takes, and notes when it began and
// ended.
func (r *record) handler(w *world, takes func(id string) time.Duration) asynq.Handler {
	return r.handlerUntil(w, func(_ context.Context, id string) { time.Sleep(takes(id)) })
}

// handlerUntil returns a handler that runs until a function returns, and notes when it began and
// ended.
func (r *record) handlerUntil(w *world, run func(ctx context.Context, id string)) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		job, err := jobOf(ctx, task)
		if err != nil {
			return err
		}
		id, _ := asynq.GetTaskID(ctx)
		r.mu.Lock()
		n := len(r.runs)
		r.runs = append(r.runs, throttletest.Start{At: time.Now(), Weight: job.Weight, Keys: job.Keys})
		r.mu.Unlock()
		run(ctx, id)
		r.mu.Lock()
		r.runs[n].End = time.Now()
		r.mu.Unlock()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ended[id] = time.Now()
		return nil
	})
}

func (r *record) checked(t *testing.T, scopes []throttle.Scope, want int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.runs) != want {
		t.Errorf("%d runs, want %d", len(r.runs), want)
	}
	for _, over := range throttletest.Check(scopes, r.runs) {
		t.Error(over)
	}
}

// used returns which part of the places was occupied, from the first start to the last.
func (r *record) used(units int64) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	first, last := r.runs[0].At, r.runs[0].At
	busy := 0.0
	for _, run := range r.runs {
		busy += float64(run.Weight) * run.End.Sub(run.At).Seconds()
		if run.At.Before(first) {
			first = run.At
		}
		if run.At.After(last) {
			last = run.At
		}
	}
	return busy / (float64(units) * last.Sub(first).Seconds())
}

// TestRunningDrain drains tasks of several weights, more than there are places, on two servers.
func TestRunningDrain(t *testing.T) {
	t.Parallel()
	tasks := 300
	if longtest.Watched {
		tasks = 100
	}
	scopes := []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.Running(10)}},
		{Name: "tenant", Limits: []throttle.Limit{throttle.Running(6), throttle.PerMinute(400)}},
	}
	inBubble(t, scopes, func(t *testing.T, w *world) {
		var r record
		random := rand.New(rand.NewPCG(1, 2))
		took := make(map[string]time.Duration)
		for n := range tasks {
			id := w.enqueue(n, fmt.Sprintf("t%d", n%4), 1+random.Int64N(5))
			took[id] = time.Duration(200+random.IntN(800)) * time.Millisecond
		}
		handler := r.handler(w, func(id string) time.Duration { return took[id] })
		second := w.newShaper(nil)
		for _, s := range []*worker.Shaper{w.shaper, second} {
			w.start(w.client, s.Configure(asynq.Config{Concurrency: 16}), s.Wrap(handler))
		}
		w.drained(tasks, time.Hour)
		r.checked(t, scopes, tasks)
		putBacks := float64(w.shaper.Stats().PutBack+second.Stats().PutBack) / float64(tasks)
		t.Logf("put back %.3f per task, %.3f of the places used", putBacks, r.used(10))
		if most := longtest.Of(1.2, 1.05); putBacks > most {
			t.Errorf("put back %.3f per task, want at most %v", putBacks, most)
		}
	})
}

// TestRunningEndsHowever: a place is given back when its handler returns an error, panics, or
// returns after its Timeout.
func TestRunningEndsHowever(t *testing.T) {
	t.Parallel()
	scopes := []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.Running(1)}}}
	ends := map[string]func(ctx context.Context) error{
		"error":     func(context.Context) error { return errors.New("no") },
		"panic":     func(context.Context) error { panic("no") },
		"timeout":   func(context.Context) error { time.Sleep(3 * time.Second); return nil },
		"untouched": func(context.Context) error { return worker.Untouched(errors.New("no")) },
		"refund":    worker.Refund,
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, scopes, func(t *testing.T, w *world) {
				var calls atomic.Int64
				handler := asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
					if calls.Add(1) == 1 {
						return end(ctx)
					}
					return nil
				})
				w.start(w.client, w.shaper.Configure(asynq.Config{Concurrency: 4}), w.shaper.Wrap(handler))
				w.enqueue(0, "acme", 1, asynq.MaxRetry(0), asynq.Timeout(2*time.Second))
				time.Sleep(100 * time.Millisecond)
				w.enqueue(1, "acme", 1)
				w.until("the second has run", 4*time.Second, func() bool { return calls.Load() == 2 })
				w.until("the place is free", time.Second, func() bool { used, booked := w.used("acme"); return used+booked == 0 })
			})
		})
	}
}

// TestRunningIsRenewed: a handler that runs for many leases keeps its place.
func TestRunningIsRenewed(t *testing.T) {
	t.Parallel()
	scopes := []throttle.Scope{{Name: "tenant",
		Limits: []throttle.Limit{{Units: 2, Running: true, Lease: 2 * time.Second}}}}
	inBubble(t, scopes, func(t *testing.T, w *world) {
		var r record
		handler := r.handler(w, func(string) time.Duration { return 9 * time.Second })
		w.start(w.client, w.shaper.Configure(asynq.Config{Concurrency: 8}), w.shaper.Wrap(handler))
		for n := range 6 {
			w.enqueue(n, "acme", 1)
		}
		w.drained(6, time.Minute)
		r.checked(t, scopes, 6)
		if lost := w.shaper.Stats().Lost; lost != 0 {
			t.Errorf("%d places were lost, want none", lost)
		}
	})
}

// TestRunningIsLost: a handler whose lease cannot be renewed is told before the lease is over,
// by its own clock, whatever Redis does, so that no other task runs beside it.
func TestRunningIsLost(t *testing.T) {
	t.Parallel()
	const lease, away = 3 * time.Second, 80 * time.Second
	goAway := map[string]func(link *wire, mended <-chan struct{}){
		"refuses":        func(link *wire, _ <-chan struct{}) { link.cut() },
		"does not reply": func(link *wire, mended <-chan struct{}) { link.before(func(redis.Cmder) { <-mended }) },
	}
	for name, goAway := range goAway {
		for _, keep := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, KeepRunning %t", name, keep), func(t *testing.T) {
				t.Parallel()
				scopes := []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{{Units: 1, Running: true, Lease: lease}}}}
				inBubble(t, scopes, func(t *testing.T, w *world) {
					link, mended := newWire(w), make(chan struct{})
					th, err := throttle.New("world", link.client, scopes, &throttle.Options{Logger: zap.NewNop()})
					if err != nil {
						t.Fatal(err)
					}
					s, err := worker.New(th, w.client, jobOf, &worker.Options{KeepRunning: keep})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(s.Stop)
					var r record
					causes := make(chan error, 2)
					long := r.handlerUntil(w, func(ctx context.Context, _ string) {
						select {
						case <-ctx.Done():
						case <-time.After(away + 10*time.Second):
						}
						causes <- context.Cause(ctx)
					})
					first := w.start(w.client,
						s.Configure(asynq.Config{Concurrency: 1, Queues: map[string]int{"first": 1}}), s.Wrap(long))
					w.enqueue(0, "acme", 1, asynq.Queue("first"), asynq.MaxRetry(0))
					time.Sleep(500 * time.Millisecond)
					w.start(w.client, w.shaper.Configure(asynq.Config{Concurrency: 1}),
						w.shaper.Wrap(r.handler(w, func(string) time.Duration { return time.Minute })))
					w.enqueue(1, "acme", 1)
					goAway(link, mended)
					time.Sleep(away)
					link.mend()
					close(mended)
					cause := <-causes
					if lost := errors.Is(cause, worker.ErrPlaceLost); lost == keep {
						t.Errorf("the cause is %v", cause)
					}
					w.until("the second has run", 3*time.Minute, func() bool { return w.gone("000001")() })
					if lost := s.Stats().Lost; lost != 1 {
						t.Errorf("%d places were lost, want 1", lost)
					}
					if beside := r.beside(); (beside > 0) != keep {
						t.Errorf("another task ran beside it for %s", beside)
					}
					first.Shutdown()
				})
			})
		}
	}
}

// beside returns for how long two tasks ran at once.
func (r *record) beside() (d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := 1; i < len(r.runs); i++ {
		d += max(0, r.runs[i-1].End.Sub(r.runs[i].At))
	}
	return d
}

// TestResultDoesNotWaitForItsPlace: a handler that ends shortly before its Timeout has
// succeeded, however long Redis takes to hear that its place is free.
func TestResultDoesNotWaitForItsPlace(t *testing.T) {
	t.Parallel()
	scopes := []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.Running(1)}}}
	inBubble(t, scopes, func(t *testing.T, w *world) {
		var slow atomic.Bool
		link := newWire(w)
		link.before(func(redis.Cmder) {
			if slow.Load() {
				time.Sleep(200 * time.Millisecond)
			}
		})
		th, err := throttle.New("world", link.client, scopes, &throttle.Options{Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		s, err := worker.New(th, w.client, jobOf, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		handler := asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			time.Sleep(900 * time.Millisecond)
			slow.Store(true)
			return nil
		})
		w.start(w.client, s.Configure(asynq.Config{Concurrency: 1}), s.Wrap(handler))
		const tasks = 5
		for n := range tasks {
			slow.Store(false)
			id := w.enqueue(n, "acme", 1, asynq.MaxRetry(0), asynq.Timeout(time.Second))
			w.until("it has ended", 10*time.Second, func() bool { return w.gone(id)() || w.in(id, asynq.TaskStateArchived)() })
			w.until("its place is free", 2*time.Second, func() bool { used, _ := w.used("acme"); return used == 0 })
		}
		w.archived(0)
	})
}

// TestRunningAsksSeldomForALease: a task that gets the place of a dead process when its lease is
// over does not ask again and again in the last moments before.
func TestRunningAsksSeldomForALease(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	scopes := []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{{Units: 1, Running: true, Lease: lease}}}}
	inBubble(t, scopes, func(t *testing.T, w *world) {
		var ran atomic.Int64
		handler := asynq.HandlerFunc(func(context.Context,
			*asynq.Task) error {
			ran.Store(time.Now().UnixMicro())
			return nil
		})
		s := w.newShaper(&worker.Options{MaxWait: time.Second})
		w.start(w.client, s.Configure(asynq.Config{Concurrency: 4}), s.Wrap(handler))
		time.Sleep(time.Second)
		dead, err := w.throttle.Reserve(t.Context(),
			throttle.Job{ID: "dead", Weight: 1, Keys: map[string]string{"tenant": "acme"}})
		if err != nil || dead.Outcome != throttle.Granted {
			t.Fatal(dead, err)
		}
		over := time.Now().Add(lease)
		time.Sleep(lease - 100*time.Millisecond)
		w.enqueue(0, "acme", 1)
		w.until("the task has run", 5*time.Second, func() bool { return ran.Load() != 0 })
		if late := time.UnixMicro(ran.Load()).Sub(over); late < 0 || late > time.Second {
			t.Errorf("it ran %s after the lease, want up to a second", late)
		}
		if putBack := s.Stats().PutBack; putBack > 3 {
			t.Errorf("it was put back %d times, want 3 at most", putBack)
		}
	})
}

// TestRunningCooldown: a handler says for how long its place is not used again.
func TestRunningCooldown(t *testing.T) {
	t.Parallel()
	scopes := []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.Running(1)}, Cooldown: time.Second}}
	inBubble(t, scopes, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var began, ended []time.Time
		handler := asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			mu.Lock()
			began = append(began, time.Now())
			first := len(began) == 1
			mu.Unlock()
			if first {
				if err := worker.Cooldown(ctx, "tenant", 5*time.Second); err != nil {
					t.Error(err)
				}
				if err := worker.Cooldown(ctx, "host", time.Hour); !errors.Is(err, worker.ErrNoGrant) {
					t.Errorf("for a scope that the job does not have: %v", err)
				}
			}
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			ended = append(ended, time.Now())
			mu.Unlock()
			return nil
		})
		w.start(w.client, w.shaper.Configure(asynq.Config{Concurrency: 4}), w.shaper.Wrap(handler))
		for n := range 3 {
			w.enqueue(n, "acme", 1)
		}
		w.until("all have run", time.Minute, func() bool { mu.Lock(); defer mu.Unlock(); return len(ended) == 3 })
		for i, least := range []time.Duration{5 * time.Second, time.Second} {
			if pause := began[i+1].Sub(ended[i]); pause < least || pause > least+500*time.Millisecond {
				t.Errorf("run %d began %s after the one before, want %s", i+2, pause, least)
			}
		}
	})
	if err := worker.Cooldown(t.Context(), "tenant", time.Second); !errors.Is(err, worker.ErrNoGrant) {
		t.Errorf("outside of a handler: %v", err)
	}
}

// handOvers returns the times from the end of each run to the start that took its place. Ends and
// starts pair in order, since each end frees a place that the next start takes.
func (r *record) handOvers(places int) (times []time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var starts, ends []time.Time
	for _, run := range r.runs {
		starts, ends = append(starts, run.At), append(ends, run.End)
	}
	slices.SortFunc(starts, time.Time.Compare)
	slices.SortFunc(ends, time.Time.Compare)
	for i := places; i < len(starts); i++ {
		times = append(times, starts[i].Sub(ends[i-places]))
	}
	return times
}

// TestRunningHandsOver: a place that is given back is used again soon, so that the places are
// well used even by short handlers.
func TestRunningHandsOver(t *testing.T) {
	t.Parallel()
	const places, servers = 10, 4
	tasks := longtest.Of(400, 1000)
	scopes := []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.Running(places)}}}
	inBubble(t, scopes, func(t *testing.T, w *world) {
		var r record
		random := rand.New(rand.NewPCG(1, 2))
		took := make(map[string]time.Duration)
		for n := range tasks {
			took[w.enqueue(n, "acme", 1)] = time.Duration(25+random.IntN(50)) * time.Millisecond
		}
		handler := r.handler(w, func(id string) time.Duration { return took[id] })
		var putBack int64
		shapers := []*worker.Shaper{w.shaper}
		for range servers - 1 {
			shapers = append(shapers, w.newShaper(nil))
		}
		for _, s := range shapers {
			w.start(w.client, s.Configure(asynq.Config{Concurrency: 16}), s.Wrap(handler))
		}
		w.drained(tasks, time.Hour)
		r.checked(t, scopes, tasks)
		for _, s := range shapers {
			putBack += s.Stats().PutBack
		}
		p99, used, putBacks := percentile(r.handOvers(places), 0.99), r.used(places), float64(putBack)/float64(tasks)
		t.Logf("a place is used again within %s (p99), %.3f of the places used, put back %.3f per task", p99, used, putBacks)
		if least, most := longtest.Of(0.88, 0.97), longtest.Of(1.2, 1.05); p99 > 20*time.Millisecond || used < least ||
			putBacks > most {
			t.Errorf("want within 20ms, %v and %v", least, most)
		}
	})
}

// TestRunningFairByTime: a tenant whose jobs take 20 ms and a tenant whose jobs take 500 ms occupy
// places for equal times, and a tenant that comes later has its part from then on.
func TestRunningFairByTime(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	const places, span, late = 8, 13 * time.Second, 5 * time.Second
	short := longtest.Of(60*time.Millisecond, 20*time.Millisecond)
	scopes := []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{throttle.Running(places)}},
		{Name: "tenant"}}
	lengths := map[string]time.Duration{"short": short, "long": 500 * time.Millisecond, "later": 500 * time.Millisecond}
	inBubbleWith(t, scopes, &throttle.Options{FairByTime: true}, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var runs []throttletest.Start
		handler := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			grant, _ := worker.Grant(ctx)
			began := time.Now()
			time.Sleep(lengths[grant.Job.Keys["tenant"]])
			mu.Lock()
			defer mu.Unlock()
			runs = append(runs, throttletest.Start{At: began, End: time.Now(), Weight: 1, Keys: grant.Job.Keys})
			return nil
		})
		w.start(w.client, w.shaper.Configure(asynq.Config{Concurrency: 32}), w.shaper.Wrap(handler))
		for n := range int(places * span / short / 2) { // half of the places for all the time
			w.enqueue(n, "short", 1)
			if n < 200 {
				w.enqueue(10_000+n, "long", 1)
			}
		}
		time.Sleep(late)
		came := time.Now()
		for n := range 200 {
			w.enqueue(20_000+n, "later", 1)
		}
		time.Sleep(span - late)
		mu.Lock()
		defer mu.Unlock()
		for _, over := range throttletest.Check(scopes, runs) {
			t.Error(over)
		}
		before, after := heldBy(runs, w.began.Add(time.Second), came),
			heldBy(runs, came.Add(2*time.Second), came.Add(span-late))
		t.Logf("place-seconds of two tenants %v, of three %v", before, after)
		for _, held := range []map[string]float64{before, after} {
			if jain := jain(slices.Collect(maps.Values(held))); jain < 0.99 {
				t.Errorf("Jain's index of %v is %.4f, want 0.99", held, jain)
			}
		}
		first := span
		for _, run := range runs {
			if run.Keys["tenant"] == "later" {
				first = min(first, run.At.Sub(came))
			}
		}
		if first > 500*time.Millisecond {
			t.Errorf("the newcomer's first start came after %s", first)
		}
	})
}

// heldBy returns for how many seconds each tenant occupied places between two instants.
func heldBy(runs []throttletest.Start, from, to time.Time) map[string]float64 {
	held := make(map[string]float64)
	for _, run := range runs {
		begin, end := run.At, run.End
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		if d := end.Sub(begin); d > 0 {
			held[run.Keys["tenant"]] += d.Seconds()
		}
	}
	return held
}

// TestRunningTaskBegunAfterStop: a server goes on for a moment after its shaper has stopped, and
// may begin a task then. Its lease is renewed as long as it runs.
func TestRunningTaskBegunAfterStop(t *testing.T) {
	t.Parallel()
	scopes := []throttle.Scope{{Name: "tenant",
		Limits: []throttle.Limit{{Units: 1, Running: true, Lease: 2 * time.Second}}}}
	inBubble(t, scopes, func(t *testing.T, w *world) {
		var r record
		handler := r.handler(w, func(string) time.Duration { return 9 * time.Second })
		first := w.start(w.client, w.shaper.Configure(asynq.Config{Concurrency: 8, ShutdownTimeout: time.Minute}),
			w.shaper.Wrap(handler))
		w.shaper.Stop()
		w.enqueue(0, "acme", 1)
		time.Sleep(10 * time.Millisecond)
		go first.Shutdown()
		second := w.newShaper(nil)
		time.Sleep(100 * time.Millisecond)
		w.enqueue(1, "acme", 1)
		w.start(w.client, second.Configure(asynq.Config{Concurrency: 8}), second.Wrap(handler))
		w.drained(2, time.Minute)
		r.checked(t, scopes, 2)
	})
}

// slowGivingBack delays the call that gives back the places of a job.
type slowGivingBack string

// DialHook implements redis.Hook.
func (slowGivingBack) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (s slowGivingBack) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	decides := redis.NewScript(lua.Reserve).Hash()
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); cmd.Name() == "evalsha" && args[1] != decides &&
			strings.Contains(fmt.Sprint(args[2:]...), string(s)) {
			time.Sleep(100 * time.Millisecond)
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (slowGivingBack) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestCooldownOfAnUntouchedTask: a handler that did not touch the upstream has set a cool-down all the same. The place
// is given back once, with the cool-down, even if the places of other tasks are just being given back.
func TestCooldownOfAnUntouchedTask(t *testing.T) {
	t.Parallel()
	scopes := []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.Running(1)}}}
	inBubble(t, scopes, func(t *testing.T, w *world) {
		client := bubbleClient(t, w.redis)
		client.AddHook(slowGivingBack(worker.JobID("default", "000000", 0)))
		th, err := throttle.New("world", client, scopes, &throttle.Options{Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		w.throttle = th
		w.shaper = w.newShaper(nil)
		var mu sync.Mutex
		began := make(map[string][]time.Duration)
		handler := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			tenant := task.Headers()["tenant"]
			mu.Lock()
			began[tenant] = append(began[tenant], time.Since(w.began))
			first := len(began[tenant]) == 1
			mu.Unlock()
			if tenant == "globex" || !first {
				time.Sleep(90 * time.Millisecond)
				return nil
			}
			time.Sleep(100 * time.Millisecond)
			if err := worker.Cooldown(ctx, "tenant", 5*time.Second); err != nil {
				t.Error(err)
			}
			return worker.Untouched(asynq.SkipRetry)
		})
		w.start(w.client, w.shaper.Configure(asynq.Config{Concurrency: 4}), w.shaper.Wrap(handler))
		for n, tenant := range []string{"globex", "acme", "acme"} {
			w.enqueue(n, tenant, 1)
		}
		w.until("all have run", time.Minute, func() bool { mu.Lock(); defer mu.Unlock(); return len(began["acme"]) == 2 })
		if second := began["acme"][1]; second < 5*time.Second {
			t.Errorf("the next began after %s, want the cool-down of 5s", second)
		}
	})
}

// TestCooldownForDays: a cool-down that is longer than any lease occupies no other task's place,
// even if all tasks end at the same time.
func TestCooldownForDays(t *testing.T) {
	t.Parallel()
	scopes := []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{{Units: 1, Running: true, Lease: time.Minute}}}}
	inBubble(t, scopes, func(t *testing.T, w *world) {
		handler := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			w.mu.Lock()
			w.runs[id]++
			w.waits[id] = time.Since(w.began)
			w.mu.Unlock()
			if task.Headers()["tenant"] == "slow" {
				if err := worker.Cooldown(ctx, "tenant", 100*24*time.Hour); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(time.Second - time.Since(w.began))
			return nil
		})
		w.start(w.client, w.shaper.Configure(asynq.Config{Concurrency: 8}), w.shaper.Wrap(handler))
		for n, tenant := range []string{"globex", "slow", "acme"} {
			w.enqueue(n, tenant, 1)
		}
		time.Sleep(500 * time.Millisecond)
		w.enqueue(3, "acme", 1)
		w.enqueue(4, "globex", 1)
		w.until("the others' next", 5*time.Minute, func() bool { return w.ran("000003") == 1 && w.ran("000004") == 1 })
		if last := max(w.startOf("000003"), w.startOf("000004")); last > 1500*time.Millisecond {
			t.Errorf("it begins after %s, the places were free after a second", last)
		}
	})
}

// TestCooldownBehindTheHandler: a goroutine that a handler has left behind may set a cool-down when
// the place has been given back already. The race detector would find a race.
func TestCooldownBehindTheHandler(t *testing.T) {
	t.Parallel()
	scopes := []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.Running(1)}}}
	inBubble(t, scopes, func(t *testing.T, w *world) {
		handler := asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			again := func() error { return worker.Cooldown(ctx, "tenant", time.Second) }
			go func() {
				for range 1000 {
					if err := again(); err != nil {
						t.Error(err)
					}
				}
			}()
			return again()
		})
		w.start(w.client, w.shaper.Configure(asynq.Config{Concurrency: 4}), w.shaper.Wrap(handler))
		for n := range 5 {
			w.enqueue(n, "acme", 1)
		}
		time.Sleep(20 * time.Second)
	})
}
