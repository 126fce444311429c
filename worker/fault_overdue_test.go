package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestPulledTaskIsBroughtAfterAllWereAway_F24: a process pulls a task from the line and dies. Until
// the booking is forgotten there is no other process, or only one that does not deliver tasks. The
// next worker then brings the task; asynq's own time for a task that stood in line is far away.
func TestPulledTaskIsBroughtAfterAllWereAway_F24(t *testing.T) {
	t.Parallel()
	t.Run("all", func(t *testing.T) {
		t.Parallel()
		bringAfterAll(t, time.Minute, func(*testing.T, *world) {})
	})
	t.Run("all that bring tasks", func(t *testing.T) {
		t.Parallel()
		bringAfterAll(t, pulledWindow+3*time.Minute, func(t *testing.T, w *world) {
			job := throttle.Job{ID: "granted", Weight: 1, Keys: map[string]string{"tenant": "b"}}
			if _, err := w.throttle.Wait(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			job.ID = "in line"
			if _, err := w.throttle.Wait(ctx, job); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("got %v, want the context's end", err)
			}
		})
	})
}

// pulledWindow is the window of the limit under which a task is pulled.
const pulledWindow = 10 * time.Minute

// bringAfterAll lets a process pull a task and die, calls meanwhile when the task is overdue, and
// checks that the next worker brings the task within a time.
func bringAfterAll(t *testing.T, within time.Duration, meanwhile func(t *testing.T, w *world)) {
	t.Helper()
	const window = pulledWindow
	scopes := []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(1, window)}}}
	inBubble(t, append(scopes, throttle.Scope{Name: "tenant"}), func(t *testing.T, w *world) {
		first, second := w.enqueue(0, "a", 1), w.enqueue(1, "a", 1)
		server := w.serve(asynq.Config{})
		w.drained(1, time.Minute)
		if w.ran(second) == 1 { // workers take them side by side
			first, second = second, first
		}
		w.until("the second stands in line", time.Minute, w.in(second, asynq.TaskStateRetry))
		w.shaper.Stop()
		server.Shutdown()

		time.Sleep(window - 5*time.Second)
		w.until("the second is pulled", 10*time.Second, func() bool {
			pulled, err := w.throttle.Driver().Pull(t.Context())
			return err == nil && len(pulled.Booked) == 1
		})
		time.Sleep(window + time.Minute)
		if own := w.task(second).NextProcessAt; time.Until(own) < window {
			t.Fatalf("asynq would bring the second in %s by itself, want much later", time.Until(own))
		}
		meanwhile(t, w)
		w.serveWith(w.newShaper(nil), asynq.Config{})
		w.drained(2, within)
		if w.ran(first) != 1 || w.ran(second) != 1 {
			t.Errorf("the tasks ran %d and %d times, want once each", w.ran(first), w.ran(second))
		}
	})
}
