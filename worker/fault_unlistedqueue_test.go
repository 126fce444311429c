package worker_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// TestUnlistedQueueIsServed: asynq's list of queues lacks one that a server works off, since
// asynq's client lists a queue once per process and its server never does. The limit is used
// all the time, as it is beside a list that is whole.
func TestUnlistedQueueIsServed(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name   string
		unlist func(w *world)
	}{
		{"listed", func(*world) {}},
		{"deleted when it was empty", func(w *world) {
			if err := w.tasks.DeleteQueue("default", false); err != nil {
				w.t.Fatal(err)
			}
		}},
		{"asynq's data is lost", func(w *world) {
			for _, key := range w.redis.Keys() {
				if strings.HasPrefix(key, "asynq:") {
					w.redis.Del(key)
				}
			}
		}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, perTenant(10, time.Second), func(t *testing.T, w *world) {
				const tasks = 300
				w.serve(asynq.Config{Concurrency: 16})
				w.enqueue(0, "acme", 1)
				w.drained(1, time.Second)
				w.until("asynq is done with it", time.Second, w.gone(fmt.Sprintf("%06d", 0)))
				row.unlist(w)
				began := time.Now()
				for n := range tasks {
					w.enqueue(1+n, "acme", 1)
				}
				w.drained(1+tasks, time.Hour)
				w.checked(1 + tasks)
				last := w.makespan() - began.Sub(w.began)
				t.Logf("the last of %d tasks started after %s", tasks, last)
				if last > 31*time.Second { // 29 s, and what asynq takes
					t.Errorf("the last of %d tasks started after %s, want 29 to 31 s", tasks, last)
				}
			})
		})
	}
}

// TestDeletedQueueLeavesTheLine deletes a queue and all its tasks, which stand in line: their
// places are given up, and another tenant has all of the limit.
func TestDeletedQueueLeavesTheLine(t *testing.T) {
	t.Parallel()
	inBubble(t, twentyForAll, func(t *testing.T, w *world) {
		const crowd, others = 400, 40
		for n := range crowd {
			w.enqueue(n, "a", 1, asynq.Queue("crowd"))
		}
		w.serve(asynq.Config{Concurrency: 16, Queues: map[string]int{"crowd": 1, "own": 1}})
		w.until("the crowd stands in line", time.Minute, func() bool { return w.shaper.Stats().PutBack >= crowd-50 })
		w.until("no task runs", time.Minute, func() bool { return w.tasks.DeleteQueue("crowd", true) == nil })
		w.mu.Lock()
		ran := len(w.runs)
		w.mu.Unlock()
		for n := range others {
			w.enqueue(crowd+n, "b", 1, asynq.Queue("own"))
		}
		w.drained(ran+others, 6*time.Second)
		w.until("nobody waits", 5*time.Second, func() bool {
			page, err := w.throttle.Inspector().Lines(t.Context(), "")
			return err == nil && len(page.Lines) == 0
		})
		w.withinLimits()
	})
}
