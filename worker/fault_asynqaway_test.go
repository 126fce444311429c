package worker_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// pulls counts the pulls.
type pulls struct {
	told
	calls atomic.Int64
}

// Called implements throttle.Observer.
func (o *pulls) Called(call throttle.ScriptCall) {
	if call.Script == "pull" {
		o.calls.Add(1)
	}
}

// TestNoPullsWhileAsynqsRedisIsAway cuts a process off from asynq's Redis, not from the
// throttle's, while many tasks stand in line: it would be useless to book tasks that cannot be
// woken. When asynq's Redis is back, all run as fast as the limit allows.
func TestNoPullsWhileAsynqsRedisIsAway(t *testing.T) {
	t.Parallel()
	const tasks, outage = 200, 5 * time.Minute
	inBubble(t, perTenant(10, time.Second), func(t *testing.T, w *world) {
		asynqs, observer := newWire(w), new(pulls)
		th, err := throttle.New("world", w.client, w.scopes, &throttle.Options{Logger: zap.NewNop(), Observer: observer})
		if err != nil {
			t.Fatal(err)
		}
		s, err := worker.New(th, asynqs.client, jobOf, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		for n := range tasks {
			w.enqueue(n, "acme", 1)
		}
		w.start(asynqs.client, s.Configure(asynq.Config{Concurrency: 16}), s.Wrap(asynq.HandlerFunc(w.process)))
		w.drained(30, time.Minute)
		asynqs.cut()
		time.Sleep(5 * time.Second)
		began, booked := observer.calls.Load(), s.Stats().Pulled
		time.Sleep(outage)
		pulled, more := observer.calls.Load()-began, s.Stats().Pulled-booked
		t.Logf("pulled %d times in %s, and booked %d tasks", pulled, outage, more)
		if pulled > 10 || more > 0 {
			t.Errorf("pulled %d times in %s and booked %d tasks, want neither", pulled, outage, more)
		}
		asynqs.mend()
		at := time.Now()
		w.drained(tasks, 3*time.Minute)
		took := time.Since(at)
		t.Logf("drained %s after it was back", took)
		if best := tasks / 10 * time.Second; took > best+5*time.Second {
			t.Errorf("drained %s after it was back, want at most %s and 5 s", took, best)
		}
	})
}
