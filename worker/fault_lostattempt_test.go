package worker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// serveForgetful starts a server that is cut off from asynq's Redis for 1.5 s at the end of
// each attempt for which lost returns true: asynq cannot write how the attempt ended, and recovers the
// task when its lease is over.
func (w *world) serveForgetful(cfg asynq.Config, lost func(err error) bool) {
	w.serveForgetfulBehind(func(err error) error { return err }, cfg, lost)
}

// serveForgetfulBehind is serveForgetful with a middleware outside of the shaper's that changes errors.
func (w *world) serveForgetfulBehind(outer func(err error) error, cfg asynq.Config, lost func(err error) bool) {
	wire := newWire(w)
	handler := w.shaper.Wrap(asynq.HandlerFunc(w.process))
	w.start(wire.client, w.shaper.Configure(cfg), asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		err := handler.ProcessTask(ctx, task)
		if lost(err) {
			wire.cut()
			time.AfterFunc(1500*time.Millisecond, wire.mend)
		}
		return outer(err)
	}))
}

// wrapping stands for a middleware that wraps errors: it adds the kind of the task that failed.
func wrapping(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("mail: %w", err)
}

// TestNewTaskRunsThoughPutBacksAreLost puts back a task that has no retry of its own left, again
// and again while asynq cannot write the put-back: the task's lease runs out, which asynq counts
// as a failure. The task has not run, so it must run.
func TestNewTaskRunsThoughPutBacksAreLost(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	asItIs := func(err error) error { return err }
	for _, row := range []struct {
		maxRetry, losses int
		middleware       string
		outer            func(err error) error
	}{{0, 1, "", asItIs}, {0, 3, "", asItIs}, {1, 1, "", asItIs}, {0, 1, ", behind a middleware", wrapping}} {
		t.Run(fmt.Sprintf("MaxRetry %d, %d lost%s", row.maxRetry, row.losses, row.middleware), func(t *testing.T) {
			window := time.Duration(row.losses)*2*time.Minute + 10*time.Second // longer than all the losses take
			inBubble(t, perTenant(1, window), func(t *testing.T, w *world) {
				w.result = func(ctx context.Context, _ *asynq.Task) error {
					if id, _ := asynq.GetTaskID(ctx); id == "000001" && w.ran(id) <= row.maxRetry {
						return errBroken
					}
					return nil
				}
				left := row.losses
				cfg := asynq.Config{Concurrency: 1, RetryDelayFunc: asSoonAsPossible}
				w.serveForgetfulBehind(row.outer, cfg, func(err error) bool {
					if !worker.IsPutBack(err) || w.ran("000001") < row.maxRetry || left == 0 {
						return false
					}
					left--
					return true
				})
				w.enqueue(0, "acme", 1)
				w.drained(1, time.Second)
				id := w.enqueue(1, "acme", 1, asynq.MaxRetry(row.maxRetry))
				w.drained(2, time.Duration(row.maxRetry+1)*window+time.Minute)
				w.withinLimits()
				w.archived(0)
				if got := w.ran(id); got != row.maxRetry+1 {
					t.Errorf("the task's handler was called %d times, want %d", got, row.maxRetry+1)
				}
				if left != 0 {
					t.Errorf("%d of the %d put-backs were not lost", left, row.losses)
				}
			})
		})
	}
}

// TestLostAttemptLeavesTheLastOne loses a put-back and then lets the handler fail. The failed attempt is
// the last of the task's own attempts, and no spare attempt runs.
func TestLostAttemptLeavesTheLastOne(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name   string
		result func() error
		want   string
	}{
		{"an error", func() error { return errBroken }, errBroken.Error()},
		{"a panic", func() error { panic("always") }, "always"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, perTenant(1, 130*time.Second), func(t *testing.T, w *world) {
				w.result = func(ctx context.Context, _ *asynq.Task) error {
					if id, _ := asynq.GetTaskID(ctx); id == "000001" {
						return row.result()
					}
					return nil
				}
				lost := false
				w.serveForgetful(asynq.Config{Concurrency: 1, RetryDelayFunc: asSoonAsPossible}, func(err error) bool {
					first := worker.IsPutBack(err) && !lost
					lost = lost || first
					return first
				})
				w.enqueue(0, "acme", 1)
				w.drained(1, time.Second)
				id := w.enqueue(1, "acme", 1, asynq.MaxRetry(0))
				w.until("the task is archived", 5*time.Minute, w.in(id, asynq.TaskStateArchived))
				if got := w.ran(id); got != 1 {
					t.Errorf("its handler was called %d times, want once", got)
				}
				if got := w.task(id).LastErr; !strings.Contains(got, row.want) {
					t.Errorf("the last error is %q, want %q in it", got, row.want)
				}
			})
		})
	}
}

// TestSpareRetriesHaveAnEnd loses each attempt after its handler has run, as with a task that
// crashes its process: asynq archives the task in the end.
func TestSpareRetriesHaveAnEnd(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	inBubble(t, perTenant(100, time.Second), func(t *testing.T, w *world) {
		w.serveForgetful(asynq.Config{Concurrency: 1, RetryDelayFunc: asSoonAsPossible}, func(error) bool { return true })
		id := w.enqueue(0, "acme", 1, asynq.MaxRetry(0))
		w.until("the task is archived", time.Hour, w.in(id, asynq.TaskStateArchived))
		if got := w.ran(id); got != 11 {
			t.Errorf("its handler was called %d times, want once and once for each of 10 spare retries", got)
		}
		if got := w.task(id).LastErr; got != asynq.ErrLeaseExpired.Error() {
			t.Errorf("the last error is %q, want asynq's own", got)
		}
	})
}
