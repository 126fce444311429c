package worker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestDrainOverAStep: tasks of four tenants come on the first day of a ramp, more than its step takes, and 16 workers
// go on when the second step begins, a quarter of an hour later: at once, and each tenant with its share. As under a
// quota, a task that waits is put back when it comes, and when it is brought before its slot.
func TestDrainOverAStep(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	first := longtest.Of(60, 600)
	ramp := throttle.Ramp(fmt.Sprintf("%d %d/day+6h from 1999-12-31 @Asia/Kathmandu", first, 3*first)) // 00:15 in UTC
	scopes := []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{ramp}}, {Name: "tenant"}}
	inBubble(t, scopes, func(t *testing.T, w *world) {
		tasks := 4 * first
		for n := range tasks {
			w.enqueue(n, fmt.Sprintf("t%d", n%4), 1)
		}
		w.began = time.Now()
		_, edge := ramp.Calendar.Period(w.began)
		server := w.serve(asynq.Config{Concurrency: 16})
		w.drained(tasks, 20*time.Minute)
		w.shaper.Stop()
		server.Shutdown()
		w.checked(tasks)
		before, after, goesOn := 0, make(map[string]int), time.Time{}
		for _, start := range w.starts {
			if start.At.Before(edge) {
				before++
				continue
			}
			if goesOn.IsZero() || start.At.Before(goesOn) {
				goesOn = start.At
			}
			after[start.Keys["tenant"]]++
		}
		if before != first || goesOn.Sub(edge) > 100*time.Millisecond {
			t.Errorf("%d of %d started on the first day, want %d; the first of the second %s late", before, tasks, first,
				goesOn.Sub(edge))
		}
		for tenant, n := range after {
			if want := 3 * first / 4; n < want-want/10 || n > want+want/10 {
				t.Errorf("%d tasks of %s started on the second day, want about %d", n, tenant, want)
			}
		}
		if most := int64(2*3*first + tasks/10); w.shaper.Stats().PutBack > most {
			t.Errorf("%d put back, want at most %d", w.shaper.Stats().PutBack, most)
		}
	})
}
