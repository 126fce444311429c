package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// world is asynq's servers, the throttle and a Redis in one bubble of virtual time.
type world struct {
	t       *testing.T
	plan    *plan
	name    string
	backend backend
	redis   *exchange
	account *account
	over    chan struct{} // closed when all is over: goroutines that are held go on, and fail
	began   time.Time
	latest  time.Time // the time to which Redis' keys have aged

	operator *running // a process without a server: enqueues and does what people do by hand
	client   *asynq.Client
	planner  *worker.Client
	tasks    *asynq.Inspector
	jobs     map[string]*job

	mu        sync.Mutex
	step      time.Duration // the sum of the steps of Redis' clock
	turns     []turned      // the steps of Redis' clock
	processes []*running
	runs      map[string][]*call  // the handlers' calls, by job
	byHand    map[string]mischief // what ended jobs: deletion, archive
	refused   map[string]bool     // jobs that were refused, because a line was full
	failures  int
	nights    int
	slept     time.Duration // the time that passed in nights
	asleep    atomic.Bool
	morning   chan struct{}  // wakes what ages the keys
	events    sync.WaitGroup // the events of the plan
	pending   sync.WaitGroup // goroutines that end when all is over
}

// call is one call of a handler.
type call struct {
	job         *job
	on          *running
	charge      *charge
	begins      time.Time
	ends        time.Time // zero while it runs
	interrupted bool      // its process died or ended meanwhile
}

// running is a process of the world, alive or dead.
type running struct {
	process
	n        int
	wire     *wire
	throttle *throttle.Throttle
	shaper   *worker.Shaper
	server   *asynq.Server

	mu      sync.Mutex
	faults  []time.Time // when it died, was stopped or did not reach Redis
	ended   bool
	stopped bool
	died    time.Time
}

// live runs one plan in a bubble.
func live(t *testing.T, p *plan, b backend) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(p.begins))
		w := &world{
			t: t, plan: p, name: "sim", backend: b, over: make(chan struct{}), began: time.Now(), latest: time.Now(),
			turns: []turned{{at: time.Now()}},
			runs:  make(map[string][]*call), byHand: make(map[string]mischief), jobs: make(map[string]*job),
			refused: make(map[string]bool), morning: make(chan struct{}, 1),
		}
		w.redis = b.open(w)
		w.account = newAccount(w)
		for _, j := range p.jobs {
			w.jobs[j.id] = j
		}
		w.operate()
		w.run()
		w.end()
	})
}

// errorf notes that an invariant is broken.
func (w *world) errorf(format string, args ...any) {
	w.mu.Lock()
	w.failures++
	n := w.failures
	w.mu.Unlock()
	if n <= 10 {
		w.t.Errorf("at %s: "+format, append([]any{time.Since(w.began)}, args...)...)
	}
}

// now returns the time of Redis' clock.
func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.step)
}

// stamp puts Redis' clock into a script's call, where a script would read it.
func (w *world) stamp(request []byte, args []string) ([]byte, []string) {
	if !ofThrottle(args) {
		return request, args
	}
	n, err := strconv.Atoi(args[2])
	if at := 3 + n; err == nil && at < len(args) && args[at] == "" {
		args[at] = strconv.FormatInt(w.now().UnixMicro(), 10)
		return encode(args...), args
	}
	return request, args
}

func (w *world) newThrottle(wire *wire) *throttle.Throttle {
	options := w.plan.options
	options.Advance = wire.advance
	th, err := throttle.New(w.name, wire.client, w.plan.scopes, &options)
	if err != nil {
		w.t.Fatal(err)
	}
	return th
}

// operate makes the operator's process, which enqueues jobs and does what people do by hand.
func (w *world) operate() {
	wire := newWire(w, process{})
	w.operator = &running{n: -1, wire: wire, throttle: w.newThrottle(wire)}
	w.client = asynq.NewClientFromRedisClient(wire.client)
	w.tasks = asynq.NewInspectorFromRedisClient(wire.client)
	var err error
	if w.planner, err = worker.NewClient(w.operator.throttle, wire.client, jobOf, nil); err != nil {
		w.t.Fatal(err)
	}
}

// begin starts a process.
func (w *world) begin(p process) {
	wire := newWire(w, p)
	r := &running{process: p, wire: wire, throttle: w.newThrottle(wire)}
	var err error
	if r.shaper, err = worker.New(r.throttle, wire.client, jobOf, &worker.Options{MaxWait: p.maxWait}); err != nil {
		w.t.Error(err)
		return
	}
	r.server = asynq.NewServerFromRedisClient(wire.client, r.shaper.Configure(asynq.Config{
		Concurrency: p.concurrency, TaskCheckInterval: p.check, DelayedTaskCheckInterval: p.delay,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return p.retry },
		Logger:         silent{}, LogLevel: asynq.FatalLevel,
	}))
	handler := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error { return w.handle(ctx, r) })
	if err := r.server.Start(r.shaper.Wrap(handler)); err != nil {
		w.t.Error(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r.n = len(w.processes)
	w.processes = append(w.processes, r)
}

// alive returns the processes that have not ended.
func (w *world) alive() []*running {
	w.mu.Lock()
	defer w.mu.Unlock()
	var alive []*running
	for _, r := range w.processes {
		r.mu.Lock()
		if !r.ended {
			alive = append(alive, r)
		}
		r.mu.Unlock()
	}
	return alive
}

// fault notes that something happened to a process that lets tasks run twice.
func (r *running) fault(ends bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, time.Now())
	r.ended = r.ended || ends
}

// faulted reports whether something happened to a process in an interval.
func (r *running) faulted(from, to time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range r.faults {
		if !at.Before(from) && !at.After(to) {
			return true
		}
	}
	return false
}

// die ends a process in the middle of what it does.
func (w *world) die(r *running) {
	r.wire.kill()
	r.fault(true)
	r.died = time.Now()
	w.pending.Go(r.shaper.Stop) // it may ask Redis, and gets no answer
}

// stop ends a process in order.
func (r *running) stop() {
	r.fault(true)
	r.shaper.Stop()
	r.server.Shutdown()
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
	r.fault(true)
}

// run lets the plan happen, and returns when all jobs have ended.
func (w *world) run() {
	done := make(chan struct{})
	for _, p := range w.plan.processes {
		w.at(p.begins, done, func() { w.begin(p) })
	}
	for _, f := range w.plan.faults {
		w.at(f.at, done, func() { w.happen(f, done) })
	}
	for _, s := range w.plan.said {
		w.at(s.at, done, func() { w.say(s) })
	}
	for i := 0; i < len(w.plan.jobs); {
		n := i + 1
		for n < len(w.plan.jobs) && w.plan.jobs[n].arrives == w.plan.jobs[i].arrives {
			n++
		}
		some := w.plan.jobs[i:n]
		w.at(some[0].arrives, nil, func() { w.enqueue(some) })
		i = n
	}
	for at := time.Duration(0); at < 2*w.plan.span; at += w.plan.span / 8 {
		w.at(at, done, w.audit)
	}
	w.pending.Go(w.age)
	w.await()
	close(done)
	w.events.Wait()
}

// leap is how often Redis' keys age.
const leap = 500 * time.Millisecond

// age makes keys expire as time goes on.
func (w *world) age() {
	for {
		next := leap
		if w.asleep.Load() {
			next = 3 * time.Hour
		}
		select {
		case <-w.morning:
		case <-time.After(next):
			w.redis.mu.Lock()
			w.backend.age(w)
			w.redis.mu.Unlock()
		case <-w.over:
			return
		}
	}
}

// at calls do at an instant, unless all is done before.
func (w *world) at(at time.Duration, done <-chan struct{}, do func()) {
	w.events.Go(func() {
		select {
		case <-time.After(time.Until(w.began.Add(at))):
			do()
		case <-done:
		}
	})
}

// enqueue adds jobs that arrive together; one call enqueues all planned jobs among them.
func (w *world) enqueue(jobs []*job) {
	var tasks []*asynq.Task
	var of []*job
	for _, j := range jobs {
		headers := map[string]string{"tenant": j.tenant, "weight": strconv.FormatInt(j.weight, 10),
			"priority": strconv.Itoa(j.priority), "costs": costsText(j.costs)}
		if j.domain != "" {
			headers["domain"] = j.domain
		}
		options := []asynq.Option{asynq.TaskID(j.id), asynq.MaxRetry(j.retries)}
		switch j.how {
		case plain:
			w.send(asynq.NewTaskWithHeaders("mail", nil, headers, options...))
		case spare:
			w.send(worker.NewTask("mail", nil, headers, options...))
		default:
			tasks, of = append(tasks, worker.NewTask("mail", nil, headers, options...)), append(of, j)
		}
	}
	if len(tasks) > 0 {
		plan, _ := w.planner.EnqueueAll(w.t.Context(), tasks)
		w.take(of, plan)
	}
}

func (w *world) send(task *asynq.Task) {
	if _, err := w.client.Enqueue(task); err != nil {
		w.errorf("a task is not enqueued: %v", err)
	}
}

// jobOf reads a job from a task's headers.
func jobOf(_ context.Context, task *asynq.Task) (throttle.Job, error) {
	headers := task.Headers()
	job := throttle.Job{Weight: number(headers["weight"]), Priority: int(number(headers["priority"])),
		Keys: map[string]string{"tenant": headers["tenant"]}, Costs: costsIn(headers["costs"])}
	if domain := headers["domain"]; domain != "" {
		job.Keys["domain"] = domain
	}
	return job, nil
}

var (
	errScripted = errors.New("simulation: as drawn")
	errDead     = errors.New("simulation: the process is dead")
)

// handle handles every task.
func (w *world) handle(ctx context.Context, r *running) error {
	id, _ := asynq.GetTaskID(ctx)
	if r.wire.isDead() {
		return errDead // the start was still ahead
	}
	c := w.called(ctx, r, w.jobs[id])
	time.Sleep(c.job.handle)
	if r.wire.isDead() {
		return errDead
	}
	w.hear(ctx, c.job)
	o := w.next(c)
	var err error
	switch o.does {
	case fails, panics:
		err = errScripted
	case untouched:
		err = worker.Untouched(errScripted)
	case waits:
		err = worker.AskedToWait(o.scope, o.wait, nil)
	case skips:
		err = fmt.Errorf("%w: %w", errScripted, asynq.SkipRetry)
	case settles:
		if err := o.settle(ctx); err != nil && !errors.Is(err, throttle.ErrUnavailable) {
			w.errorf("Settle: %v", err)
		}
	}
	w.mu.Lock()
	c.ends, c.interrupted = time.Now(), r.wire.isDead()
	w.mu.Unlock()
	if o.does == panics {
		panic(errScripted)
	}
	return err
}

// called notes that a handler is called, and compares its grant with the account.
func (w *world) called(ctx context.Context, r *running, j *job) *call {
	c := &call{job: j, on: r, begins: time.Now(), interrupted: true}
	grant, has := worker.Grant(ctx)
	w.redis.mu.Lock()
	if grant.Advanced {
		c.charge = w.account.started(r, grant)
		w.account.charges[chargeName(c.charge.job, c.charge.at)] = append(
			w.account.charges[chargeName(c.charge.job, c.charge.at)], c.charge)
	} else {
		c.charge = w.account.unused(grant.Job.ID, grant.Start.UnixMicro())
	}
	switch charge := c.charge; {
	case !has || charge == nil:
		w.errorf("%s runs without a grant", j.id)
	case charge.run:
		w.errorf("%s runs twice under one grant: %s", j.id, charge)
	case charge.gone || !maps.Equal(charge.under(), w.plan.charges(j)):
		w.errorf("%s runs under another grant than what is charged: %s", j.id, charge)
	case time.Since(charge.answered) < charge.delay-time.Microsecond:
		w.errorf("%s runs %s after its grant, %s before its start", j.id, time.Since(charge.answered),
			charge.delay-time.Since(charge.answered))
	default:
		charge.run = true
	}
	w.redis.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs[j.id] = append(w.runs[j.id], c)
	return c
}

// next returns what a call does: the first outcome that no call has reached yet.
func (w *world) next(c *call) outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, other := range w.runs[c.job.id] {
		if !other.interrupted {
			n++
		}
	}
	if n >= len(c.job.outcomes) {
		return outcome{}
	}
	return c.job.outcomes[n]
}

// silent is a logger that writes nothing.
type silent struct{}

func (silent) Debug(...any) {}
func (silent) Info(...any)  {}
func (silent) Warn(...any)  {}
func (silent) Error(...any) {}
func (silent) Fatal(...any) {}
