package worker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestAskedToWait_OnTheLastRetry: a task that asynq would archive waits inside its handler.
func TestAskedToWait_OnTheLastRetry(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name string
		mode throttle.Mode
		wait error
		want time.Duration
	}{
		{"enforced", throttle.Enforce, worker.AskedToWait("domain", 30*time.Second, nil), 30 * time.Second},
		{"off", throttle.Off, worker.AskedToWait("domain", 30*time.Second, nil), 30 * time.Second},
		{"does not say how long, off", throttle.Off, &worker.WaitError{Scope: "domain"}, worker.DefaultAskedWait},
		{"skips retries", throttle.Enforce, worker.AskedToWait("domain", 30*time.Second, asynq.SkipRetry), 30 * time.Second},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			inDomains(t, wide, func(t *testing.T, w *world) {
				const calls = 3
				if err := inspect.New(w.throttle).SetMode(t.Context(), "domain", row.mode); err != nil {
					t.Fatal(err)
				}
				w.result = func(ctx context.Context, _ *asynq.Task) error {
					if id, _ := asynq.GetTaskID(ctx); w.ran(id) < calls {
						return row.wait
					}
					return nil
				}
				w.serve(asynq.Config{Concurrency: 4})
				id := "plain"
				w.send(asynq.NewTaskWithHeaders("mail", nil, mailHeaders("acme", "d"), asynq.TaskID(id), asynq.MaxRetry(0)))
				w.until("it has asked", time.Second, func() bool { return w.ran(id) == 1 })
				time.Sleep(row.want / 2)
				if !w.in(id, asynq.TaskStateActive)() || w.ran(id) != 1 {
					t.Errorf("it is %s and ran %d times, want it to wait in its handler", w.task(id).State, w.ran(id))
				}
				if row.mode == throttle.Enforce {
					w.unused("d") // while it waits
				}
				w.drained(1, 10*time.Minute)
				least := (calls - 1) * row.want
				if got := w.startOf(id); got < least || got > least+2*time.Second || w.ran(id) != calls {
					t.Errorf("called %d times, the last after %s; want %d and %s", w.ran(id), got, calls, least)
				}
				if got := w.shaper.Stats().PutBack; got != 0 {
					t.Errorf("put back %d times, want 0", got)
				}
				w.until("asynq is done with it", time.Second, w.gone(id))
				w.archived(0)
			})
		})
	}
}

// TestAskedToWait_IsNoEnd: the upstream's error wraps SkipRetry or RevokeTask. Since the upstream
// asks to wait, the task is not ended.
func TestAskedToWait_IsNoEnd(t *testing.T) {
	t.Parallel()
	ends := map[string]error{"skip": asynq.SkipRetry, "revoke": asynq.RevokeTask}
	for name, end := range ends {
		for _, mode := range []throttle.Mode{throttle.Enforce, throttle.Shadow, throttle.Off} {
			for where, err := range map[string]error{
				"inside":  worker.AskedToWait("domain", 10*time.Second, fmt.Errorf("quota: %w", end)),
				"outside": fmt.Errorf("%w: %w", worker.AskedToWait("domain", 10*time.Second, nil), end),
				"beside":  fmt.Errorf("%w: %w", end, worker.AskedToWait("domain", 10*time.Second, errBroken)),
			} {
				t.Run(fmt.Sprint(name, " ", where, " ", mode), func(t *testing.T) {
					t.Parallel()
					inDomains(t, wide, func(t *testing.T, w *world) {
						if err := inspect.New(w.throttle).SetMode(t.Context(), "domain", mode); err != nil {
							t.Fatal(err)
						}
						w.once(func(context.Context) error { return err })
						w.serve(asynq.Config{Concurrency: 4})
						id := w.mail(0, "acme", "d", asynq.MaxRetry(1))
						w.until("it is put back", time.Second, w.in(id, asynq.TaskStateRetry))
						if got := w.task(id).Retried; got != 0 {
							t.Errorf("retried %d times, want 0", got)
						}
						w.drained(1, time.Minute)
						w.archived(0)
					})
				})
			}
		}
	}
}

// TestWaitOnTheLastRetryWithoutAPause: a task on its last retry whose upstream asks to wait
// comes again, even if the pause holds no task back.
func TestWaitOnTheLastRetryWithoutAPause(t *testing.T) {
	t.Parallel()
	scopes := []throttle.Scope{{Name: "tenant", Mode: throttle.Shadow, Limits: []throttle.Limit{throttle.PerMinute(100)}}}
	inBubble(t, scopes, func(t *testing.T, w *world) {
		calls := 0
		w.result = func(context.Context, *asynq.Task) error {
			if calls++; calls == 1 {
				return worker.AskedToWait("tenant", time.Minute, nil)
			}
			return nil
		}
		w.serve(asynq.Config{Concurrency: 8})
		id := w.enqueuePlain(0, "acme", 1, asynq.MaxRetry(0), asynq.Timeout(2*time.Minute))
		w.until("it has come again", 2*time.Minute, func() bool { return w.ran(id) == 2 })
	})
}
