package worker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestFullDomainIsShared: five tenants bring 40 or 60 jobs each to a domain that takes one a
// second. They take turns.
func TestFullDomainIsShared(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	scopes := []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerMinute(60000)}},
		{Name: "tenant", Limits: []throttle.Limit{throttle.PerMinute(6000)}},
		{Name: "domain", Limits: []throttle.Limit{{Units: 10, Window: 10 * time.Second, Precision: throttle.Exact}}},
	}
	inBubble(t, scopes, func(t *testing.T, w *world) {
		w.handle = time.Millisecond
		s := w.newShaperOf(func(ctx context.Context, task *asynq.Task) (throttle.Job, error) {
			job, err := jobOf(ctx, task)
			job.Keys["domain"] = task.Headers()["domain"]
			return job, err
		}, nil)
		n := 0
		send := func(tenant string) {
			h := headers(tenant, 1)
			h["domain"] = "full"
			w.send(worker.NewTask("mail", nil, h, asynq.TaskID(fmt.Sprintf("%06d", n))))
			n++
		}
		w.began = time.Now()
		w.serveWith(s, asynq.Config{Concurrency: 32})
		for range 10 {
			send("first")
			time.Sleep(time.Second)
		}
		for range longtest.Of(40, 60) {
			for i := range 5 {
				send(fmt.Sprint("t", i))
			}
		}
		time.Sleep(100 * time.Second)
		w.mu.Lock()
		of := map[string]int{}
		for _, start := range w.starts {
			of[start.Keys["tenant"]]++
		}
		w.mu.Unlock()
		t.Logf("started in 100 s: %v", of)
		for i := range 5 {
			if got := of[fmt.Sprint("t", i)]; got < 17 || got > 23 {
				t.Errorf("t%d started %d jobs, want about 20", i, got)
			}
		}
		w.drained(n, time.Hour)
	})
}
