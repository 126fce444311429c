package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// deaf loses the replies of all commands while it is on. The commands are carried out.
type deaf struct{ atomic.Bool }

// DialHook implements redis.Hook.
func (*deaf) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (*deaf) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements redis.Hook.
func (d *deaf) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if d.Load() {
			<-ctx.Done()
			err = ctx.Err()
			cmd.SetErr(err)
		}
		return err
	}
}

// newDeafShaper returns a shaper of a process of its own, and what loses the replies to its throttle.
func (w *world) newDeafShaper(options *throttle.Options) (*worker.Shaper, *deaf) {
	replies, client := new(deaf), bubbleClient(w.t, w.redis)
	client.AddHook(replies)
	th, err := throttle.New("world", client, w.scopes, options)
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := worker.New(th, w.client, jobOf, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(s.Stop)
	return s, replies
}

// TestGrantThatIsFoundLateRunsWithinItsLease loses the reply that grants a task the only place. Redis answers again
// when the lease is almost over, the task comes back at once, and the throttle finds its grant. Another task, of
// another process, gets the place when that lease is over: the two must not run at once.
func TestGrantThatIsFoundLateRunsWithinItsLease(t *testing.T) {
	t.Parallel()
	options := throttle.Options{Lookahead: 200 * time.Millisecond, Logger: zap.NewNop()}
	scopes := []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{
		{Units: 1, Running: true, Lease: 2 * options.Lookahead},
	}}, {Name: "tenant"}}
	inBubbleWith(t, scopes, &options, func(t *testing.T, w *world) {
		loses, replies := w.newDeafShaper(&options)
		var runs record
		handler := runs.handlerUntil(w, func(ctx context.Context, _ string) {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		})
		for queue, s := range map[string]*worker.Shaper{"loses": loses, "other": w.shaper} {
			w.start(w.client, s.Configure(asynq.Config{Queues: map[string]int{queue: 1}}), s.Wrap(handler))
		}
		time.Sleep(time.Second)
		replies.Store(true)
		w.enqueue(0, "acme", 1, asynq.Queue("loses"))
		time.Sleep(10 * time.Millisecond)
		w.enqueue(1, "acme", 1, asynq.Queue("other"))
		time.Sleep(options.Lookahead + 70*time.Millisecond)
		replies.Store(false)
		w.drained(2, time.Minute)
		runs.checked(t, scopes, 2)
	})
}

// TestGrantThatNobodyAsksForIsGivenBack loses the reply that grants a task the only place, for an hour. The task comes
// back to another process, and no task comes to the first any more: its shaper gives the place back all the same.
func TestGrantThatNobodyAsksForIsGivenBack(t *testing.T) {
	t.Parallel()
	options := throttle.Options{Logger: zap.NewNop()}
	scopes := []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{
		{Units: 1, Running: true, Lease: time.Hour},
	}}, {Name: "tenant"}}
	inBubbleWith(t, scopes, &options, func(t *testing.T, w *world) {
		loses, replies := w.newDeafShaper(&options)
		server := w.serveWith(loses, asynq.Config{})
		time.Sleep(time.Second)
		replies.Store(true)
		id := w.enqueue(0, "acme", 1)
		w.until("the task is put back", time.Second, w.in(id, asynq.TaskStateRetry))
		server.Shutdown()
		replies.Store(false)
		w.serve(asynq.Config{})
		w.drained(1, 30*time.Second)
		w.checked(1)
	})
}
