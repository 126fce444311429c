package worker_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestStopEndsThoughAsynqsRedisStalls stops a shaper while its goroutines that look at tasks
// wait for asynq's Redis. Stop does not wait as long as they, and goroutines that are left behind
// do nothing more when the answer comes.
func TestStopEndsThoughAsynqsRedisStalls(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name  string
		opts  *throttle.Options
		stall func(cmd redis.Cmder) bool
	}{
		{"the waker looks at a task", &throttle.Options{Lookahead: farAhead}, func(redis.Cmder) bool { return true }},
		{"the waker runs a task", &throttle.Options{Lookahead: farAhead}, isRunTask},
		{"the puller looks at the queue", nil, func(cmd redis.Cmder) bool { return !isRunTask(cmd) }},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			inBubbleWith(t, perTenant(1, 3*time.Second), row.opts, func(t *testing.T, w *world) {
				slow := newWire(w)
				var stalled atomic.Int64
				var opened atomic.Bool
				slow.before(func(cmd redis.Cmder) {
					// The connection's own commands pass: it is opened in time.
					if row.stall(cmd) && !strings.HasPrefix(cmd.Name(), "hello") && !opened.Load() {
						stalled.Add(1)
						time.Sleep(20 * time.Second)
					}
				})
				opts, logs := watched()
				s, err := worker.New(w.throttle, slow.client, jobOf, opts)
				if err != nil {
					t.Fatal(err)
				}
				server := w.serveWith(s, asynq.Config{Concurrency: 8})
				w.enqueue(0, "acme", 1)
				w.drained(1, time.Second)
				for n := range 4 {
					w.enqueue(1+n, "acme", 1)
				}
				w.until("a goroutine waits for asynq's Redis", 10*time.Second, func() bool { return stalled.Load() > 0 })
				before := time.Now()
				s.Stop()
				if took := time.Since(before); took > time.Second {
					t.Errorf("Stop took %s, want a second at most", took)
				}
				opened.Store(true)
				server.Shutdown()
				woken, warned := s.Stats().Woken, logs.Len()
				time.Sleep(time.Minute)
				if got := s.Stats().Woken; got > woken+1 {
					t.Errorf("%d tasks were woken after Stop, want at most the one that was on its way", got-woken)
				}
				if logs.Len() > warned {
					t.Errorf("logged after Stop: %v", logs.All()[warned:])
				}
				before = time.Now()
				s.Stop()
				if took := time.Since(before); took != 0 {
					t.Errorf("Stop again took %s, want nothing", took)
				}
				w.serveWith(w.newShaper(nil), asynq.Config{Concurrency: 8})
				w.drained(5, 5*time.Minute)
				w.checked(5)
				w.archived(0)
			})
		})
	}
}
