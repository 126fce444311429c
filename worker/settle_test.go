package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// once sets the result of the handlers: result is called only for the first run of each task.
func (w *world) once(result func(ctx context.Context) error) {
	w.result = func(ctx context.Context, _ *asynq.Task) error {
		if id, _ := asynq.GetTaskID(ctx); w.ran(id) > 1 {
			return nil
		}
		return result(ctx)
	}
}

// TestSettle_CorrectsTheChargeOnce reads how much of a tenant's limit is used after a
// handler has settled once, and after it has settled again.
func TestSettle_CorrectsTheChargeOnce(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name    string
		settled []int64
		want    int64
	}{
		{"never: the estimate stays", nil, 6},
		{"less", []int64{4}, 4},
		{"as much", []int64{6}, 6},
		{"more", []int64{9}, 9},
		{"more than the limit", []int64{25}, 25},
		{"nothing", []int64{0}, 0},
		{"less, then more", []int64{4, 9}, 4},
		{"more, then nothing", []int64{9, 0}, 9},
		{"as much, then less", []int64{6, 2}, 6},
		{"less, twice", []int64{4, 4}, 4},
		{"a mistake, then less", []int64{-1, 4}, 4},
		{"less, then a mistake", []int64{4, -1}, 4},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, perTenant(10, time.Hour), func(t *testing.T, w *world) {
				w.result = func(ctx context.Context, _ *asynq.Task) error {
					for _, actual := range row.settled {
						err := worker.Settle(ctx, actual)
						var invalid *throttle.InvalidJobError
						if actual < 0 != errors.As(err, &invalid) || actual >= 0 && err != nil {
							t.Errorf("settled with %d: %v", actual, err)
						}
					}
					return nil
				}
				w.serve(asynq.Config{Concurrency: 1})
				w.enqueue(0, "acme", 6)
				w.drained(1, time.Second)
				if used, booked := w.used("acme"); used != row.want || booked != 0 {
					t.Errorf("%d units are used and %d booked, want %d and 0", used, booked, row.want)
				}
			})
		})
	}
}

// TestCosts: a task costs another number of units in each scope, as the JobFunc says. It settles
// each scope, or the scopes without a cost of their own.
func TestCosts(t *testing.T) {
	t.Parallel()
	scopes := []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerHour(1000)}},
		{Name: "tenant", Limits: []throttle.Limit{throttle.PerHour(100)}},
		{Name: "domain", Limits: []throttle.Limit{throttle.PerHour(10)}},
	}
	rows := map[string]struct {
		settle func(ctx context.Context, s *worker.Shaper) error
		want   [3]int64 // of global, tenant and domain
	}{
		"as estimated": {func(context.Context, *worker.Shaper) error { return nil }, [3]int64{500, 7, 1}},
		"one scope": {func(ctx context.Context, _ *worker.Shaper) error {
			return worker.SettleCosts(ctx, map[string]int64{throttle.Global: 321})
		}, [3]int64{321, 7, 1}},
		"all": {func(ctx context.Context, s *worker.Shaper) error {
			return s.SettleCosts(ctx, map[string]int64{throttle.Global: 1, "tenant": 2, "domain": 3})
		}, [3]int64{1, 2, 3}},
		"the weight": {func(ctx context.Context,
			_ *worker.Shaper) error {
			return worker.Settle(ctx, 3)
		}, [3]int64{500, 3, 1}},
		"a refund": {func(ctx context.Context,
			_ *worker.Shaper) error {
			return worker.Refund(ctx)
		}, [3]int64{0, 0, 0}},
		"a refund of the shaper's": {func(ctx context.Context, s *worker.Shaper) error { return s.Refund(ctx) },
			[3]int64{0, 0, 0}},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, scopes, func(t *testing.T, w *world) {
				s := w.newShaperOf(func(context.Context, *asynq.Task) (throttle.Job, error) {
					return throttle.Job{
						Weight: 7, Costs: map[string]int64{throttle.Global: 500, "domain": 1},
						Keys: map[string]string{"tenant": "acme", "domain": "d"},
					}, nil
				}, nil)
				w.result = func(ctx context.Context, _ *asynq.Task) error { return row.settle(ctx, s) }
				w.serveWith(s, asynq.Config{Concurrency: 1})
				w.enqueue(0, "acme", 1)
				w.drained(1, time.Second)
				for i, key := range [][2]string{{throttle.Global, ""}, {"tenant", "acme"}, {"domain", "d"}} {
					if used, booked := w.usedOf(key[0], key[1]); used != row.want[i] || booked != 0 {
						t.Errorf("%d units of %s are used and %d booked, want %d and 0", used, key[0], booked, row.want[i])
					}
				}
				if err := s.SettleCosts(t.Context(), nil); !errors.Is(err, worker.ErrNoGrant) {
					t.Errorf("outside of a handler: got %v, want ErrNoGrant", err)
				}
			})
		})
	}
}

// TestSettle_FreedRoomIsUsedAtOnce lets a task wait for the end of the window. Then the task
// before it settles for less, and the waiting task runs at once.
func TestSettle_FreedRoomIsUsedAtOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(10, time.Minute), func(t *testing.T, w *world) {
		w.handle = 3 * time.Second
		settled := make(map[string]time.Time)
		w.result = func(ctx context.Context, _ *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			w.mu.Lock()
			settled[id] = time.Now()
			w.mu.Unlock()
			return worker.Settle(ctx, 4)
		}
		w.serve(asynq.Config{Concurrency: 4})
		first := w.enqueue(0, "acme", 10)
		w.until("the first runs", time.Second, func() bool { return w.ran(first) == 1 })
		fits := w.enqueue(1, "acme", 6)
		w.until("the next is put back", time.Second, w.in(fits, asynq.TaskStateRetry))
		waits := w.enqueue(2, "acme", 6)
		w.until("the last is put back", time.Second, w.in(waits, asynq.TaskStateRetry))
		w.drained(2, 30*time.Second)
		w.mu.Lock()
		after := w.began.Add(w.waits[fits]).Sub(settled[first])
		w.mu.Unlock()
		t.Logf("started %s after the room was free", after)
		if after < 0 || after > time.Second {
			t.Errorf("the task that fits started %s after the room was free, want at most 1s", after)
		}
		// Of 10 units 4 are used, then 4 more: the last has to wait for the window.
		if used, _ := w.used("acme"); used != 8 || w.ran(waits) != 0 {
			t.Errorf("%d units are used and the last ran %d times, want 8 and 0", used, w.ran(waits))
		}
		w.drained(3, 2*time.Minute)
		if got := w.startOf(waits); got < time.Minute {
			t.Errorf("the last started after %s, want a window of 1h", got)
		}
		w.archived(0)
	})
}

// TestSettle_MoreHoldsLaterTasksBack lets a task take more than its estimate: later tasks
// wait for that debt.
func TestSettle_MoreHoldsLaterTasksBack(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(10, time.Minute), func(t *testing.T, w *world) {
		w.once(func(ctx context.Context) error {
			if grant, _ := worker.Grant(ctx); grant.Job.Weight == 2 {
				return worker.Settle(ctx, 10)
			}
			return nil
		})
		w.serve(asynq.Config{Concurrency: 4})
		w.enqueue(0, "acme", 2)
		w.drained(1, time.Second)
		later := w.enqueue(1, "acme", 1)
		w.drained(2, 2*time.Minute)
		if got := w.startOf(later); got < time.Minute || got > time.Minute+time.Second {
			t.Errorf("the later task started after %s, want when the debt has left the window of 1m", got)
		}
	})
}

// TestSettle_AfterTheContextIsOver settles from a handler that was cancelled or ran into
// its Timeout: the settlement counts all the same.
func TestSettle_AfterTheContextIsOver(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name string
		opts []asynq.Option
		end  func(w *world, id string)
	}{
		{"cancelled", nil, func(w *world, id string) {
			if err := w.tasks.CancelProcessing(id); err != nil {
				w.t.Fatal(err)
			}
		}},
		{"timeout", []asynq.Option{asynq.Timeout(2 * time.Second)}, func(*world, string) {}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, perTenant(10, time.Hour), func(t *testing.T, w *world) {
				settled := make(chan error, 1)
				w.result = func(ctx context.Context, _ *asynq.Task) error {
					<-ctx.Done()
					settled <- worker.Settle(ctx, 3)
					return ctx.Err()
				}
				w.serve(asynq.Config{Concurrency: 1,
					RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour }})
				id := w.enqueue(0, "acme", 6, row.opts...)
				w.until("it runs", time.Second, func() bool { return w.ran(id) == 1 })
				row.end(w, id)
				if err := <-settled; err != nil {
					t.Errorf("settled with %v", err)
				}
				if used, _ := w.used("acme"); used != 3 {
					t.Errorf("%d units are used, want the 3 it was settled with", used)
				}
			})
		})
	}
}

// TestSettle_OutsideOfAHandler has nothing to settle.
func TestSettle_OutsideOfAHandler(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(10, time.Hour), func(t *testing.T, w *world) {
		other := w.newShaper(nil)
		calls := map[string]func(ctx context.Context) error{
			"Settle":        func(ctx context.Context) error { return worker.Settle(ctx, 1) },
			"Refund":        worker.Refund,
			"Shaper.Settle": func(ctx context.Context) error { return other.Settle(ctx, 1) },
			"Shaper.Refund": other.Refund,
		}
		for name, call := range calls {
			if err := call(t.Context()); !errors.Is(err, worker.ErrNoGrant) {
				t.Errorf("%s outside of a handler: got %v, want ErrNoGrant", name, err)
			}
		}
		w.result = func(ctx context.Context, _ *asynq.Task) error {
			// In a handler, but not in one of this shaper.
			for _, name := range []string{"Shaper.Settle", "Shaper.Refund"} {
				if err := calls[name](ctx); !errors.Is(err, worker.ErrNoGrant) {
					t.Errorf("%s of a shaper that granted nothing: got %v, want ErrNoGrant", name, err)
				}
			}
			return nil
		}
		w.serve(asynq.Config{Concurrency: 1})
		w.enqueue(0, "acme", 6)
		w.drained(1, time.Second)
		if used, _ := w.used("acme"); used != 6 {
			t.Errorf("%d units are used, want the 6 it was charged", used)
		}
	})
}

// nested is a world in which each task passes two shapers, the second inside of the
// first, with a throttle of its own.
type nested struct {
	*world
	inner    *worker.Shaper
	throttle *throttle.Throttle // of the inner
}

// inNested runs a test with two shapers. The outer one, the world's, limits tenants to 100
// an hour; the inner one limits hosts. Tasks have their own weight for the outer shaper, and
// weigh 1 for the inner; all have the same host.
func inNested(t *testing.T, limit throttle.Limit, test func(t *testing.T, w *nested)) {
	t.Helper()
	inBubble(t, append(perTenant(100, time.Hour), throttle.Scope{Name: "host", Optional: true}),
		func(t *testing.T, w *world) {
			th, err := throttle.New("inner", w.client, []throttle.Scope{{Name: "host", Limits: []throttle.Limit{limit}}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			inner, err := worker.New(th, w.client, func(context.Context, *asynq.Task) (throttle.Job, error) {
				return throttle.Job{Weight: 1, Keys: map[string]string{"host": "mx"}}, nil
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(inner.Stop)
			w.shaper = w.newShaperOf(func(ctx context.Context, task *asynq.Task) (throttle.Job, error) {
				job, err := jobOf(ctx, task)
				job.Keys["host"] = "mx"
				return job, err
			}, nil)
			handler := w.shaper.Wrap(inner.Wrap(asynq.HandlerFunc(w.process)))
			w.start(w.client,
				w.shaper.Configure(inner.Configure(asynq.Config{Concurrency: 4, RetryDelayFunc: asSoonAsPossible})), handler)
			test(t, &nested{w, inner, th})
		})
}

// usedInside returns how much of the inner shaper's limit the host has used.
func (w *nested) usedInside() int64 {
	w.t.Helper()
	usage, err := inspect.New(w.throttle).Usage(w.t.Context(), "host", "mx")
	if err != nil {
		w.t.Fatal(err)
	}
	return usage.Limits[0].Used
}

// TestSettle_TwoShapers settles each of two grants by itself.
func TestSettle_TwoShapers(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name         string
		settle       func(ctx context.Context, w *nested) error
		outer, inner int64
	}{
		{"none", func(context.Context, *nested) error { return nil }, 5, 1},
		{"Settle is the innermost's", func(ctx context.Context, _ *nested) error { return worker.Settle(ctx, 3) }, 5, 3},
		{"Refund is the innermost's", func(ctx context.Context, _ *nested) error { return worker.Refund(ctx) }, 5, 0},
		{"the outer's", func(ctx context.Context, w *nested) error { return w.shaper.Settle(ctx, 3) }, 3, 1},
		{"the outer's refund", func(ctx context.Context, w *nested) error { return w.shaper.Refund(ctx) }, 0, 1},
		{"the inner's", func(ctx context.Context, w *nested) error { return w.inner.Settle(ctx, 3) }, 5, 3},
		{"each", func(ctx context.Context, w *nested) error {
			return errors.Join(w.inner.Settle(ctx, 2), w.shaper.Settle(ctx, 7))
		}, 7, 2},
		{"the innermost's is settled already", func(ctx context.Context, w *nested) error {
			return errors.Join(w.inner.Settle(ctx, 2), worker.Settle(ctx, 9))
		}, 5, 2},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			inNested(t, throttle.PerHour(10), func(t *testing.T, w *nested) {
				w.result = func(ctx context.Context, _ *asynq.Task) error { return row.settle(ctx, w) }
				w.enqueue(0, "acme", 5)
				w.drained(1, time.Second)
				if used, _ := w.used("acme"); used != row.outer || w.usedInside() != row.inner {
					t.Errorf("%d units of the outer and %d of the inner are used, want %d and %d", used,
						w.usedInside(), row.outer, row.inner)
				}
			})
		})
	}
}

// TestInnerPutBackRefundsTheOuter: the inner shaper puts back a task that the outer one has
// granted. The task takes nothing of the outer limit until it runs.
func TestInnerPutBackRefundsTheOuter(t *testing.T) {
	t.Parallel()
	inNested(t, throttle.Per(1, 10*time.Second), func(t *testing.T, w *nested) {
		w.enqueue(0, "first", 5)
		w.drained(1, time.Second)
		putBack := w.enqueue(1, "second", 5)
		w.until("the second is put back by the inner", time.Second, w.in(putBack, asynq.TaskStateRetry))
		if used, booked := w.used("second"); used != 0 || booked != 0 {
			t.Errorf("%d units of the outer are used and %d booked by a task that the inner put back, want 0", used, booked)
		}
		if used, _ := w.used("first"); used != 5 {
			t.Errorf("%d units of the outer are used by the task that ran, want 5", used)
		}
		w.drained(2, time.Minute)
		w.checked(2)
		if used, _ := w.used("second"); used != 5 || w.startOf(putBack) < 10*time.Second {
			t.Errorf("%d units of the outer are used after its run at %s, want 5 and 10s", used, w.startOf(putBack))
		}
		if outer, inner := w.shaper.Stats().PutBack, w.inner.Stats().PutBack; outer != 0 || inner != 1 {
			t.Errorf("put back %d times by the outer and %d by the inner, want 0 and 1", outer, inner)
		}
	})
}

// TestInnerWaitIsNotTheOuters lets the handler ask to wait for a scope that both shapers have:
// the inner shaper heeds the wait, whether it enforces the scope or not.
func TestInnerWaitIsNotTheOuters(t *testing.T) {
	t.Parallel()
	for _, mode := range []throttle.Mode{throttle.Enforce, throttle.Shadow, throttle.Off} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			inNested(t, throttle.PerHour(10), func(t *testing.T, w *nested) {
				if err := inspect.New(w.throttle).SetMode(t.Context(), "host", mode); err != nil {
					t.Fatal(err)
				}
				w.once(func(context.Context) error { return worker.AskedToWait("host", 20*time.Second, nil) })
				id := w.enqueue(0, "acme", 5)
				w.until("it is put back", 2*time.Second, w.in(id, asynq.TaskStateRetry))
				if used, booked := w.used("acme"); used != 0 || booked != 0 {
					t.Errorf("%d units of the outer are used and %d booked, want 0", used, booked)
				}
				state, err := inspect.New(w.world.throttle).Usage(t.Context(), "host", "mx")
				if err != nil || !state.Paused.IsZero() {
					t.Errorf("the outer's scope is paused until %s (%v), want only the inner's", state.Paused, err)
				}
				w.drained(1, time.Minute)
				if got := w.startOf(id); got < 20*time.Second || w.ran(id) != 2 {
					t.Errorf("ran %d times, the last after %s; want twice, the second after 20s", w.ran(id), got)
				}
				if used, _ := w.used("acme"); used != 5 {
					t.Errorf("%d units of the outer are used, want 5", used)
				}
				if outer, inner := w.shaper.Stats().PutBack, w.inner.Stats().PutBack; outer != 0 || inner != 1 {
					t.Errorf("put back %d times by the outer and %d by the inner, want 0 and 1", outer, inner)
				}
			})
		})
	}
}

// TestOuterWaitIsHeeded lets a handler ask to wait for a scope that only the outer of two
// shapers has.
func TestOuterWaitIsHeeded(t *testing.T) {
	t.Parallel()
	inNested(t, throttle.PerHour(10), func(t *testing.T, w *nested) {
		w.once(func(context.Context) error { return worker.AskedToWait("tenant", 20*time.Second, nil) })
		id := w.enqueue(0, "acme", 5)
		w.until("it is put back", 2*time.Second, w.in(id, asynq.TaskStateRetry))
		if used, _ := w.used("acme"); used != 0 {
			t.Errorf("%d units of the outer are used, want 0", used)
		}
		w.drained(1, time.Minute)
		if got := w.startOf(id); got < 20*time.Second || got > 21*time.Second || w.shaper.Stats().PutBack != 1 {
			t.Errorf("started after %s, put back %d times; want 20s, once", got, w.shaper.Stats().PutBack)
		}
		w.archived(0)
	})
}

// TestUntouched_IsRefundedAndRetried fails tasks before they touch the upstream: each failure
// counts as a failure, and no attempt is charged.
func TestUntouched_IsRefundedAndRetried(t *testing.T) {
	t.Parallel()
	type enqueue = func(w *world, n int, tenant string, weight int64, opts ...asynq.Option) string
	rows := []struct {
		name    string
		enqueue enqueue
		retries int
	}{
		{"NewTask", (*world).enqueue, 2},
		{"NewTask, MaxRetry 0", (*world).enqueue, 0},
		{"asynq's", (*world).enqueuePlain, 2},
		{"asynq's, MaxRetry 0", (*world).enqueuePlain, 0},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, perTenant(5, time.Hour), func(t *testing.T, w *world) {
				w.result = func(context.Context, *asynq.Task) error {
					return fmt.Errorf("connect: %w", worker.Untouched(errBroken))
				}
				var user asked
				cfg := user.config()
				cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return 2 * time.Second }
				w.serve(cfg)
				// A second attempt that is charged would have no room.
				id := row.enqueue(w, 0, "acme", 5, asynq.MaxRetry(row.retries))
				for n := range row.retries {
					w.until("it has failed", time.Minute,
						func() bool { return w.in(id, asynq.TaskStateRetry)() && w.task(id).Retried == n+1 })
					if used, booked := w.used("acme"); used != 0 || booked != 0 {
						t.Errorf("%d units are used and %d booked after failure %d, want 0", used, booked, n+1)
					}
					if got := w.task(id).LastErr; got != "connect: "+errBroken.Error() {
						t.Errorf("the last error is %q, want the handler's", got)
					}
				}
				w.until("it is archived", time.Minute, w.in(id, asynq.TaskStateArchived))
				if used, booked := w.used("acme"); used != 0 || booked != 0 {
					t.Errorf("%d units are used and %d booked at the end, want 0", used, booked)
				}
				info := w.task(id)
				if !strings.HasPrefix(info.LastErr, "connect: "+errBroken.Error()) || info.Retried != row.retries ||
					w.ran(id) != row.retries+1 {
					t.Errorf("retried %d times, ran %d times, ended with %q; want %d, %d and the handler's error",
						info.Retried, w.ran(id), info.LastErr, row.retries, row.retries+1)
				}
				isFailure, _, told := user.errors()
				if len(told) != row.retries+1 || !isAny(told, errBroken) || len(isFailure) < row.retries {
					t.Errorf("ErrorHandler got %d errors, want %d failures: %v", len(told), row.retries+1, told)
				}
				if st := w.shaper.Stats(); st.PutBack != 0 || st.Ended != 0 {
					t.Errorf("stats %+v, want nobody put back or ended", st)
				}
			})
		})
	}
}

// TestUntouched_AfterSettle keeps what the handler settled itself.
func TestUntouched_AfterSettle(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(10, time.Hour), func(t *testing.T, w *world) {
		w.once(func(ctx context.Context) error {
			if err := worker.Settle(ctx, 3); err != nil {
				t.Error(err)
			}
			return worker.Untouched(errBroken)
		})
		w.serve(asynq.Config{Concurrency: 1,
			RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Minute }})
		id := w.enqueue(0, "acme", 6)
		w.until("it has failed", time.Second, w.in(id, asynq.TaskStateRetry))
		if used, _ := w.used("acme"); used != 3 {
			t.Errorf("%d units are used, want the 3 that the handler has settled", used)
		}
	})
}

// TestSettleAfterARelease: a task that slept until its start when its shaper stopped is granted that
// start by the next shaper, a microsecond later. Its settlement then counts.
func TestSettleAfterARelease(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(10, 10*time.Second), func(t *testing.T, w *world) {
		w.result = func(ctx context.Context, _ *asynq.Task) error { return worker.Settle(ctx, 1) }
		options := &worker.Options{MaxWait: 2 * time.Second}
		first := w.newShaper(options)
		server := w.serveWith(first, asynq.Config{Concurrency: 8})
		w.enqueue(0, "acme", 10)
		w.drained(1, time.Minute)
		w.enqueue(1, "acme", 10)
		w.until("it sleeps in its handler", 20*time.Second,
			func() bool { return time.Since(w.began) > 9*time.Second && w.in("000001", asynq.TaskStateActive)() })
		first.Stop()
		server.Shutdown()
		if w.ran("000001") > 0 {
			t.Fatal("it has run already")
		}
		if err := w.tasks.RunTask("default", "000001"); err != nil { // so that it comes before its slot
			t.Fatal(err)
		}
		w.serveWith(w.newShaper(options), asynq.Config{Concurrency: 8})
		w.drained(2, time.Minute)
		if used, booked := w.used("acme"); used != 1 || booked != 0 {
			t.Errorf("used %d, booked %d, want 1 and none", used, booked)
		}
	})
}
