package worker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestRetryIsChargedAgain fails a task's first attempts: each attempt is charged, since
// each has really run.
func TestRetryIsChargedAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(10, time.Hour), func(t *testing.T, w *world) {
		var charged []string
		w.result = func(ctx context.Context, _ *asynq.Task) error {
			grant, _ := worker.Grant(ctx)
			w.mu.Lock()
			defer w.mu.Unlock()
			charged = append(charged, grant.Job.ID)
			if len(charged) < 3 {
				return errBroken
			}
			return nil
		}
		w.serve(asynq.Config{Concurrency: 1, RetryDelayFunc: asSoonAsPossible})
		w.enqueue(0, "acme", 2)
		w.drained(1, time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		if got, want := strings.Join(charged, " "),
			"asynq:default/000000/0 asynq:default/000000/1 asynq:default/000000/2"; got != want {
			t.Errorf("charged to %q, want %q", got, want)
		}
		if used, _ := w.used("acme"); used != 6 {
			t.Errorf("%d units are used, want 3 attempts of 2", used)
		}
	})
}

// TestPanicAfterTheGrant_F34 lets a handler panic: asynq retries it, the process
// lives, and the charge stays.
func TestPanicAfterTheGrant_F34(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(10, time.Hour), func(t *testing.T, w *world) {
		w.result = func(ctx context.Context, _ *asynq.Task) error {
			if retried, _ := asynq.GetRetryCount(ctx); retried == 0 {
				panic("handler's mistake")
			}
			return nil
		}
		var user asked
		w.serve(user.config())
		id := w.enqueue(0, "acme", 1)
		w.until("the task has failed", time.Second, w.in(id, asynq.TaskStateRetry))
		info := w.task(id)
		if info.Retried != 1 || !strings.Contains(info.LastErr, "handler's mistake") {
			t.Errorf("retried %d times with %q, want once with the panic's text", info.Retried, info.LastErr)
		}
		if _, _, errHandler := user.errors(); len(errHandler) != 1 || !asynq.IsPanicError(errHandler[0]) {
			t.Errorf("ErrorHandler got %v, want asynq's panic error", errHandler)
		}
		if used, _ := w.used("acme"); used != 1 {
			t.Errorf("%d units are used after the panic, want 1", used)
		}
		w.drained(1, time.Minute)
		if used, _ := w.used("acme"); used != 2 {
			t.Errorf("%d units are used after the retry, want 2", used)
		}
		w.archived(0)
	})
}

// TestPanicOnTheLastAttempt: the user's own number of retries holds for panics too. The
// middleware does not see the attempt end, and no spare retry must run the handler, whatever the panic says.
func TestPanicOnTheLastAttempt(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"always", "throttled: by the upstream", "worker: the last of its kind"} {
		t.Run(text, func(t *testing.T) {
			inBubble(t, perTenant(100, time.Hour), func(t *testing.T, w *world) {
				w.result = func(context.Context, *asynq.Task) error { panic(text) }
				w.serve(asynq.Config{Concurrency: 1, RetryDelayFunc: asSoonAsPossible})
				id := w.enqueue(0, "acme", 1, asynq.MaxRetry(2))
				w.until("the task is archived", time.Minute, w.in(id, asynq.TaskStateArchived))
				if got := w.ran(id); got != 3 {
					t.Errorf("its handler was called %d times, want 3", got)
				}
				if got := w.task(id).LastErr; !strings.Contains(got, text) {
					t.Errorf("the last error is %q, want the panic's text in it", got)
				}
			})
		})
	}
}

// TestSameIDInTwoQueues_F43 keeps the reservations of two tasks apart.
func TestSameIDInTwoQueues_F43(t *testing.T) {
	t.Parallel()
	inFarAhead(t, perTenant(1, 10*time.Second), func(t *testing.T, w *world) {
		var jobs []string
		w.result = func(ctx context.Context, _ *asynq.Task) error {
			grant, _ := worker.Grant(ctx)
			w.mu.Lock()
			defer w.mu.Unlock()
			jobs = append(jobs, grant.Job.ID)
			return nil
		}
		w.serve(asynq.Config{Concurrency: 4, Queues: map[string]int{"default": 1, "bulk": 1}})
		w.enqueue(1, "acme", 1)
		w.drained(1, time.Second)
		w.enqueue(0, "acme", 1, asynq.Queue("default"))
		w.enqueue(0, "acme", 1, asynq.Queue("bulk"))
		w.until("both are booked", time.Second, func() bool { _, booked := w.used("acme"); return booked == 2 })
		w.until("both have run", time.Minute, func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(jobs) == 3
		})
		w.withinLimits()
		if got := strings.Join(jobs, " "); !strings.Contains(got, "default/000000/0") ||
			!strings.Contains(got, "bulk/000000/0") {
			t.Errorf("charged to %q, want one job of each queue", got)
		}
		if gap := w.starts[2].At.Sub(w.starts[1].At); gap != 10*time.Second {
			t.Errorf("started %s apart, want one window", gap)
		}
	})
}

// TestSuccessLeavesTheCharge runs tasks until their window ends: put-backs neither charge a
// task twice nor give a charge back.
func TestSuccessLeavesTheCharge(t *testing.T) {
	t.Parallel()
	inFarAhead(t, []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.Per(5, time.Minute)}}},
		func(t *testing.T, w *world) {
			w.serve(asynq.Config{Concurrency: 4})
			for n := range 12 {
				w.enqueue(n, "acme", 1)
			}
			for i, want := range [][2]int64{{5, 7}, {5, 2}, {2, 0}} {
				if i > 0 {
					time.Sleep(time.Minute)
				}
				w.until("this window's tasks have run", 2*time.Second, func() bool {
					used, booked := w.used("acme")
					return used == want[0] && booked == want[1]
				})
			}
			w.drained(12, time.Second)
			w.checked(12)
		})
}
