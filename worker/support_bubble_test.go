package worker_test

import (
	"context"
	"errors"
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
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/idle"
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
	shaper   *worker.Shaper // the first; a test may make more
	tasks    *asynq.Inspector
	handle   time.Duration // how long a handler takes
	// result is what a handler returns at its end; nil is success.
	result func(ctx context.Context, task *asynq.Task) error

	mu     sync.Mutex
	starts []throttletest.Start     // as granted
	late   []time.Duration          // of each start, the handler's call behind the granted start
	runs   map[string]int           // handler calls, by task ID
	ended  map[string]time.Time     // the last success, by task ID
	waits  map[string]time.Duration // from began to the last start, by task ID
	began  time.Time
}

// inBubble runs a test in virtual time, with a world of these scopes.
func inBubble(t *testing.T, scopes []throttle.Scope, test func(t *testing.T, w *world)) {
	t.Helper()
	inBubbleWith(t, scopes, nil, test)
}

// inFarAhead is inBubble with a lookahead within which all jobs are booked: none waits in line.
func inFarAhead(t *testing.T, scopes []throttle.Scope, test func(t *testing.T, w *world)) {
	t.Helper()
	inBubbleWith(t, scopes, &throttle.Options{Lookahead: farAhead}, test)
}

// farAhead is a lookahead within which all jobs are booked.
const farAhead = 400 * 24 * time.Hour

// The defaults of throttle.Options.
const (
	timeout = 250 * time.Millisecond
	grace   = 5 * time.Second
)

func inBubbleWith(t *testing.T, scopes []throttle.Scope, opts *throttle.Options, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		t.Cleanup(m.Close)
		idle.Answer(t, m)
		t.Cleanup(letExpire(m))
		client := bubbleClient(t, m)
		var options throttle.Options
		if opts != nil {
			options = *opts
		}
		if options.Logger == nil {
			options.Logger = zap.NewNop()
		}
		th, err := throttle.New("world", client, scopes, &options)
		if err != nil {
			t.Fatal(err)
		}
		w := &world{
			t: t, redis: m, client: client, asynq: asynq.NewClientFromRedisClient(client), throttle: th, scopes: scopes,
			tasks: asynq.NewInspectorFromRedisClient(client), handle: 20 * time.Millisecond,
			runs: make(map[string]int), ended: make(map[string]time.Time), waits: make(map[string]time.Duration),
		}
		w.shaper = w.newShaper(nil)
		w.began = time.Now()
		test(t, w)
	})
}

// letExpire lets keys expire by the bubble's clock, a tenth of a second early or late,
// until the function that it returns is called. ClockTTL would be exact, but would go
// through all keys with every command, for a quarter of the time of a test.
func letExpire(m *miniredis.Miniredis) (stop func()) {
	tick, ended := time.NewTicker(100*time.Millisecond), make(chan struct{})
	go func() {
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-ended:
				return
			case now := <-tick.C:
				m.FastForward(now.Sub(last))
				last = now
			}
		}
	}()
	return func() { close(ended) }
}

// bubbleClient reaches a miniredis of the same bubble through pipes.
func bubbleClient(t *testing.T, m *miniredis.Miniredis) *redis.Client {
	client := redis.NewClient(&redis.Options{
		Addr:            "127.0.0.1:6379",
		Dialer:          func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
		DisableIdentity: true,
		// So that a throttle uses this very client, with its hooks.
		ContextTimeoutEnabled: true,
		PoolSize:              64,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// wire is another client of the world's Redis, whose commands can be tampered
// with.
type wire struct {
	client *redis.Client
	mu     sync.Mutex
	broken bool
	tamper func(cmd redis.Cmder)
}

var errCut = errors.New("the wire is cut")

func newWire(w *world) *wire {
	wire := &wire{client: bubbleClient(w.t, w.redis)}
	wire.client.AddHook(wire)
	return wire
}

// cut lets every command fail until mend. A failure takes a while, since asynq asks again
// at once and virtual time would never pass.
func (w *wire) cut() { w.turn(true) }

func (w *wire) mend() { w.turn(false) }

func (w *wire) turn(broken bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = broken
}

// before sets a function that is called before each command.
func (w *wire) before(tamper func(cmd redis.Cmder)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tamper = tamper
}

func (w *wire) pass(cmds ...redis.Cmder) error {
	w.mu.Lock()
	broken, tamper := w.broken, w.tamper
	w.mu.Unlock()
	if broken {
		time.Sleep(100 * time.Millisecond)
		return errCut
	}
	for _, cmd := range cmds {
		if tamper != nil {
			tamper(cmd)
		}
	}
	return nil
}

// DialHook implements redis.Hook.
func (w *wire) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (w *wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := w.pass(cmd); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (w *wire) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := w.pass(cmds...); err != nil {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
		return next(ctx, cmds)
	}
}

// newShaper returns another shaper of the world's throttle, as another process has.
func (w *world) newShaper(opts *worker.Options) *worker.Shaper {
	return w.newShaperOf(jobOf, opts)
}

func (w *world) newShaperOf(job worker.JobFunc, opts *worker.Options) *worker.Shaper {
	s, err := worker.New(w.throttle, w.client, job, opts)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(s.Stop)
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

// enqueue adds a task made by NewTask; its ID is its number n.
func (w *world) enqueue(n int, tenant string, weight int64, opts ...asynq.Option) string {
	id := fmt.Sprintf("%06d", n)
	w.send(worker.NewTask("mail", nil, headers(tenant, weight), append(opts, asynq.TaskID(id))...))
	return id
}

// enqueuePlain adds a task made by asynq alone, without a spare retry.
func (w *world) enqueuePlain(n int, tenant string, weight int64, opts ...asynq.Option) string {
	id := fmt.Sprintf("%06d", n)
	w.send(asynq.NewTaskWithHeaders("mail", nil, headers(tenant, weight), append(opts, asynq.TaskID(id))...))
	return id
}

func (w *world) send(task *asynq.Task, opts ...asynq.Option) {
	w.t.Helper()
	if _, err := w.asynq.Enqueue(task, opts...); err != nil {
		w.t.Fatal(err)
	}
}

func headers(tenant string, weight int64) map[string]string {
	return map[string]string{"tenant": tenant, "weight": fmt.Sprint(weight)}
}

// serve starts an asynq server with the world's shaper around its handler.
func (w *world) serve(cfg asynq.Config) *asynq.Server {
	return w.serveWith(w.shaper, cfg)
}

// serveWith starts an asynq server with a shaper of its own, as another process
// would. Its mux calls Wrap with each task.
func (w *world) serveWith(s *worker.Shaper, cfg asynq.Config) *asynq.Server {
	mux := asynq.NewServeMux()
	mux.Use(s.Wrap)
	mux.HandleFunc("mail", w.process)
	return w.start(w.client, s.Configure(cfg), mux)
}

// start starts an asynq server with this very handler. The server is shut down when the
// test ends, if the test does not do so itself.
func (w *world) start(client redis.UniversalClient, cfg asynq.Config, handler asynq.Handler) *asynq.Server {
	w.t.Helper()
	cfg.Logger, cfg.LogLevel = silent{}, asynq.FatalLevel
	server := asynq.NewServerFromRedisClient(client, cfg)
	if err := server.Start(handler); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(server.Shutdown)
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
	w.late = append(w.late, time.Since(grant.Start))
	w.waits[id] = time.Since(w.began)
	w.runs[id]++
	w.mu.Unlock()
	time.Sleep(w.handle)
	if w.result != nil {
		if err := w.result(ctx, task); err != nil {
			return err
		}
	}
	w.mu.Lock()
	w.ended[id] = time.Now()
	w.mu.Unlock()
	return nil
}

// until waits until a condition holds.
func (w *world) until(what string, within time.Duration, is func() bool) {
	w.t.Helper()
	for began := time.Now(); !is(); {
		waited := time.Since(began)
		if waited > within {
			w.t.Fatalf("not within %s: %s", within, what)
		}
		// The longer it takes, the seldomer: looking costs more than what is waited for.
		time.Sleep(min(max(10*time.Millisecond, waited/50), 250*time.Millisecond))
	}
}

// drained waits until that many tasks have ended.
func (w *world) drained(tasks int, within time.Duration) {
	w.t.Helper()
	w.until(fmt.Sprintf("%d tasks have run", tasks), within, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.ended) >= tasks
	})
}

// ran returns how often a task's handler was called.
func (w *world) ran(id string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runs[id]
}

// startOf returns when a task's handler was last called, as the time since the beginning.
func (w *world) startOf(id string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waits[id]
}

// task returns what asynq knows of a task; nil if nothing.
func (w *world) task(id string) *asynq.TaskInfo {
	w.t.Helper()
	info, err := w.tasks.GetTaskInfo("default", id)
	if err != nil && !errors.Is(err, asynq.ErrTaskNotFound) && !errors.Is(err, asynq.ErrQueueNotFound) {
		w.t.Fatal(err)
	}
	return info
}

// in returns a condition: asynq has a task in this state.
func (w *world) in(id string, state asynq.TaskState) func() bool {
	return func() bool {
		info := w.task(id)
		return info != nil && info.State == state
	}
}

// gone returns a condition: asynq is done with a task.
func (w *world) gone(id string) func() bool {
	return func() bool { return w.task(id) == nil }
}

// archived fails the test unless asynq has archived this many tasks.
func (w *world) archived(want int) {
	w.t.Helper()
	info, err := w.tasks.GetQueueInfo("default")
	if err != nil {
		w.t.Fatal(err)
	}
	if info.Archived != want {
		w.t.Errorf("%d tasks are archived, want %d", info.Archived, want)
	}
}

// used returns how many units a tenant has used and how many it has booked.
func (w *world) used(tenant string) (used, booked int64) {
	w.t.Helper()
	usage, err := inspect.New(w.throttle).Usage(w.t.Context(), "tenant", tenant)
	if err != nil {
		w.t.Fatal(err)
	}
	return usage.Limits[0].Used, usage.Limits[0].Booked
}

// checked fails the test for each window over its limit and each task that did
// not run exactly once.
func (w *world) checked(tasks int) {
	w.t.Helper()
	w.withinLimits()
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, n := range w.runs {
		if n != 1 {
			w.t.Errorf("task %s ran %d times", id, n)
		}
	}
	if len(w.runs) != tasks {
		w.t.Errorf("%d tasks ran, want %d", len(w.runs), tasks)
	}
}

// withinLimits fails the test for each window over its limit and each start
// before the granted one.
func (w *world) withinLimits() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, over := range throttletest.Check(w.scopes, w.starts) {
		w.t.Errorf("window over its limit: %s", over)
	}
	// Redis' clock has microseconds.
	if early := slices.Min(append([]time.Duration{0}, w.late...)); early < -time.Microsecond {
		w.t.Errorf("a handler was called %s before its granted start", -early)
	}
}

// makespan returns the time from the beginning until the last start.
func (w *world) makespan() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Max(values(w.waits))
}

// optimum returns the shortest makespan that the limits allow for these starts.
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
