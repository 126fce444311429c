package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestLostTaskOfMaxRetry0RunsOnce loses a worker whose handler has begun a task of MaxRetry(0),
// while the throttle still has a reservation under the task's ID. asynq archives the task, and no
// process runs it again.
func TestLostTaskOfMaxRetry0RunsOnce(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	const id = "000001"
	rows := map[string]func(w *world, throttles *wire){
		"another of its ID was enqueued": func(w *world, _ *wire) {
			w.enqueuePlain(1, "acme", 1, asynq.MaxRetry(0))
			w.until("its handler has begun", time.Minute, func() bool { return w.ran(id) == 1 })
			_, err := w.newClient().Enqueue(w.t.Context(), worker.NewTask("mail", nil, headers("acme", 1)), asynq.TaskID(id))
			if !errors.Is(err, asynq.ErrTaskIDConflict) {
				w.t.Fatalf("got %v, want asynq's conflict", err)
			}
		},
		"it was let run without Redis": func(w *world, throttles *wire) {
			w.enqueuePlain(0, "acme", 1)
			w.until("the window is used", time.Minute, func() bool { return w.ran("000000") == 1 })
			w.enqueuePlain(1, "acme", 1, asynq.MaxRetry(0))
			w.until("it waits in its handler", time.Minute, w.in(id, asynq.TaskStateActive))
			time.Sleep(time.Second)
			throttles.cut()
			w.until("its handler has begun", time.Minute, func() bool { return w.ran(id) == 1 })
		},
	}
	for name, run := range rows {
		t.Run(name, func(t *testing.T) {
			inBubble(t, perTenant(1, 20*time.Second), func(t *testing.T, w *world) {
				throttles, asynqs := newWire(w), newWire(w)
				th, err := throttle.New("world", throttles.client, w.scopes,
					&throttle.Options{Fallback: throttle.FallbackOpen, Logger: zap.NewNop()})
				if err != nil {
					t.Fatal(err)
				}
				lost, err := worker.New(th, asynqs.client, jobOf, nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(lost.Stop)
				w.result = func(ctx context.Context, _ *asynq.Task) error {
					if own, _ := asynq.GetTaskID(ctx); own == id {
						<-ctx.Done() // its worker is lost before it ends
					}
					return nil
				}
				w.start(asynqs.client, lost.Configure(asynq.Config{Concurrency: 4}), lost.Wrap(asynq.HandlerFunc(w.process)))
				run(w, throttles)
				asynqs.cut()
				throttles.cut()
				w.serveWith(w.newShaper(nil), asynq.Config{Concurrency: 4})
				w.until("asynq has archived it", 5*time.Minute, w.in(id, asynq.TaskStateArchived))
				time.Sleep(15 * time.Minute)
				if got := w.ran(id); got != 1 {
					t.Errorf("its handler was called %d times, want once", got)
				}
				w.archived(1)
				asynqs.mend()
				throttles.mend()
			})
		})
	}
}
