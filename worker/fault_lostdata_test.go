package worker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestDataLost_F20 deletes all that the throttle has in Redis while 200 tasks wait. Each
// runs once, within the limits from the loss on: windows around the loss may exceed their limit by
// the forgotten units. A task whose place in line was lost asks anew within a minute.
func TestDataLost_F20(t *testing.T) {
	t.Parallel()
	const tasks = 200
	scopes := drainQuotas(2*time.Second, 0)
	inBubble(t, scopes, func(t *testing.T, w *world) {
		for n := range tasks {
			w.enqueue(n, "t"+string(rune('0'+n%8)), 1)
		}
		w.serve(asynq.Config{Concurrency: 16})
		w.drained(tasks/4, time.Minute)
		var deleted int
		for _, key := range w.redis.Keys() {
			if strings.HasPrefix(key, "thr:") && w.redis.Del(key) {
				deleted++
			}
		}
		if deleted == 0 {
			t.Fatal("the throttle has no keys")
		}
		lost := time.Now()
		w.drained(tasks, time.Minute+tasks/4*time.Second)
		w.mu.Lock()
		for id, n := range w.runs {
			if n != 1 {
				t.Errorf("task %s ran %d times", id, n)
			}
		}
		w.mu.Unlock()
		before, since := w.startsAround(lost)
		if len(before) < tasks/4 || len(before)+len(since) != tasks {
			t.Errorf("%d tasks have started before the loss and %d after it", len(before), len(since))
		}
		for _, part := range [][]throttletest.Start{before, since} {
			for _, over := range throttletest.Check(scopes, part) {
				t.Errorf("window over its limit: %s", over)
			}
		}
	})
}

// startsAround returns the starts before an instant and the starts from then on.
func (w *world) startsAround(instant time.Time) (before, since []throttletest.Start) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, start := range w.starts {
		if start.At.Before(instant) {
			before = append(before, start)
		} else {
			since = append(since, start)
		}
	}
	return before, since
}
