package worker_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// The tests in this file test asynq alone. They notice when a new version of asynq
// no longer does what this package relies on; each says where to look then.

var errNotYet = errors.New("not yet")

// bare runs one handler on asynq alone, with our usual intervals.
func (w *world) bare(cfg asynq.Config, handler asynq.HandlerFunc) {
	w.t.Helper()
	cfg.Concurrency = 2
	cfg.TaskCheckInterval, cfg.DelayedTaskCheckInterval = 50*time.Millisecond, 100*time.Millisecond
	w.start(w.client, cfg, handler)
}

func notAFailure(err error) bool { return !errors.Is(err, errNotYet) }

// TestUpstreamFact1_ArchivesBeforeAskingIsFailure: if this fails, the spare retry
// of NewTask and the waiting inside of handlers may no longer be needed.
func TestUpstreamFact1_ArchivesBeforeAskingIsFailure(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, time.Second), func(t *testing.T, w *world) {
		var asked atomic.Int64
		w.bare(asynq.Config{IsFailure: func(err error) bool { asked.Add(1); return notAFailure(err) }},
			func(context.Context, *asynq.Task) error { return errNotYet })
		id := w.enqueuePlain(0, "acme", 1, asynq.MaxRetry(0))
		w.until("the task is archived", time.Second, w.in(id, asynq.TaskStateArchived))
		if got := asked.Load(); got != 0 {
			t.Errorf("IsFailure was asked %d times, want never", got)
		}
	})
}

// TestUpstreamFact1_NoFailureKeepsTheRetries: if this fails, put-backs cost retries.
func TestUpstreamFact1_NoFailureKeepsTheRetries(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, time.Second), func(t *testing.T, w *world) {
		var calls atomic.Int64
		w.bare(asynq.Config{IsFailure: notAFailure, RetryDelayFunc: asSoonAsPossible},
			func(ctx context.Context, _ *asynq.Task) error {
				call := calls.Add(1)
				if retried, _ := asynq.GetRetryCount(ctx); retried != 0 {
					t.Errorf("call %d: retried %d times, want 0", call, retried)
				}
				if call <= 50 {
					return errNotYet
				}
				return nil
			})
		id := w.enqueuePlain(0, "acme", 1, asynq.MaxRetry(1))
		w.until("asynq is done with the task", 2*time.Minute, w.gone(id))
		w.archived(0)
		info, err := w.tasks.GetQueueInfo("default")
		if err != nil || info.ProcessedTotal != 1 || info.FailedTotal != 0 {
			t.Errorf("processed %d and failed %d (%v), want 1 and 0", info.ProcessedTotal, info.FailedTotal, err)
		}
	})
}

// TestUpstreamFact2_RetryTimesAreFlooredToSeconds: if this fails, fallbackDelay may
// be shorter.
func TestUpstreamFact2_RetryTimesAreFlooredToSeconds(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, time.Second), func(t *testing.T, w *world) {
		time.Sleep(300 * time.Millisecond)
		var putBack, again time.Time
		var mu sync.Mutex
		w.bare(asynq.Config{IsFailure: notAFailure,
			RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 1600 * time.Millisecond }},
			func(context.Context, *asynq.Task) error {
				mu.Lock()
				defer mu.Unlock()
				if putBack.IsZero() {
					putBack = time.Now()
					return errNotYet
				}
				again = time.Now()
				return nil
			})
		id := w.enqueuePlain(0, "acme", 1)
		w.until("the task is put back", time.Second, w.in(id, asynq.TaskStateRetry))
		at := w.task(id).NextProcessAt
		mu.Lock()
		first := putBack
		mu.Unlock()
		if want := first.Add(1600 * time.Millisecond).Truncate(time.Second); !at.Equal(want) {
			t.Errorf("comes again at %s, want the whole second %s", at, want)
		}
		w.until("asynq is done with the task", 5*time.Second, w.gone(id))
		mu.Lock()
		defer mu.Unlock()
		if early := putBack.Add(1600 * time.Millisecond).Sub(again); early <= 0 {
			t.Errorf("came %s after the time that was asked for, want before it", -early)
		}
	})
}

// TestUpstreamFact4_PutBackGoesToTheTail: if this fails, the order of tasks that
// become due in the same second has changed, and so have figures of drains.
func TestUpstreamFact4_PutBackGoesToTheTail(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, time.Second), func(t *testing.T, w *world) {
		putBack := make(map[string]bool)
		var order []string
		w.start(w.client, asynq.Config{
			Concurrency: 1, TaskCheckInterval: 50 * time.Millisecond, DelayedTaskCheckInterval: 100 * time.Millisecond,
			IsFailure: notAFailure, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 2 * time.Second },
		}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			w.mu.Lock()
			first := strings.HasPrefix(id, "r") && !putBack[id]
			if first {
				putBack[id] = true
			} else {
				order = append(order, id)
			}
			w.mu.Unlock()
			if first {
				return errNotYet
			}
			time.Sleep(300 * time.Millisecond)
			return nil
		}))
		for _, id := range []string{"r9", "r1", "r5"} {
			w.send(asynq.NewTask("mail", nil), asynq.TaskID(id))
		}
		w.until("three are put back", time.Second, func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(putBack) == 3
		})
		time.Sleep(time.Second)
		for _, id := range []string{"p0", "p1", "p2", "p3", "p4", "p5"} {
			w.send(asynq.NewTask("mail", nil), asynq.TaskID(id))
		}
		time.Sleep(5 * time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		if got, want := strings.Join(order, " "), "p0 p1 p2 p3 p4 p5 r1 r5 r9"; got != want {
			t.Errorf("ran %s, want %s: to the tail, sorted by ID", got, want)
		}
	})
}

// TestUpstreamFact6_ErrorHandlerHearsOfNonFailures: if this fails, Configure need
// not wrap the ErrorHandler.
func TestUpstreamFact6_ErrorHandlerHearsOfNonFailures(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, time.Second), func(t *testing.T, w *world) {
		var user asked
		var calls atomic.Int64
		w.bare(asynq.Config{
			IsFailure: notAFailure, RetryDelayFunc: asSoonAsPossible,
			ErrorHandler: user.config().ErrorHandler,
		}, func(context.Context, *asynq.Task) error {
			if calls.Add(1) <= 3 {
				return errNotYet
			}
			return nil
		})
		id := w.enqueuePlain(0, "acme", 1)
		w.until("asynq is done with the task", time.Minute, w.gone(id))
		if _, _, errs := user.errors(); len(errs) != 3 || !isAny(errs, errNotYet) {
			t.Errorf("ErrorHandler got %v, want each of three", errs)
		}
	})
}

// TestUpstreamHeadersAndPayloadSurvivePutBack_E10: the mark of the spare retries and
// the user's keys are in the headers. asynq also keeps what a handler writes into the
// headers, so this library must not write there.
func TestUpstreamHeadersAndPayloadSurvivePutBack_E10(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, time.Second), func(t *testing.T, w *world) {
		var calls atomic.Int64
		w.bare(asynq.Config{IsFailure: notAFailure, RetryDelayFunc: asSoonAsPossible},
			func(_ context.Context, task *asynq.Task) error {
				call := calls.Add(1)
				if task.Headers()["tenant"] != "acme" || string(task.Payload()) != "body" {
					t.Errorf("call %d: headers %v and payload %q, want them as they were sent", call, task.Headers(), task.Payload())
				}
				if call == 1 {
					task.Headers()["added"] = "by the handler"
					return errNotYet
				}
				if task.Headers()["added"] != "by the handler" {
					t.Errorf("headers are %v: what a handler writes into them is no longer kept", task.Headers())
				}
				return nil
			})
		w.send(asynq.NewTaskWithHeaders("mail", []byte("body"), map[string]string{"tenant": "acme"}), asynq.TaskID("a"))
		w.until("asynq is done with the task", time.Minute, w.gone("a"))
		if got := calls.Load(); got != 2 {
			t.Errorf("called %d times, want 2", got)
		}
	})
}

// TestUpstreamRunTask_MovesCompletedTasks: the waker looks at a task's state before
// it calls RunTask. If this test fails, the waker need not look.
func TestUpstreamRunTask_MovesCompletedTasks(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, time.Second), func(t *testing.T, w *world) {
		var calls atomic.Int64
		w.bare(asynq.Config{}, func(context.Context, *asynq.Task) error { calls.Add(1); return nil })
		id := w.enqueuePlain(0, "acme", 1, asynq.Retention(time.Hour))
		w.until("the task is completed", time.Second, w.in(id, asynq.TaskStateCompleted))
		if err := w.tasks.RunTask("default", id); err != nil {
			t.Fatal(err)
		}
		w.until("it has run again", time.Second, func() bool { return calls.Load() == 2 })
	})
}

// TestUpstreamDeadlineOfContext: tooLate reads the task's own Deadline from the
// Inspector, since a handler's context has the earlier of Timeout and Deadline.
func TestUpstreamDeadlineOfContext(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, time.Second), func(t *testing.T, w *world) {
		var left atomic.Int64
		w.bare(asynq.Config{}, func(ctx context.Context, _ *asynq.Task) error {
			deadline, _ := ctx.Deadline()
			left.Store(int64(time.Until(deadline)))
			info := w.task("000000")
			if info.Timeout != 5*time.Second || !info.Deadline.Equal(w.began.Add(time.Minute)) {
				t.Errorf("the Inspector tells Timeout %s and Deadline %s, want both as they were sent", info.Timeout, info.Deadline)
			}
			return nil
		})
		id := w.enqueuePlain(0, "acme", 1, asynq.Timeout(5*time.Second), asynq.Deadline(w.began.Add(time.Minute)))
		w.until("asynq is done with the task", time.Second, w.gone(id))
		if got := time.Duration(left.Load()); got <= 0 || got > 5*time.Second {
			t.Errorf("%s were left to the handler, want the Timeout of 5s", got)
		}
	})
}

// TestUpstreamUniqueLockRunsOnWhileWaiting_F39: documented in docs/operations.md.
// A Unique lock shorter than the wait lets a second task in.
func TestUpstreamUniqueLockRunsOnWhileWaiting_F39(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, 10*time.Second), func(t *testing.T, w *world) {
		w.serve(asynq.Config{Concurrency: 2})
		w.putBack("acme", asynq.Unique(3*time.Second))
		again := asynq.NewTaskWithHeaders("mail", nil, headers("acme", 1))
		if _, err := w.asynq.Enqueue(again, asynq.Unique(3*time.Second)); !errors.Is(err, asynq.ErrDuplicateTask) {
			t.Errorf("a second task while the lock holds: %v, want ErrDuplicateTask", err)
		}
		time.Sleep(4 * time.Second)
		if _, err := w.asynq.Enqueue(again, asynq.Unique(3*time.Second)); err != nil {
			t.Errorf("a second task after the lock: %v", err)
		}
	})
}
