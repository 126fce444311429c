package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

func TestMain(m *testing.M) {
	longtest.Default("test.parallel", "6") // many wait most of the time
	longtest.CollectRarely()
	goleak.VerifyTestMain(longtest.Quiet(m))
}

// apart is a worker whose throttle reaches its Redis over a network that can
// fail, while asynq's Redis is fine. In real time.
type apart struct {
	t        *testing.T
	network  *redistest.Proxy
	throttle *throttle.Throttle
	shaper   *worker.Shaper
	queue    *asynq.Client
	tasks    *asynq.Inspector

	mu      sync.Mutex
	putBack []*worker.PutBackError
	took    []time.Duration // from a task's arrival until it was put back
	runs    map[string]int  // by task ID
}

func newApart(t *testing.T, options throttle.Options, clientOptions redis.Options) *apart {
	t.Helper()
	server := miniredis.RunT(t)
	a := &apart{t: t, network: redistest.NewProxy(t, server.Addr()), runs: make(map[string]int)}
	clientOptions.Addr = a.network.Addr
	faulty := redis.NewClient(&clientOptions)
	fine := redis.NewClient(&redis.Options{Addr: server.Addr()})
	options.Logger = zap.NewNop()
	t.Cleanup(func() { _ = faulty.Close(); _ = fine.Close() })
	var err error
	a.throttle, err = throttle.New("apart", faulty, perTenant(100, time.Hour), &options)
	if err != nil {
		t.Fatal(err)
	}
	a.shaper, err = worker.New(a.throttle, fine, jobOf, nil)
	if err != nil {
		t.Fatal(err)
	}
	a.queue, a.tasks = asynq.NewClientFromRedisClient(fine), asynq.NewInspectorFromRedisClient(fine)
	// The script is loaded, so that a request that is lost is the one for a job.
	redistest.Await(t, "the script is loaded", func() bool { // a busy machine may take longer than the time-out
		_, err := a.throttle.Reserve(t.Context(),
			throttle.Job{ID: "first", Weight: 1, Keys: map[string]string{"tenant": "other"}})
		if err != nil && !errors.Is(err, throttle.ErrUnavailable) {
			t.Fatal(err)
		}
		return err == nil
	})
	inner := a.shaper.Wrap(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.runs[id]++
		return nil
	}))
	workers := asynq.NewServerFromRedisClient(fine,
		a.shaper.Configure(asynq.Config{Concurrency: 8, LogLevel: asynq.FatalLevel, Logger: silent{}}))
	if err := workers.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		came := time.Now()
		err := inner.ProcessTask(ctx, task)
		var putBack *worker.PutBackError
		if errors.As(err, &putBack) {
			a.mu.Lock()
			a.putBack, a.took = append(a.putBack, putBack), append(a.took, time.Since(came))
			a.mu.Unlock()
		}
		return err
	})); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.shaper.Stop()
		workers.Shutdown()
	})
	return a
}

func (a *apart) enqueue(tasks int) {
	a.t.Helper()
	for n := range tasks {
		if _,
			err := a.queue.Enqueue(worker.NewTask("mail", nil, headers("acme", 1), asynq.TaskID(fmt.Sprint(n)),
			asynq.MaxRetry(0))); err != nil {
			a.t.Fatal(err)
		}
	}
}

func (a *apart) putBacks() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.putBack)
}

// ran waits until all tasks have run, and checks that each ran once and used no retry, and that
// a unit is charged for each task that did not run unchecked. A task that ran unchecked may be
// charged too: its decision may have been asked for, and may arrive late.
func (a *apart) ran(tasks int) {
	a.t.Helper()
	redistest.Await(a.t, "all tasks have run", func() bool {
		info, err := a.tasks.GetQueueInfo("default")
		if err != nil {
			a.t.Fatal(err)
		}
		if info.Archived != 0 || info.Failed != 0 {
			a.t.Fatalf("%d tasks are archived, %d failures counted; want none", info.Archived, info.Failed)
		}
		return info.Processed == tasks && info.Size == 0
	})
	a.mu.Lock()
	for id, n := range a.runs {
		if n != 1 {
			a.t.Errorf("task %s ran %d times", id, n)
		}
	}
	if len(a.runs) != tasks {
		a.t.Errorf("%d tasks ran, want %d", len(a.runs), tasks)
	}
	a.mu.Unlock()
	// A grant that came too late for its task is given back with the calls that follow.
	unchecked := a.shaper.Stats().Unchecked
	want := int64(tasks) - unchecked
	var usage inspect.Usage
	redistest.Await(a.t, fmt.Sprintf("%d units are charged, and %d at most for those that ran unchecked", want, unchecked),
		func() bool {
			_, _ = a.throttle.Reserve(a.t.Context(),
				throttle.Job{ID: "another", Weight: 1, Keys: map[string]string{"tenant": "other"}})
			var err error
			if usage, err = inspect.New(a.throttle).Usage(a.t.Context(), "tenant", "acme"); err != nil {
				return false
			}
			used := usage.Limits[0].Used
			return used >= want && used <= int64(tasks)
		})
	if got := usage.Limits[0].Booked; got != 0 {
		a.t.Errorf("%d units are booked, want 0", got)
	}
}

// TestRedisAwayClosed_F3 refuses the throttle's connections: tasks are put back, each for
// a time of its own, and run when Redis is back.
func TestRedisAwayClosed_F3(t *testing.T) {
	t.Parallel()
	const tasks = 24
	a := newApart(t, throttle.Options{}, redis.Options{})
	a.network.Refuse()
	a.enqueue(tasks)
	redistest.Await(a.t, "all are put back", func() bool { return a.putBacks() >= tasks })
	waiting, err := a.tasks.ListRetryTasks("default")
	if err != nil || len(waiting) == 0 {
		t.Fatalf("%d tasks wait to come back: %v", len(waiting), err)
	}
	for _, info := range waiting {
		if info.Retried != 0 || !strings.HasPrefix(info.LastErr, "throttled: Redis cannot decide (") ||
			len(info.LastErr) > 120 {
			t.Errorf("task %s: retried %d times, last error %q", info.ID, info.Retried, info.LastErr)
		}
	}
	a.network.Accept()
	a.ran(tasks)
	a.mu.Lock()
	defer a.mu.Unlock()
	var delays []time.Duration
	for _, putBack := range a.putBack {
		delays = append(delays, putBack.Delay)
		if !errors.Is(putBack, throttle.ErrUnavailable) || !putBack.Slot.IsZero() {
			t.Errorf("putBack with %+v, want the throttle's error and no slot", putBack)
		}
	}
	slices.Sort(delays)
	t.Logf("%d put-backs, delays %s to %s", len(delays), delays[0], delays[len(delays)-1])
	if delays[0] < time.Second { // how they grow is TestBackoffGrowsWithTheOutage's
		t.Errorf("the shortest delay is %s, want at least 1s", delays[0])
	}
	if spread := delays[len(delays)-1] - delays[0]; spread < 300*time.Millisecond {
		t.Errorf("all delays lie within %s: they will come back together", spread)
	}
}

// TestRedisStalled_F2 lets the throttle's requests arrive, and be charged, only after
// the tasks have given up: they ask again under the same nonce.
func TestRedisStalled_F2(t *testing.T) {
	t.Parallel()
	const tasks = 12
	a := newApart(t, throttle.Options{BreakAfter: -1}, redis.Options{PoolSize: 64})
	a.network.Stall()
	a.enqueue(tasks)
	redistest.Await(a.t, "all are put back", func() bool { return a.putBacks() >= tasks })
	a.network.Unstall()
	a.ran(tasks)
	a.mu.Lock()
	defer a.mu.Unlock()
	// The client alone would wait for 3s; the rest is for a busy machine.
	if got := slices.Max(a.took); longtest.Full() && got > timeout+time.Second {
		t.Errorf("a worker was held for %s, want the throttle's timeout of %s", got, timeout)
	}
}

// TestRedisAwayOpen_F3 lets tasks run unchecked, and counts them.
func TestRedisAwayOpen_F3(t *testing.T) {
	t.Parallel()
	const tasks = 12
	a := newApart(t, throttle.Options{Fallback: throttle.FallbackOpen}, redis.Options{})
	a.network.Refuse()
	a.enqueue(tasks)
	redistest.Await(a.t, "all have run", func() bool { return a.shaper.Stats().Granted == tasks })
	a.network.Accept()
	a.ran(tasks)
	if st := a.shaper.Stats(); st.Unchecked != tasks || st.PutBack != 0 {
		t.Errorf("%d ran unchecked and %d were put back, want %d and 0", st.Unchecked, st.PutBack, tasks)
	}
}

// TestRedisAwayLocal_F3 lets a part of the tasks run, this process' share.
func TestRedisAwayLocal_F3(t *testing.T) {
	t.Parallel()
	const tasks = 24
	a := newApart(t, throttle.Options{Fallback: throttle.FallbackLocal, LocalShare: 0.2}, redis.Options{})
	a.network.Refuse()
	a.enqueue(tasks)
	redistest.Await(a.t, "all have been answered", func() bool {
		st := a.shaper.Stats()
		return st.Granted+st.PutBack >= tasks
	})
	// A fifth of 100 an hour, half of it at once.
	if st := a.shaper.Stats(); st.Unchecked != 10 || st.Granted != 10 {
		t.Errorf("%d ran, %d of them unchecked, want 10", st.Granted, st.Unchecked)
	}
	a.network.Accept()
	a.ran(tasks)
}

// TestLostReply_F1 cuts the connection after the decision. Whether the client asks again
// by itself or the task does when it comes back, it is charged once.
func TestLostReply_F1(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name    string
		options redis.Options
		putBack int
	}{
		{"the client asks again", redis.Options{}, 0},
		{"the task asks again", redis.Options{MaxRetries: -1}, 1},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			a := newApart(t, throttle.Options{Timeout: time.Minute}, row.options)
			a.network.DropNextReply("asynq:default/") // the decision for the task, no other call
			a.enqueue(1)
			a.ran(1)
			if a.network.Dropped() != 1 || a.putBacks() != row.putBack {
				t.Errorf("%d replies lost and %d put-backs, want 1 and %d", a.network.Dropped(), a.putBacks(), row.putBack)
			}
		})
	}
}
