package worker_test

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestQueueWithoutAServer: the tasks of a queue stand in line, and its last server is gone.
// After a minute another queue's tasks have all of the limit. When a server comes, the tasks
// run, once each.
func TestQueueWithoutAServer(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	scopes := []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerSecond(2)}}, {Name: "tenant"}}
	inBubble(t, scopes, func(t *testing.T, w *world) {
		const crowd, others = 200, 150
		for n := range crowd {
			w.enqueue(n, "a", 1, asynq.Queue("left"))
		}
		left := asynq.Config{Concurrency: 16, Queues: map[string]int{"left": 1}}
		leaving := w.newShaper(nil)
		server := w.serveWith(leaving, left)
		w.until("they stand in line", time.Minute, func() bool { return leaving.Stats().PutBack >= crowd-20 })
		leaving.Stop()
		server.Shutdown()
		w.mu.Lock()
		ran := len(w.runs)
		w.mu.Unlock()
		w.serve(asynq.Config{Concurrency: 16, Queues: map[string]int{"own": 1}})
		at := time.Now()
		for n := range others {
			w.enqueue(crowd+n, "b", 1, asynq.Queue("own"))
		}
		w.drained(ran+others, 10*time.Minute)
		took, best := time.Since(at), others/2*time.Second
		t.Logf("%d tasks of another queue drained in %s, at best %s", others, took, best)
		if took > best+45*time.Second {
			t.Errorf("drained in %s, want at most %s and 45 s, of which 30 are half of a minute", took, best)
		}
		w.serveWith(w.newShaper(nil), left)
		w.drained(crowd+others, 10*time.Minute)
		w.checked(crowd + others)
	})
}
