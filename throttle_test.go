// Package throttle_test checks the contract of all packages together, from outside: asynq
// servers with the worker's shapers, on a real Redis, in real time.
package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

func TestMain(m *testing.M) {
	longtest.Default("test.parallel", "8") // they wait most of the time
	goleak.VerifyTestMain(longtest.Quiet(m))
}

// quotas are 8 tenants' limits: 10 units for each and 40 for all, in half a second.
var quotas = []throttle.Scope{
	{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(40, 500*time.Millisecond)}},
	{Name: "tenant", Limits: []throttle.Limit{throttle.Per(10, 500*time.Millisecond)}},
}

const tenants = 8

// record collects the jobs that the handlers of all processes ran.
type record struct {
	mu     sync.Mutex
	starts []throttletest.Start
	runs   map[string]int // by task ID
	early  time.Duration  // how long before its granted start a handler was called, at most
	last   time.Time
}

func (r *record) add(ctx context.Context) error {
	grant, ok := worker.Grant(ctx)
	if !ok {
		return errors.New("the handler has no grant")
	}
	id, _ := asynq.GetTaskID(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.starts = append(r.starts, throttletest.Start{At: grant.Start, Weight: grant.Job.Weight, Keys: grant.Job.Keys})
	r.runs[id]++
	r.last = time.Now()
	r.early = max(r.early, grant.Start.Sub(r.last)) // Redis runs on the same clock
	return nil
}

func (r *record) ended() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.starts)
}

// process stands for one of several processes that serve the same queues. Each has its own
// clients, throttle and shaper.
type process struct {
	client *redis.Client
	shaper *worker.Shaper
	server *asynq.Server
}

func startProcess(t *testing.T, redisServer *redistest.Server, name string, handled *record,
	result func(ctx context.Context) error) *process {
	t.Helper()
	client := redisServer.Client(t)
	th, err := throttle.New(name, client, quotas, nil)
	if err != nil {
		t.Fatal(err)
	}
	shaper, err := worker.New(th, client, func(_ context.Context, task *asynq.Task) (throttle.Job, error) {
		return throttle.Job{Weight: 1, Keys: map[string]string{"tenant": task.Headers()["tenant"]}}, nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{client: client, shaper: shaper}
	p.server = asynq.NewServerFromRedisClient(client, shaper.Configure(asynq.Config{
		Concurrency: 8, LogLevel: asynq.FatalLevel,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 },
	}))
	mux := asynq.NewServeMux()
	mux.Use(shaper.Wrap)
	mux.HandleFunc("mail", func(ctx context.Context, _ *asynq.Task) error {
		if err := handled.add(ctx); err != nil || result == nil {
			return err
		}
		return result(ctx)
	})
	if err := p.server.Start(mux); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	return p
}

// stop ends a process as its main would.
func (p *process) stop() {
	p.shaper.Stop()
	p.server.Shutdown()
}

// enqueue sends tasks of all tenants in turn.
func enqueue(t *testing.T, redisServer *redistest.Server, tasks int,
	newTask func(n int, headers map[string]string) *asynq.Task) {
	t.Helper()
	client := asynq.NewClientFromRedisClient(redisServer.Client(t))
	for n := range tasks {
		task := newTask(n, map[string]string{"tenant": fmt.Sprintf("t%d", n%tenants)})
		if _, err := client.Enqueue(task, asynq.TaskID(fmt.Sprintf("%06d", n))); err != nil {
			t.Fatal(err)
		}
	}
}

func mail(_ int, headers map[string]string) *asynq.Task { return worker.NewTask("mail", nil, headers) }

// check holds the contract: no window over its limit, each task exactly once,
// none archived, none started early.
func (r *record) check(t *testing.T, redisServer *redistest.Server, tasks int) {
	t.Helper()
	redistest.Await(t, "asynq is done with all tasks", func() bool {
		info, err := asynq.NewInspectorFromRedisClient(redisServer.Client(t)).GetQueueInfo("default")
		if err != nil {
			t.Fatal(err)
		}
		if info.Archived != 0 {
			t.Fatalf("%d tasks are archived", info.Archived)
		}
		return info.Size == 0
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, over := range throttletest.Check(quotas, r.starts) {
		t.Errorf("window over its limit: %s", over)
	}
	for id, n := range r.runs {
		if n != 1 {
			t.Errorf("task %s ran %d times", id, n)
		}
	}
	if len(r.runs) != tasks {
		t.Errorf("%d tasks ran, want %d", len(r.runs), tasks)
	}
	if r.early > time.Millisecond {
		t.Errorf("a handler was called %s before its granted start", r.early)
	}
}

func putBacksPerJob(tasks int, processes ...*process) float64 {
	var putBack int64
	for _, p := range processes {
		putBack += p.shaper.Stats().PutBack
	}
	return float64(putBack) / float64(tasks)
}

// TestDrain is the product's promise in one run: waiting jobs start as fast as the
// limits allow, never faster, each exactly once, and are put back about once.
func TestDrain(t *testing.T) {
	t.Parallel()
	const tasks = 400
	for _, processes := range []int{1, 2} {
		t.Run(fmt.Sprintf("processes %d", processes), func(t *testing.T) {
			t.Parallel()
			redisServer := redistest.Start(t)
			enqueue(t, redisServer, tasks, mail)
			handled := &record{runs: make(map[string]int)}
			name := redistest.Name(t)
			var running []*process
			began := time.Now()
			for range processes {
				running = append(running, startProcess(t, redisServer, name, handled, nil))
			}
			redistest.Await(t, "all tasks have run", func() bool { return handled.ended() >= tasks })
			handled.check(t, redisServer, tasks)
			const optimum = (tasks/40 - 1) * 500 * time.Millisecond
			putBacks := putBacksPerJob(tasks, running...)
			t.Logf("put back %.3f per job, makespan %s of %s", putBacks,
				handled.last.Sub(began).Round(time.Millisecond), optimum)
			// In virtual time, jobs are put back at most 1.1 times each (worker's TestDrain). On a machine that
			// cannot keep up, tasks come late and are put back again: only the full run asserts the bound.
			if longtest.Full() && putBacks > 1.5 {
				t.Errorf("put back %.3f per job, want about 1", putBacks)
			}
			for _, p := range running {
				if p.shaper.Stats().Granted == 0 {
					t.Log("one of the processes has run no task: it began after all tasks had run")
				}
			}
		})
	}
}

// TestProcessEndsInTheMiddle_F35 stops one of two processes while both have tasks
// put back and asleep: the other one runs them.
func TestProcessEndsInTheMiddle_F35(t *testing.T) {
	t.Parallel()
	const tasks = 240
	redisServer := redistest.Start(t)
	enqueue(t, redisServer, tasks, mail)
	handled := &record{runs: make(map[string]int)}
	name := redistest.Name(t)
	first := startProcess(t, redisServer, name, handled, nil)
	second := startProcess(t, redisServer, name, handled, nil)
	redistest.Await(t, "a third of the tasks have run", func() bool { return handled.ended() >= tasks/3 })
	before := time.Now()
	first.stop()
	// asynq itself needs some time. A handler asleep that held asynq up would take all of its ShutdownTimeout, 8s.
	if took := time.Since(before); longtest.Full() && took > 5*time.Second {
		t.Errorf("Stop and Shutdown took %s", took)
	}
	redistest.Await(t, "all tasks have run", func() bool { return handled.ended() >= tasks })
	handled.check(t, redisServer, tasks)
	t.Logf("put back %.3f per job", putBacksPerJob(tasks, first, second))
}

// TestMaxRetry0_F31 puts back tasks that have no retry: half of them made by asynq, half by worker.NewTask.
func TestMaxRetry0_F31(t *testing.T) {
	t.Parallel()
	const tasks = 160
	redisServer := redistest.Start(t)
	enqueue(t, redisServer, tasks, func(n int, headers map[string]string) *asynq.Task {
		if n/tenants%2 == 0 {
			return asynq.NewTaskWithHeaders("mail", nil, headers, asynq.MaxRetry(0))
		}
		return worker.NewTask("mail", nil, headers, asynq.MaxRetry(0))
	})
	handled := &record{runs: make(map[string]int)}
	startProcess(t, redisServer, redistest.Name(t), handled, nil)
	redistest.Await(t, "all tasks have run", func() bool { return handled.ended() >= tasks })
	handled.check(t, redisServer, tasks)
}

// TestFailuresAreRetriedByAsynqsRules lets the first attempt of each task fail:
// asynq retries it, and each attempt is charged.
func TestFailuresAreRetriedByAsynqsRules(t *testing.T) {
	t.Parallel()
	const tasks = 40
	redisServer := redistest.Start(t)
	enqueue(t, redisServer, tasks, mail)
	handled := &record{runs: make(map[string]int)}
	startProcess(t, redisServer, redistest.Name(t), handled, func(ctx context.Context) error {
		if retried, _ := asynq.GetRetryCount(ctx); retried == 0 {
			return errors.New("try again")
		}
		return nil
	})
	redistest.Await(t, "all tasks have run twice", func() bool { return handled.ended() >= 2*tasks })
	handled.mu.Lock()
	defer handled.mu.Unlock()
	for _, over := range throttletest.Check(quotas, handled.starts) {
		t.Errorf("window over its limit: %s", over)
	}
	for id, n := range handled.runs {
		if n != 2 {
			t.Errorf("task %s ran %d times, want 2", id, n)
		}
	}
}
