package worker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestDeadlineThatPassesWhileUndecided: the Deadline of a task passes while Redis cannot decide, or
// while a limit is set below the task's weight. The task comes back shortly before its Deadline and
// is ended with that reason, once, and not by asynq, which calls no handler after a Deadline.
func TestDeadlineThatPassesWhileUndecided(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	rows := map[string]func(w *world, link *wire){
		"Redis is away": func(_ *world, link *wire) { link.cut() },
		"a limit is set below its weight": func(w *world, _ *wire) {
			w.set("tenant", "acme", throttle.PerMinute(4))
		},
	}
	for name, hinder := range rows {
		t.Run(name, func(t *testing.T) {
			inBubble(t, perTenant(10, time.Minute), func(t *testing.T, w *world) {
				link := newWire(w)
				th, err := throttle.New("world", link.client, w.scopes, &throttle.Options{Logger: zap.NewNop()})
				if err != nil {
					t.Fatal(err)
				}
				s, err := worker.New(th, w.client, jobOf, &worker.Options{Logger: zap.NewNop()})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(s.Stop)
				var user asked
				w.serveWith(s, asynq.Config{Concurrency: 4, ErrorHandler: user.config().ErrorHandler,
					RetryDelayFunc: asSoonAsPossible})
				hinder(w, link)
				w.enqueue(1, "acme", 5) // so that the delays have grown
				time.Sleep(time.Minute)
				deadline := time.Now().Add(100 * time.Second)
				id := w.enqueue(0, "acme", 5, asynq.Deadline(deadline), asynq.MaxRetry(0))
				w.until("it is ended before its Deadline", time.Until(deadline), w.in(id, asynq.TaskStateArchived))
				if got := w.task(id).LastErr; !strings.Contains(got, "the deadline is") {
					t.Errorf("its last error is %q, want the reason", got)
				}
				_, _, errs := user.errors()
				if len(errs) != 1 || w.ran(id) != 0 || s.Stats().Ended != 1 {
					t.Errorf("ErrorHandler was called %d times, it ran %d times, %d were ended; want 1, 0, 1",
						len(errs), w.ran(id), s.Stats().Ended)
				}
				if left := time.Until(deadline); left > 8*time.Second {
					t.Errorf("it was ended %s before its Deadline, want at most 8s", left)
				}
			})
		})
	}
}
