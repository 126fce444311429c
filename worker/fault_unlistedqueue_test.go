package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap/zaptest/observer"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestUnlistedQueueIsServed: asynq's set of queues lacks a queue that a server works off, since
// asynq's client adds a queue once per process and its server never does. The limit is used
// all the time, as it is with a complete set.
func TestUnlistedQueueIsServed(t *testing.T) {
	longtest.Unwatched(t)
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
				if last > longtest.Of(35*time.Second, 31*time.Second) { // 29 s, and what asynq takes
					t.Errorf("the last of %d tasks started after %s, want 29 s and little more", tasks, last)
				}
			})
		})
	}
}

// TestQueueThatMayNotBeListed: asynq's set of queues lacks a queue, and this process' user has no
// right to SADD. The process cannot wake a task of that queue: the task is left to asynq's own time
// soon after its slot, the log names the permission, and tasks of other queues start on time.
func TestQueueThatMayNotBeListed(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, 10*time.Second), func(t *testing.T, w *world) {
		link := newWire(w)
		var looks atomic.Int64
		link.before(func(cmd redis.Cmder) {
			if args := cmd.Args(); args[0] == "sismember" && args[2] == "unlisted" {
				looks.Add(1)
			}
		})
		s, logs := w.newShaperWithoutSADD(link.client)
		mux := asynq.NewServeMux()
		mux.Use(s.Wrap)
		mux.HandleFunc("mail", w.process)
		w.start(link.client, s.Configure(asynq.Config{Concurrency: 4, Queues: map[string]int{"unlisted": 1, "own": 1}}), mux)
		w.enqueue(0, "a", 1, asynq.Queue("unlisted"))
		w.drained(1, time.Second)
		id := w.enqueue(1, "a", 1, asynq.Queue("unlisted"))
		w.until("it is put back", time.Second, func() bool { return s.Stats().PutBack == 1 })
		if err := w.client.SRem(t.Context(), "asynq:queues", "unlisted").Err(); err != nil {
			t.Fatal(err)
		}
		if err := w.tasks.PauseQueue("unlisted"); err != nil { // so that only the waker looks at it
			t.Fatal(err)
		}
		w.enqueue(2, "b", 1, asynq.Queue("own"))
		w.enqueue(3, "b", 1, asynq.Queue("own"))
		w.until("the other queue's tasks run", 12*time.Second, func() bool { return w.ran("000002")+w.ran("000003") == 2 })
		time.Sleep(90 * time.Second)
		before := looks.Load()
		time.Sleep(time.Minute)
		// A pull reports an overdue job again, ever less often.
		if got := looks.Load() - before; got > 6 || before < 10 {
			t.Errorf("task %s was looked for %d times in the third minute and %d times before, want at most 6 and 10 or more",
				id, got, before)
		}
		if lines := logs.FilterMessageSnippet("SADD").Len(); lines < 1 || lines > 3 {
			t.Errorf("the permission is logged %d times, want at most once a minute", lines)
		}
	})
}

// barringCommand refuses one command, as an ACL does.
type barringCommand string

// DialHook implements redis.Hook.
func (barringCommand) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (b barringCommand) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == string(b) {
			err := errors.New("NOPERM this user has no permissions to run the '" + string(b) + "' command")
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (barringCommand) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// newShaperWithoutSADD returns a shaper that may not add queues to asynq's set of queues, and its log.
func (w *world) newShaperWithoutSADD(client *redis.Client) (*worker.Shaper, *observer.ObservedLogs) {
	w.t.Helper()
	client.AddHook(barringCommand("sadd"))
	opts, logs := watched()
	s, err := worker.New(w.throttle, client, jobOf, opts)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(s.Stop)
	return s, logs
}

// TestDeletedQueueLeavesTheLine deletes a queue and all its tasks, which stand in line: they leave
// the line, and another tenant has all of the limit.
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
			page, err := inspect.New(w.throttle).Lines(t.Context(), "")
			return err == nil && len(page.Lines) == 0
		})
		w.withinLimits()
	})
}
