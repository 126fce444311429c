package worker_test

import (
	"context"
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// world is asynq, the throttle and a Redis in one bubble of virtual time.
type world struct {
	t        *testing.T
	redis    *miniredis.Miniredis
	client   *redis.Client
	asynq    *asynq.Client
	throttle *throttle.Throttle
	scopes   []throttle.Scope
	shaper   *worker.Shaper
	handle   time.Duration // how long a handler takes

	mu     sync.Mutex
	starts []throttletest.Start // as granted
	runs   map[string]int       // by task ID
	ended  map[string]time.Time // by task ID
	waits  map[string]time.Duration
	began  time.Time
}

// inBubble runs a test in virtual time, with a world of these scopes.
func inBubble(t *testing.T, scopes []throttle.Scope, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		client := redis.NewClient(&redis.Options{
			Addr:            "127.0.0.1:6379",
			Dialer:          func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
			DisableIdentity: true,
			PoolSize:        64,
		})
		th, err := throttle.New("world", client, scopes, nil)
		if err != nil {
			t.Fatal(err)
		}
		w := &world{
			t: t, redis: m, client: client, asynq: asynq.NewClientFromRedisClient(client), throttle: th, scopes: scopes,
			handle: 20 * time.Millisecond, runs: make(map[string]int), ended: make(map[string]time.Time), waits: make(map[string]time.Duration),
		}
		w.shaper = w.newShaper(nil)
		w.began = time.Now()
		test(w)
		w.shaper.Stop()
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		m.Close()
	})
}

func (w *world) newShaper(opts *worker.Options) *worker.Shaper {
	s, err := worker.New(w.throttle, w.client, jobOf, opts)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// jobOf reads a job from a task's headers.
func jobOf(_ context.Context, task *asynq.Task) (throttle.Job, error) {
	job := throttle.Job{Weight: 1, Keys: map[string]string{"tenant": task.Headers()["tenant"]}}
	if weight := task.Headers()["weight"]; weight != "" {
		if _, err := fmt.Sscan(weight, &job.Weight); err != nil {
			return job, err
		}
	}
	return job, nil
}

// enqueue adds a task; its ID tells its place in the order.
func (w *world) enqueue(n int, tenant string, weight int64, opts ...asynq.Option) string {
	id := fmt.Sprintf("%06d", n)
	task := worker.NewTask("mail", nil, map[string]string{"tenant": tenant, "weight": fmt.Sprint(weight)}, append(opts, asynq.TaskID(id))...)
	if _, err := w.asynq.Enqueue(task); err != nil {
		w.t.Fatal(err)
	}
	return id
}

// serve starts an asynq server with the shaper around the world's handler.
func (w *world) serve(cfg asynq.Config) *asynq.Server {
	cfg.Logger, cfg.LogLevel = silent{}, asynq.FatalLevel
	server := asynq.NewServerFromRedisClient(w.client, w.shaper.Configure(cfg))
	mux := asynq.NewServeMux()
	mux.Use(w.shaper.Wrap)
	mux.HandleFunc("mail", w.process)
	if err := server.Start(mux); err != nil {
		w.t.Fatal(err)
	}
	return server
}

func (w *world) process(ctx context.Context, task *asynq.Task) error {
	grant, ok := worker.Grant(ctx)
	if !ok {
		w.t.Error("no grant in the handler's context")
	}
	id, _ := asynq.GetTaskID(ctx)
	w.mu.Lock()
	w.starts = append(w.starts, throttletest.Start{At: grant.Start, Weight: grant.Job.Weight, Keys: grant.Job.Keys})
	w.waits[id] = time.Since(w.began)
	w.mu.Unlock()
	time.Sleep(w.handle)
	w.mu.Lock()
	w.runs[id]++
	w.ended[id] = time.Now()
	w.mu.Unlock()
	return nil
}

// drained waits until as many tasks have ended.
func (w *world) drained(tasks int, within time.Duration) {
	for limit := time.Now().Add(within); ; {
		w.mu.Lock()
		ended := len(w.ended)
		w.mu.Unlock()
		if ended >= tasks {
			return
		}
		if time.Now().After(limit) {
			w.t.Fatalf("after %s %d of %d tasks have run", within, ended, tasks)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// checked fails the test for each window over its limit and each task that did
// not run exactly once.
func (w *world) checked(tasks int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, over := range throttletest.Check(w.scopes, w.starts) {
		w.t.Errorf("window over its limit: %s", over)
	}
	for id, n := range w.runs {
		if n != 1 {
			w.t.Errorf("task %s ran %d times", id, n)
		}
	}
	if len(w.runs) != tasks {
		w.t.Errorf("%d tasks ran, want %d", len(w.runs), tasks)
	}
}

// makespan is the time from the beginning until the last start.
func (w *world) makespan() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Max(values(w.waits))
}

// optimum is the shortest makespan that the limits allow to these units.
func optimum(scopes []throttle.Scope, starts []throttletest.Start) time.Duration {
	var longest float64
	for _, scope := range scopes {
		units := make(map[string]int64)
		for _, start := range starts {
			units[start.Keys[scope.Name]] += start.Weight
		}
		for _, u := range units {
			for _, limit := range scope.Limits {
				longest = max(longest, (float64(u)/float64(limit.Units)-1)*float64(limit.Window))
			}
		}
	}
	return time.Duration(longest)
}

func percentile(of []time.Duration, p float64) time.Duration {
	slices.Sort(of)
	return of[min(len(of)-1, int(math.Ceil(p*float64(len(of))))-1)]
}

func values[K comparable, V any](m map[K]V) []V {
	all := make([]V, 0, len(m))
	for _, v := range m {
		all = append(all, v)
	}
	return all
}

type silent struct{}

func (silent) Debug(...any) {}
func (silent) Info(...any)  {}
func (silent) Warn(...any)  {}
func (silent) Error(...any) {}
func (silent) Fatal(...any) {}
