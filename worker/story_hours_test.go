package worker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestDrainOverAClosedNight: tasks of four tenants come while hours are open, which close before all are done. 16
// workers go on in the morning: at once, each tenant with its share, and with one put-back for each task that waits.
func TestDrainOverAClosedNight(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	tasks := longtest.Of(240, 2400)
	night := longtest.Of(2, 14) // hours, from 00:10 in UTC on, by a clock that is 05:45 ahead
	hours := throttle.OpenHours(fmt.Sprintf("%02d:55-05:55 @Asia/Kathmandu", 5+night))
	scopes := []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerMinute(int64(tasks / 20)), hours}}, {Name: "tenant"},
	}
	inBubble(t, scopes, func(t *testing.T, w *world) {
		w.began = time.Now()
		edge := w.began.Add(10*time.Minute + time.Duration(night)*time.Hour)
		for n := range tasks {
			w.enqueue(n, fmt.Sprintf("t%d", n%4), 1)
		}
		server := w.serve(asynq.Config{Concurrency: 16})
		w.drained(tasks, 15*time.Hour)
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
		if before == 0 || before == tasks || first.Sub(edge) > 100*time.Millisecond {
			t.Errorf("%d of %d started before the night; the first after it %s late", before, tasks, first.Sub(edge))
		}
		for tenant, n := range after {
			if want := (tasks - before) / 4; n < want-want/10-2 || n > want+want/10+2 {
				t.Errorf("%d tasks of %s started in the morning, want about %d", n, tenant, want)
			}
		}
		if most := int64(tasks + tasks/20); w.shaper.Stats().PutBack > most {
			t.Errorf("%d put back, want at most %d", w.shaper.Stats().PutBack, most)
		}
		t.Logf("%d of %d started before the night, %d put back, the first %s after the edge", before, tasks,
			w.shaper.Stats().PutBack, first.Sub(edge))
	})
}
