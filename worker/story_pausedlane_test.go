package worker_test

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestPausedLaneIsLeftAlone enqueues tasks for a closed domain: each is put back once until
// the domain opens.
func TestPausedLaneIsLeftAlone(t *testing.T) {
	t.Parallel()
	const tasks, closed = 20, time.Minute
	rows := map[string]struct{ close, open func(w *world) }{
		"paused": {func(w *world) {
			if _, err := inspect.New(w.throttle).Pause(w.t.Context(), "domain", "d", time.Now().Add(closed)); err != nil {
				w.t.Fatal(err)
			}
		}, func(*world) {}},
		"a limit of 0": {func(w *world) { w.set("domain", "d", throttle.PerMinute(0)) },
			func(w *world) { w.set("domain", "d") }},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inDomains(t, wide, func(t *testing.T, w *world) {
				w.serve(asynq.Config{Concurrency: 8})
				row.close(w)
				for n := range tasks {
					w.mail(n, "acme", "d")
				}
				time.Sleep(closed)
				row.open(w)
				w.drained(tasks, 3*time.Second)
				if got := w.shaper.Stats().PutBack; got > tasks+tasks/10 {
					t.Errorf("put back %d times, want each of %d once", got, tasks)
				}
			})
		})
	}
}
