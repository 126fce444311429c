package worker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// crossing is how a world's tasks started on both sides of an edge.
type crossing struct {
	before int            // tasks that started before it
	after  map[string]int // tasks that started after it, by tenant
	late   time.Duration  // the first start after it
}

// crossed enqueues tasks of four tenants now, has 16 workers run them all within a time, and looks at their starts. The
// first after the edge comes within a tenth of a second.
func (w *world) crossed(tasks int, edge time.Time, within time.Duration) crossing {
	w.t.Helper()
	w.began = time.Now()
	for n := range tasks {
		w.enqueue(n, fmt.Sprintf("t%d", n%4), 1)
	}
	server := w.serve(asynq.Config{Concurrency: 16})
	w.drained(tasks, within)
	w.shaper.Stop()
	server.Shutdown()
	w.checked(tasks)
	c := crossing{after: make(map[string]int)}
	var first time.Time
	for _, start := range w.starts {
		if start.At.Before(edge) {
			c.before++
			continue
		}
		if first.IsZero() || start.At.Before(first) {
			first = start.At
		}
		c.after[start.Keys["tenant"]]++
	}
	if c.late = first.Sub(edge); c.late > 100*time.Millisecond {
		w.t.Errorf("the first after the edge started %s late", c.late)
	}
	w.t.Logf("%d of %d started before the edge, %d put back, the first %s and the last %s after the edge", c.before, tasks,
		w.shaper.Stats().PutBack, c.late, w.makespan()-edge.Sub(w.began))
	return c
}

// expectShares expects that each tenant started a number of tasks after the edge, more or less.
func (c crossing) expectShares(t *testing.T, want, most int) {
	t.Helper()
	for tenant, n := range c.after {
		if n < want-most || n > want+most {
			t.Errorf("%d tasks of %s started after the edge, want %d by at most %d", n, tenant, want, most)
		}
	}
}

// expectPutBacks expects at most a number of put-backs.
func (w *world) expectPutBacks(most int) {
	w.t.Helper()
	if n := w.shaper.Stats().PutBack; n > int64(most) {
		w.t.Errorf("%d put back, want at most %d", n, most)
	}
}
