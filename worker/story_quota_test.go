package worker_test

import (
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestDrainOverAnEdge: tasks of four tenants use up a quota, whose next period begins a quarter of an hour later. Then
// 16 workers go on at once: each tenant has its share, and each task that waited was put back once.
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
		_, edge := of.Period(time.Now())
		c := w.crossed(tasks, edge, 20*time.Minute)
		if c.before != units {
			t.Errorf("%d tasks started before the edge, want %d", c.before, units)
		}
		c.expectShares(t, units/4, units/20)
		if took := w.makespan() - edge.Sub(w.began); took > 10*time.Second {
			t.Errorf("the last task started %s after the edge", took)
		}
		w.expectPutBacks(tasks + tasks/10)
	})
}
