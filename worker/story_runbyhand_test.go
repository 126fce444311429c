package worker_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
)

// TestEndedTaskIsRunByHand takes a task that was archived because its last attempt ended outside of
// the middleware, and runs it by hand again and again. The task's handler is called each time, and its
// last error does not grow, even if a middleware puts words before the error.
func TestEndedTaskIsRunByHand(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	rows := []struct {
		name string
		opts []asynq.Option
		end  func(ctx context.Context) error
		want string
	}{
		{"panic", nil, func(context.Context) error { panic("always") }, "always"},
		{"Timeout", []asynq.Option{asynq.Timeout(time.Second)},
			func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "context deadline exceeded"},
	}
	for i, row := range append(rows, rows...) {
		outer, name := func(err error) error { return err }, row.name
		if i >= len(rows) {
			outer, name = wrapping, name+", behind a middleware"
		}
		t.Run(name, func(t *testing.T) {
			inBubble(t, perTenant(100, time.Second), func(t *testing.T, w *world) {
				var mended atomic.Bool
				w.result = func(ctx context.Context, _ *asynq.Task) error {
					if mended.Load() {
						return nil
					}
					return row.end(ctx)
				}
				handler := w.shaper.Wrap(asynq.HandlerFunc(w.process))
				w.start(w.client, w.shaper.Configure(asynq.Config{Concurrency: 2, RetryDelayFunc: asSoonAsPossible}),
					asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
						return outer(handler.ProcessTask(ctx, task))
					}))
				id := w.enqueue(0, "acme", 1, append(row.opts, asynq.MaxRetry(0))...)
				var first string
				const most = 14 // more runs than the spare retries that NewTask adds
				for runs := 1; runs <= most; runs++ {
					w.until("the task is archived", time.Minute, w.in(id, asynq.TaskStateArchived))
					// Once the spare retries are used up, a retry by asynq looks like a run by hand: allow one call more.
					if got := w.ran(id); got < runs || got > runs+runs/(most-4) {
						t.Fatalf("the handler was called %d times after %d runs by hand, want %d", got, runs-1, runs)
					}
					last := w.task(id).LastErr
					if first == "" {
						first = last
					}
					if len(last) > len(first) || !strings.Contains(last, row.want) {
						t.Errorf("the last error is %q after %d runs by hand, want no more than %q, with %q in it",
							last, runs-1, first, row.want)
					}
					mended.Store(runs == most)
					if err := w.tasks.RunTask("default", id); err != nil {
						t.Fatal(err)
					}
				}
				w.drained(1, time.Minute)
				w.until("asynq is done with the task", time.Second, w.gone(id))
				w.withinLimits()
			})
		})
	}
}
