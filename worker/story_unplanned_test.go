package worker_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestBacklogWithoutPlanDoesNotStandStill: asynq's pending list has so many tasks that it takes 3 s until each has been
// delivered once. Tasks that were woken for their slots stand at its end, and come late. Meanwhile the tasks that come
// take over these slots.
func TestBacklogWithoutPlanDoesNotStandStill(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	scopes := []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerSecond(50)}}, {Name: "tenant"}}
	inBubble(t, scopes, func(t *testing.T, w *world) {
		const tasks = 1200
		for i := range tasks {
			w.enqueue(i, "acme", 1)
		}
		slow := w.newShaperOf(func(ctx context.Context, task *asynq.Task) (throttle.Job, error) {
			time.Sleep(10 * time.Millisecond)
			return jobOf(ctx, task)
		}, nil)
		w.handle = time.Millisecond
		w.serveWith(slow, asynq.Config{Concurrency: 4})
		w.drained(tasks, time.Minute)
		w.checked(tasks)
		var longest time.Duration
		slices.SortFunc(w.starts, func(a, b throttletest.Start) int { return a.At.Compare(b.At) })
		for i := range w.starts[1:] {
			longest = max(longest, w.starts[i+1].At.Sub(w.starts[i].At))
		}
		t.Logf("the longest time without a start: %s; the last start after %s", longest, w.starts[tasks-1].At.Sub(w.began))
		if longest > 2*time.Second {
			t.Errorf("no task started for %s", longest)
		}
	})
}
