package worker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestBacklogThatMayBeginIsNotPutBack: planned tasks of many tenants wait until hours open, or until a pause ends, and
// then take minutes. A task whose turn is late stays in line until then: hardly one comes too early and is put back.
func TestBacklogThatMayBeginIsNotPutBack(t *testing.T) {
	t.Parallel()
	const tasks, tenants, closed = 150, 50, 20 * time.Minute
	rate := throttle.PerSecond(1)
	opens := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(closed).Format("15:04") // where the bubble's time begins
	for name, limits := range map[string][]throttle.Limit{
		"hours": {rate, throttle.OpenHours(opens + "-23:00 @UTC")},
		"pause": {rate},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, []throttle.Scope{{Name: throttle.Global, Limits: limits}, {Name: "tenant"}},
				func(t *testing.T, w *world) {
					if name == "pause" {
						if _, err := inspect.New(w.throttle).Pause(t.Context(), throttle.Global, "", w.began.Add(closed)); err != nil {
							t.Fatal(err)
						}
					}
					w.planMany(tasks, tenants)
					server := w.serve(asynq.Config{Concurrency: 8})
					w.drained(tasks, time.Hour)
					w.shaper.Stop()
					server.Shutdown()
					w.checked(tasks)
					w.expectPutBacks(tasks / 20)
					if late := w.makespan() - closed; late > 11*tasks/10*time.Second {
						t.Errorf("the last of %d tasks at one per second started %s after the first could", tasks, late)
					}
				})
		})
	}
}

// planMany plans tasks of a number of tenants in one call.
func (w *world) planMany(tasks, tenants int) {
	w.t.Helper()
	var names []string
	for n := range tenants {
		names = append(names, fmt.Sprintf("t%03d", n))
	}
	if _, err := w.newClient().EnqueueAll(w.t.Context(), mails(tasks, light, names...)); err != nil {
		w.t.Fatal(err)
	}
}
