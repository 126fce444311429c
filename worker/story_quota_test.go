package worker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestDrainOverAnEdge: tasks of four tenants use up a quota, and 16 workers go on when it begins anew, a quarter of an
// hour later: at once, each tenant with its share, and with one put-back for each that waits.
func TestDrainOverAnEdge(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	of := throttle.Calendar{Unit: throttle.Day, Hours: 6, Zone: "Asia/Kathmandu"} // 00:15 in UTC
	units := longtest.Of(60, 600)
	scopes := []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{{Units: int64(units), Calendar: of}}}, {Name: "tenant"},
	}
	inBubble(t, scopes, func(t *testing.T, w *world) {
		tasks := 2 * units
		for n := range tasks {
			w.enqueue(n, fmt.Sprintf("t%d", n%4), 1)
		}
		w.began = time.Now()
		_, edge := of.Period(w.began)
		server := w.serve(asynq.Config{Concurrency: 16})
		w.drained(tasks, 20*time.Minute)
		w.shaper.Stop()
		server.Shutdown()
		w.checked(tasks)
		before, after, first := 0, make(map[string]int), time.Time{}
		for _, start := range w.starts {
			if start.At.Before(edge) {
				before++
				continue
			}
			if first.IsZero() || start.At.Before(first) {
				first = start.At
			}
			after[start.Keys["tenant"]]++
		}
		if before != units || first.Sub(edge) > 100*time.Millisecond {
			t.Errorf("%d started before the edge, want %d; the first after it %s later", before, units, first.Sub(edge))
		}
		for tenant, n := range after {
			if n < units/4-units/20 || n > units/4+units/20 {
				t.Errorf("%d tasks of %s started after the edge, want about %d", n, tenant, units/4)
			}
		}
		if took := w.makespan() - edge.Sub(w.began); took > 10*time.Second {
			t.Errorf("the last started %s after the edge", took)
		}
		if most := int64(tasks + tasks/10); w.shaper.Stats().PutBack > most {
			t.Errorf("%d put back, want at most %d", w.shaper.Stats().PutBack, most)
		}
		t.Logf("%d put back of %d, the first %s and the last %s after the edge", w.shaper.Stats().PutBack, tasks,
			first.Sub(edge), w.makespan()-edge.Sub(w.began))
	})
}
