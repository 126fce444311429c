package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// nth lets one command of a client fail: the n-th.
type nth struct {
	n      int64
	lost   bool // the command is carried out, and only its reply is lost
	seen   atomic.Int64
	failed atomic.Bool
	over   atomic.Bool // no command fails any more
}

var errNth = errors.New("the connection broke")

// DialHook implements redis.Hook.
func (*nth) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (f *nth) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		fails := f.seen.Add(1) == f.n && !f.over.Load()
		if !fails || f.lost {
			if err := next(ctx, cmd); !fails {
				return err
			}
		}
		f.failed.Store(true)
		cmd.SetErr(errNth)
		return errNth
	}
}

// ProcessPipelineHook implements redis.Hook.
func (f *nth) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestEachCallOfTheThrottleFails drains a few tasks, and again and again: each time another call of the throttle to
// Redis fails, or its reply is lost. Tasks run once, within the limits, and nothing stays charged or in line.
func TestEachCallOfTheThrottleFails(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	for _, lost := range []bool{false, true} {
		step := longtest.Of(int64(4), 1)
		for n, more := int64(1), true; more; n += step {
			t.Run(fmt.Sprintf("call %d, lost %t", n, lost), func(t *testing.T) {
				call := &nth{n: n, lost: lost}
				drainThrough(t, call)
				more = call.failed.Load() && !t.Failed()
			})
		}
	}
}

// drainThrough drains six tasks in a process whose throttle reaches Redis through a faulty client. Half of them are
// planned.
func drainThrough(t *testing.T, call *nth) {
	scopes := perTenant(2, 3*time.Second)
	scopes = append(scopes, throttle.Scope{Name: throttle.Global, Limits: []throttle.Limit{throttle.Running(1)}})
	inBubble(t, scopes, func(t *testing.T, w *world) {
		client := bubbleClient(t, w.redis)
		client.AddHook(call)
		th, err := throttle.New("world", client, scopes, &throttle.Options{Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		faulty, err := worker.New(th, w.client, jobOf, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(faulty.Stop)
		planner, err := worker.NewClient(th, w.client, jobOf, nil)
		if err != nil {
			t.Fatal(err)
		}
		var runs record
		w.start(w.client, faulty.Configure(asynq.Config{Concurrency: 3, TaskCheckInterval: 50 * time.Millisecond}),
			faulty.Wrap(runs.handler(w, func(string) time.Duration { return 200 * time.Millisecond })))
		const tasks = 6
		for n := range tasks / 2 {
			w.enqueue(n, "acme", 1, asynq.MaxRetry(0))
			task := worker.NewTask("mail", nil, headers("other", 1), asynq.MaxRetry(0))
			if _, err := planner.Enqueue(t.Context(), task); err != nil {
				t.Fatal(err)
			}
		}
		w.drained(tasks, 45*time.Second)
		call.over.Store(true)
		time.Sleep(time.Minute)
		runs.checked(t, scopes, tasks)
		w.archived(0)
		for _, tenant := range []string{"acme", "other"} {
			if used, booked := w.used(tenant); used+booked != 0 {
				t.Errorf("%s: %d units are used and %d booked at the end", tenant, used, booked)
			}
		}
		if all := w.state(throttle.Global, ""); all.Limits[0].Used != 0 || all.Waiting != 0 {
			t.Errorf("%d units run and %d flows wait at the end", all.Limits[0].Used, all.Waiting)
		}
	})
}
