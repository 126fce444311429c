package worker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// set sets the limits of a scope key, or takes them back if there are none.
func (w *world) set(scope, key string, limits ...throttle.Limit) {
	w.t.Helper()
	var err error
	if len(limits) == 0 {
		err = inspect.New(w.throttle).ResetLimits(w.t.Context(), scope, key)
	} else {
		err = inspect.New(w.throttle).SetLimits(w.t.Context(), scope, key, limits)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// TestSetLimits_Zero lowers a limit to 0 while tasks wait, booked, in line and inside
// their handlers: no task starts, and none is ended. When the limit is raised, they run at once.
func TestSetLimits_Zero(t *testing.T) {
	t.Parallel()
	quick := asynq.Config{Concurrency: 16}
	slow := asynq.Config{Concurrency: 16, TaskCheckInterval: 250 * time.Millisecond, DelayedTaskCheckInterval: time.Second}
	rows := []struct {
		name       string
		scope, key string
		zero       time.Duration // for how long
		raise      []throttle.Limit
		tasks      int
		stay       int // tasks that wait in their handlers
		cfg        asynq.Config
	}{
		{"of a key, reset", "tenant", "acme", 20 * time.Second, nil, 60, 3, quick},
		{"of a key, raised", "tenant", "acme", 20 * time.Second, []throttle.Limit{throttle.PerSecond(100)}, 60, 3, quick},
		{"of all keys, reset", "tenant", "", 20 * time.Second, nil, 60, 3, quick},
		{"of all keys, lifted", "tenant", "", 20 * time.Second,
			[]throttle.Limit{throttle.Per(throttle.Unlimited, time.Second)}, 60, 3, quick},
		{"of all, reset", throttle.Global, "", 20 * time.Second, nil, 60, 3, quick},
		{"for longer than a lane is set aside", "tenant", "acme", 5*time.Minute + 10*time.Second, nil, 10, 1, slow},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if row.zero > time.Minute {
				longtest.Unwatched(t)
			}
			scopes := append(perTenant(50, time.Second),
				throttle.Scope{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerSecond(1000)}})
			inBubble(t, scopes, func(t *testing.T, w *world) {
				w.serve(row.cfg)
				w.enqueue(9000, "acme", 50) // takes the first second
				w.drained(1, time.Second)
				for n := range row.tasks {
					w.enqueue(n, "acme", 1, asynq.MaxRetry(0))
				}
				for n := range row.stay {
					w.enqueuePlain(8000+n, "acme", 1, asynq.MaxRetry(0))
				}
				w.until("they are put back", 700*time.Millisecond,
					func() bool { return w.shaper.Stats().PutBack >= int64(row.tasks) })
				w.set(row.scope, row.key, throttle.PerSecond(0))
				time.Sleep(row.zero)
				if got := w.shaper.Stats().Granted; got != 1 {
					t.Errorf("%d tasks have started under a limit of 0", got-1)
				}
				w.archived(0)
				t.Logf("put back %.1f times each in %s", float64(w.shaper.Stats().PutBack)/float64(row.tasks), row.zero)
				raised := time.Now()
				w.set(row.scope, row.key, row.raise...)
				// The limit of 50 takes two windows.
				w.drained(row.tasks+row.stay+1, 2*time.Second+time.Second)
				first, last := w.makespanFrom(raised)
				t.Logf("started %s to %s after it was raised", first, last)
				if first < 0 || last > 2*time.Second {
					t.Errorf("started %s to %s after it was raised, want within 2s", first, last)
				}
				if st := w.shaper.Stats(); st.Ended != 0 || st.Granted != int64(row.tasks+row.stay+1) {
					t.Errorf("stats %+v, want nobody ended and each started once", st)
				}
				w.archived(0)
				if len(row.raise) == 0 {
					w.checked(row.tasks + row.stay + 1) // by the limits of the configuration
				}
			})
		})
	}
}

// makespanFrom returns the time from an instant until the first and the last start after it,
// without the very first start of the test.
func (w *world) makespanFrom(instant time.Time) (first, last time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first = time.Hour
	for _, start := range w.starts[1:] {
		first, last = min(first, start.At.Sub(instant)), max(last, start.At.Sub(instant))
	}
	return first, last
}

// putBacks is an observer that keeps the delays of put-backs.
type putBacks struct {
	told
	mu     sync.Mutex
	delays []time.Duration
	last   time.Time // when
}

func (p *putBacks) PutBack(b throttle.PutBack) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delays, p.last = append(p.delays, b.Delay), time.Now()
}

func (p *putBacks) seen() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]time.Duration(nil), p.delays...)
}

func (p *putBacks) lastly() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// inObserved runs a test whose throttle has a putBacks as its observer.
func inObserved(t *testing.T, scopes []throttle.Scope, test func(t *testing.T, w *world, seen *putBacks)) {
	t.Helper()
	seen := &putBacks{}
	inBubbleWith(t, scopes, &throttle.Options{Observer: seen}, func(t *testing.T, w *world) { test(t, w, seen) })
}

// unhurried makes asynq look for tasks only once a second, which saves time in long tests.
var unhurried = asynq.Config{Concurrency: 4, TaskCheckInterval: time.Second}

// growing returns the delays of a task that stays blocked.
func growing(first time.Duration, n int) []time.Duration {
	delays := make([]time.Duration, n)
	for i := range delays {
		delays[i] = min(first<<i, max(first, 5*time.Minute))
	}
	return delays
}

// TestSetLimits_BelowTheWeight sets a limit below the weight of a task that has been enqueued:
// the task is put back ever longer, never ended, and runs when it may.
func TestSetLimits_BelowTheWeight(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name     string
		backoff  time.Duration
		putBacks int
	}{
		{"default", 0, 10},
		{"a backoff above the longest", 6 * time.Minute, 1},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			inObserved(t, perTenant(10, time.Minute), func(t *testing.T, w *world, seen *putBacks) {
				w.shaper = w.newShaper(&worker.Options{Backoff: row.backoff})
				w.set("tenant", "acme", throttle.PerMinute(4))
				w.serve(unhurried)
				id := w.enqueue(0, "acme", 5, asynq.MaxRetry(0))
				w.until("it is put back", 3*time.Second, w.in(id, asynq.TaskStateRetry))
				light := w.enqueue(1, "acme", 4)
				first := max(row.backoff, worker.DefaultBackoff)
				want := growing(first, row.putBacks)
				for n := range row.putBacks {
					if n > 0 {
						time.Sleep(want[n-1])
					}
					w.until("it is put back again", 4*time.Second,
						func() bool { return len(seen.seen()) > n && w.in(id, asynq.TaskStateRetry)() })
					info := w.task(id)
					// asynq has whole seconds.
					if got := info.NextProcessAt.Sub(seen.lastly()); got < want[n] || got > want[n]+time.Second {
						t.Errorf("put-back %d: asynq brings it back after %s, want %s", n+1, got, want[n])
					}
					if info.Retried != 0 || info.LastErr != "throttled: it weighs more than a limit that was set allows" {
						t.Errorf("put-back %d: retried %d times with %q, want 0 and the same text each time", n+1,
							info.Retried, info.LastErr)
					}
				}
				if got := seen.seen(); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("put back for %v, want %v", got, want)
				}
				w.until("the light task is done", 4*time.Second, w.gone(light))
				if w.startOf(light) > 4*time.Second {
					t.Errorf("the light task started after %s, want at once", w.startOf(light))
				}
				w.archived(0)
				w.set("tenant", "acme")
				time.Sleep(want[len(want)-1])
				w.drained(2, 5*time.Second)
				if st := w.shaper.Stats(); w.ran(id) != 1 || st.Ended != 0 || st.PutBack != int64(row.putBacks) {
					t.Errorf("ran %d times, stats %+v; want once, nobody ended, put back %d times", w.ran(id), st, row.putBacks)
				}
				w.archived(0)
				w.checked(2)
			})
		})
	}
}

// TestSetLimits_BelowTheWeightAgain: after the task was granted, the delays begin with the
// shortest again.
func TestSetLimits_BelowTheWeightAgain(t *testing.T) {
	t.Parallel()
	inObserved(t, perTenant(10, time.Minute), func(t *testing.T, w *world, seen *putBacks) {
		w.set("tenant", "acme", throttle.PerMinute(4))
		w.once(func(context.Context) error {
			w.set("tenant", "acme", throttle.PerMinute(4))
			return worker.AskedToWait("tenant", time.Second, nil)
		})
		w.serve(unhurried)
		id := w.enqueue(0, "acme", 5)
		w.until("it is put back three times", 20*time.Second, func() bool { return len(seen.seen()) == 3 })
		w.set("tenant", "acme")
		w.until("it ran", 20*time.Second, func() bool { return w.ran(id) == 1 })
		w.until("it is put back twice more", 30*time.Second, func() bool { return len(seen.seen()) == 6 })
		w.set("tenant", "acme")
		w.drained(1, 20*time.Second)
		got := seen.seen()
		if want := growing(time.Second, 3); fmt.Sprint(got[:3]) != fmt.Sprint(want) ||
			fmt.Sprint(got[len(got)-2:]) != fmt.Sprint(want[:2]) {
			t.Errorf("put back for %v, want it to begin with 1s twice", got)
		}
		w.archived(0)
	})
}

// TestSetLimits_BelowTheWeightOfThoseWhoWait lowers a limit below the weight of tasks
// that are booked and in line already.
func TestSetLimits_BelowTheWeightOfThoseWhoWait(t *testing.T) {
	t.Parallel()
	inObserved(t, perTenant(10, 2*time.Second), func(t *testing.T, w *world, seen *putBacks) {
		const heavy, light = 6, 12
		w.serve(asynq.Config{Concurrency: 8})
		w.enqueue(9000, "acme", 10)
		w.drained(1, time.Second)
		time.Sleep(1200 * time.Millisecond) // so that the next are booked
		var ids []string
		for n := range heavy {
			ids = append(ids, w.enqueue(n, "acme", 5, asynq.MaxRetry(0)))
		}
		for n := range light {
			w.enqueue(100+n, "acme", 1)
		}
		w.until("they are put back", time.Second, func() bool { return w.shaper.Stats().PutBack == heavy+light })
		_, booked := w.used("acme")
		w.set("tenant", "acme", throttle.Per(4, 2*time.Second))
		w.drained(1+light, 30*time.Second)
		t.Logf("%d units were booked; the light ones ran within %s", booked, w.makespan())
		if got := w.makespan(); got > 15*time.Second {
			t.Errorf("the light ones took %s, want the 6s of their weights and what was booked", got)
		}
		time.Sleep(2 * time.Minute)
		for _, id := range ids {
			if w.ran(id) != 0 {
				t.Errorf("task %s ran, which weighs more than the limit", id)
			}
		}
		each := float64(len(seen.seen())-heavy-light) / heavy
		t.Logf("put back %.1f times each since then", each)
		if each > 12 { // 1+2+4+…+64 s, and again for the place they had
			t.Errorf("put back %.1f times each in 2 minutes, want ever less often", each)
		}
		w.archived(0)
		w.set("tenant", "acme")
		w.drained(1+light+heavy, 6*time.Minute)
		w.archived(0)
		w.checked(1 + light + heavy)
	})
}

// TestSetLimits_BelowTheWeightOnTheLastRetry: a task that asynq would archive waits inside its
// handler.
func TestSetLimits_BelowTheWeightOnTheLastRetry(t *testing.T) {
	t.Parallel()
	inObserved(t, perTenant(10, time.Minute), func(t *testing.T, w *world, seen *putBacks) {
		w.set("tenant", "", throttle.PerMinute(4))
		w.serve(unhurried)
		id := w.enqueuePlain(0, "acme", 5, asynq.MaxRetry(0))
		time.Sleep(100 * time.Second)
		if !w.in(id, asynq.TaskStateActive)() {
			t.Errorf("it is %s, want it to wait in its handler", w.task(id).State)
		}
		w.set("tenant", "")
		w.drained(1, 130*time.Second)
		if got := seen.seen(); len(got) != 0 || w.ran(id) != 1 {
			t.Errorf("put back for %v and ran %d times, want never and once", got, w.ran(id))
		}
		w.archived(0)
	})
}
