package worker_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/connect"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// shaped is asynq and a throttle on a Redis of any shape, in real time.
type shaped struct {
	*world
	url    string
	queues map[string]int // with priorities, of names that no other test has
}

func newShaped(t *testing.T, url string, scopes []throttle.Scope) *shaped {
	t.Helper()
	s := &shaped{url: url, queues: make(map[string]int)}
	client := s.open(t)
	name := redistest.Name(t)
	th, err := throttle.New(name, client, scopes, &throttle.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		s.queues[fmt.Sprintf("%s-%d", name, n)] = 1
	}
	s.world = &world{
		t: t, throttle: th, scopes: scopes, asynq: asynq.NewClientFromRedisClient(client),
		tasks:  asynq.NewInspectorFromRedisClient(client),
		handle: 5 * time.Millisecond,
		runs:   make(map[string]int), ended: make(map[string]time.Time), waits: make(map[string]time.Duration),
	}
	return s
}

// open returns a new client, as each process has one of its own.
func (s *shaped) open(t *testing.T) redis.UniversalClient {
	t.Helper()
	client, err := connect.Open(s.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// startProcess starts workers with a client, a throttle and a shaper of their own.
func (s *shaped) startProcess(t *testing.T) *worker.Shaper {
	t.Helper()
	client := s.open(t)
	th, err := throttle.New(s.throttle.Name(), client, s.scopes, &throttle.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	shaper, err := worker.New(th, client, jobOf, nil)
	if err != nil {
		t.Fatal(err)
	}
	server := s.start(client, shaper.Configure(asynq.Config{Concurrency: 16, Queues: s.queues}),
		shaper.Wrap(asynq.HandlerFunc(s.process)))
	t.Cleanup(func() {
		shaper.Stop()
		server.Shutdown()
	})
	return shaper
}

// enqueue adds tasks of eight tenants to all queues, every other one planned.
func (s *shaped) enqueue(t *testing.T, tasks int) {
	t.Helper()
	planner, err := worker.NewClient(s.throttle, s.open(t), jobOf, nil)
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, 0, len(s.queues))
	for name := range s.queues {
		names = append(names, name)
	}
	planned := make(map[string][]*asynq.Task)
	for n := range tasks {
		queue := names[n%len(names)]
		task := worker.NewTask("mail", nil, headers(fmt.Sprint("t", n/2%8), 1),
			asynq.TaskID(fmt.Sprintf("%s-%d", queue, n)), asynq.MaxRetry(0))
		if n%2 == 0 {
			planned[queue] = append(planned[queue], task)
			continue
		}
		if _, err := s.asynq.Enqueue(task, asynq.Queue(queue)); err != nil {
			t.Fatal(err)
		}
	}
	for queue, tasks := range planned {
		if _, err := planner.EnqueueAll(t.Context(), tasks, asynq.Queue(queue)); err != nil {
			t.Fatal(err)
		}
	}
}

// checkedOnce fails the test for each window over its limit, and each task that did not
// run exactly once without a failure.
func (s *shaped) checkedOnce(t *testing.T, tasks int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, over := range throttletest.Check(s.scopes, s.starts) {
		t.Errorf("window over its limit: %s", over)
	}
	for id, n := range s.runs {
		if n != 1 {
			t.Errorf("task %s ran %d times", id, n)
		}
	}
	if len(s.runs) != tasks {
		t.Errorf("%d tasks ran, want %d", len(s.runs), tasks)
	}
	for queue := range s.queues {
		info, err := s.tasks.GetQueueInfo(queue)
		if err != nil || info.Archived != 0 || info.Failed != 0 {
			t.Errorf("queue %s: %+v, %v; want nothing failed or archived", queue, info, err)
		}
	}
}

// TestDrainOnClusterAndSentinel: asynq's queues lie in slots of their own, apart from
// the throttle's; two processes share the work.
func TestDrainOnClusterAndSentinel(t *testing.T) {
	t.Parallel()
	for shape, start := range map[string]func(t *testing.T) string{
		"cluster": func(t *testing.T) string {
			return "redis-cluster://" + strings.Join(redistest.SharedCluster(t).Addrs(), ",")
		},
		"sentinel": func(t *testing.T) string {
			s := redistest.StartSentinel(t)
			return "redis-sentinel://" + strings.Join(s.Addrs(), ",") + "?master=" + s.MasterName
		},
	} {
		t.Run(shape, func(t *testing.T) {
			t.Parallel()
			const tasks = 400
			s := newShaped(t, start(t), []throttle.Scope{
				{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerSecond(100)}},
				{Name: "tenant", Limits: []throttle.Limit{throttle.PerSecond(25)}},
			})
			s.enqueue(t, tasks)
			s.began = time.Now()
			first, second := s.startProcess(t), s.startProcess(t)
			s.drained(tasks, 3*time.Minute)
			s.checkedOnce(t, tasks)
			one, two := first.Stats(), second.Stats()
			if one.Unchecked+two.Unchecked != 0 {
				t.Errorf("%d tasks ran unchecked", one.Unchecked+two.Unchecked)
			}
			t.Logf("%d and %d granted, put back %.2f per task, woken %d and %d; makespan %s of %s", one.Granted, two.Granted,
				float64(one.PutBack+two.PutBack)/tasks, one.Woken, two.Woken, s.makespan().Round(time.Millisecond),
				optimum(s.scopes, s.starts))
		})
	}
}
