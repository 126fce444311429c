package explain_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/explain"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/internal/wire"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// readings counts the calls that read a page of queues with their lanes.
type readings struct{ atomic.Int64 }

func (*readings) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *readings) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if slices.Contains(cmd.Args(), any(wire.LinesQueues)) {
			r.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (*readings) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestJobReadsTheLineOnce: to explain a job in line, the lanes are read once, be its start simulated or guessed.
func TestJobReadsTheLineOnce(t *testing.T) {
	t.Parallel()
	options := redistest.Start(t).Options()
	options.ContextTimeoutEnabled = true // else the throttle makes a client of its own of it, without hooks
	client, count := redis.NewClient(options), &readings{}
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(count)
	th, err := throttle.New(redistest.Name(t), client, []throttle.Scope{{Name: throttle.Global,
		Limits: []throttle.Limit{throttle.PerHour(1)}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, inLine := range []int{10, 5_010} { // more than are simulated
		for first := 0; first < inLine; first += 1000 {
			jobs := make([]throttle.Job, min(1000, inLine-first))
			for i := range jobs {
				jobs[i] = throttle.Job{ID: fmt.Sprint(first + i), Weight: 1}
			}
			th.ReserveAll(t.Context(), jobs)
		}
		count.Store(0)
		e, err := explain.Job(t.Context(), inspect.New(th), nil, "9")
		if err != nil || e.State != explain.Waiting || e.InLine < int64(inLine)-1 || e.Guessed != (inLine > 5_000) {
			t.Errorf("with %d jobs: %+v, %v", inLine, e, err)
		}
		if n := count.Load(); n != 1 {
			t.Errorf("with %d jobs: the lanes were read %d times, want once", inLine, n)
		}
	}
}

// TestPutBackIsNoError: of a task that was put back and never failed, no last error is shown, but the put-back's text.
func TestPutBackIsNoError(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	th, err := throttle.New(redistest.Name(t), client, []throttle.Scope{{Name: throttle.Global,
		Limits: []throttle.Limit{throttle.PerHour(1)}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	server := asynq.NewServerFromRedisClient(client, asynq.Config{LogLevel: asynq.FatalLevel,
		IsFailure:      func(err error) bool { return !worker.IsPutBack(err) },
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour }})
	tasks := asynq.NewClientFromRedisClient(client)
	ends := map[string]error{"putback": &worker.PutBackError{}, "failed": errors.New("535 denied")}
	handler := func(_ context.Context, task *asynq.Task) error { return ends[task.Type()] }
	if err := server.Start(asynq.HandlerFunc(handler)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	for name, want := range map[string]explain.Task{
		"putback": {PutBack: ends["putback"].Error()},
		"failed":  {LastError: ends["failed"].Error(), Retried: 1},
	} {
		if _, err := tasks.Enqueue(asynq.NewTask(name, nil), asynq.TaskID(name)); err != nil {
			t.Fatal(err)
		}
		redistest.Await(t, name+" has been tried", func() bool {
			info, err := asynq.NewInspectorFromRedisClient(client).GetTaskInfo("default", name)
			return err == nil && info.State == asynq.TaskStateRetry
		})
		e, err := explain.Job(t.Context(), inspect.New(th), client, name)
		if err != nil || e.Task == nil || e.Task.PutBack != want.PutBack || e.Task.LastError != want.LastError ||
			e.Task.Retried != want.Retried {
			t.Errorf("%s: %+v, %v; want %+v", name, e.Task, err, want)
		}
	}
}
