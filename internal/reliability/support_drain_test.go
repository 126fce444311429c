package reliability_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/internal/reliability"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

const (
	window  = time.Second
	tenants = 5
)

// The throttle's defaults, which the tests wait for.
const (
	lookahead   = time.Second
	grace       = 5 * time.Second
	timeout     = 250 * time.Millisecond
	breakPeriod = 500 * time.Millisecond
)

// windows is how many windows a drain fills.
var windows = longtest.Of(6, 8)

// units is how many units all tenants together may start in a window. The race detector leaves
// time for fewer.
var units = map[bool]int64{false: longtest.Of[int64](100, 300), true: 100}[longtest.Watched]

// quotas are the scopes of most drains. Each tenant's limit is its part of the global limit, so that both are full at
// the same time.
var quotas = []throttle.Scope{
	{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(units, window)}},
	{Name: "tenant", Limits: []throttle.Limit{throttle.Per(units/tenants, window)}},
}

// counted has the scopes of quotas, and a window of an hour in which Count finds all charges.
var counted = []throttle.Scope{
	{Name: throttle.Global, Limits: append([]throttle.Limit{{Units: 1_000_000, Window: time.Hour}}, quotas[0].Limits...)},
	quotas[1],
}

// reach is how a worker process reaches its servers: each call returns a new client.
type reach struct{ decide, work func() redis.UniversalClient }

// drain is jobs of several tenants that worker processes run under limits.
type drain struct {
	*record
	answers
	t         *testing.T
	name      string // the throttle's name
	scopes    []throttle.Scope
	jobs      int
	reach     reach
	throttle  *throttle.Throttle // over a connection that no fault strikes
	direct    redis.UniversalClient
	queue     redis.UniversalClient
	tasks     *asynq.Inspector
	processes []*process
	stalls    *stalls
	ask       func(context.Context) error // calls the throttle's server, for stalls; nil if that fails over
	release   func()                      // lets another drain have this one's turn
	really    func(start) start           // puts a start on a clock that does not step; nil if no clock steps
}

// turns bounds how many drains are busy at the same time. A drain that only waits, for asynq's
// own time or for its recoverer, needs no turn.
var turns = make(chan struct{}, longtest.Of(6, 2))

// newDrain makes a drain without worker processes. The direct clients reach the servers of
// the throttle and of the queue whatever happens to the workers' network.
func newDrain(t *testing.T, name string, scopes []throttle.Scope, r reach, direct, queue redis.UniversalClient) *drain {
	t.Helper()
	d := &drain{
		record: newRecord(), t: t, name: name, scopes: scopes, reach: r, direct: direct, queue: queue,
		tasks: asynq.NewInspectorFromRedisClient(queue),
	}
	var err error
	if d.throttle, err = throttle.New(d.name, direct, scopes, &throttle.Options{Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	return d
}

// begin waits for this drain's turn, starts worker processes, and enqueues the jobs. It spreads the jobs of the first
// window over a window, so that jobs start evenly from then on, and enqueues the others at once.
func (d *drain) begin(processes int) {
	d.t.Helper()
	turns <- struct{}{}
	d.release = sync.OnceFunc(func() { <-turns })
	d.t.Cleanup(d.release)
	d.stalls = newStalls(d.t, d.ask)
	d.run(processes)
	tick := time.NewTicker(window / time.Duration(units))
	defer tick.Stop()
	for range units {
		<-tick.C
		d.enqueue(1)
	}
	d.enqueue((windows - 1) * int(units))
}

// enqueue enqueues more jobs, one of each tenant in turn.
func (d *drain) enqueue(jobs int) {
	d.t.Helper()
	client := asynq.NewClientFromRedisClient(d.queue)
	numbers := make(chan int)
	var clients sync.WaitGroup
	for range min(jobs, 8) {
		clients.Go(func() {
			for n := range numbers {
				task := worker.NewTask(taskType, nil, map[string]string{"tenant": fmt.Sprintf("t%d", n%tenants)})
				if _, err := client.Enqueue(task, asynq.TaskID(fmt.Sprintf("%06d", n))); err != nil {
					d.t.Error(err)
				}
			}
		})
	}
	for range jobs {
		numbers <- d.jobs
		d.jobs++
	}
	close(numbers)
	clients.Wait()
}

// apart starts a server for the throttle and another for asynq, and drains with two
// worker processes. The options are for the throttle's server.
func apart(t *testing.T, options ...string) (*drain, *redistest.Server) {
	t.Helper()
	server := redistest.Start(t, options...)
	return apartBy(t, server, quotas, func() redis.UniversalClient { return server.Client(t) }), server
}

// apartBy does what apart does, with the caller's own clients of the throttle's server.
func apartBy(t *testing.T, server *redistest.Server, scopes []throttle.Scope,
	decide func() redis.UniversalClient) *drain {
	t.Helper()
	queue := redistest.Start(t)
	d := newDrain(t, redistest.Name(t), scopes,
		reach{decide, func() redis.UniversalClient { return queue.Client(t) }}, server.Client(t), queue.Client(t))
	direct := server.Client(t)
	d.ask = func(ctx context.Context) error { return direct.Ping(ctx).Err() }
	d.begin(2)
	return d
}

// run starts worker processes.
func (d *drain) run(processes int) {
	d.t.Helper()
	for range processes {
		p, err := newProcess(d.name, d.scopes, d.reach.decide(), d.reach.work(), &d.answers)
		if err == nil {
			err = p.run(d.record, d.add)
		}
		if err != nil {
			d.t.Fatal(err)
		}
		d.processes = append(d.processes, p)
		d.t.Cleanup(p.stop)
	}
}

// until polls, in real time. It counts polls and reads no clock: a machine that stands still for
// a while causes no failure. Nor does a slow one: the count begins again with each job that starts.
func (d *drain) until(what string, within time.Duration, is func() bool) {
	d.t.Helper()
	const interval = 2 * time.Millisecond
	poll := time.NewTicker(interval)
	defer poll.Stop()
	begun := 0
	for left := within / interval; left > 0; left-- {
		if is() {
			return
		}
		if now := d.begun(); now > begun {
			begun, left = now, within/interval
		}
		<-poll.C
	}
	d.t.Fatalf("not within %s: %s; %d of %d jobs have started", within, what, d.begun(), d.jobs)
}

// amid waits until the drain is well under way: two windows are full, and the window that ends now is full too.
func (d *drain) amid() {
	d.t.Helper()
	d.until("two windows have run", time.Minute, func() bool { return d.begun() >= 2*int(units) })
}

// last lets a fault last. It is no synchronisation: each check uses the measured length.
func (d *drain) last(length time.Duration) {
	d.t.Helper()
	select {
	case <-time.After(length):
	case <-d.t.Context().Done():
	}
}

// lose strikes with a loss of data when a window is nearly full, or, on a busy machine, when many
// jobs have started. It enqueues jobs that find all limits unused: without them the booked jobs come
// one by one, each at its slot.
func (d *drain) lose(data func()) fault {
	d.t.Helper()
	d.amid()
	d.until("a window is full", time.Minute,
		func() bool { return d.within(window) > 3*int(units)/4 || d.begun() > 4*int(units) })
	f := d.strike(data, 0, nil)
	d.enqueue(int(units))
	return f
}

// fault is the time of a fault, by this machine's clock.
type fault struct{ began, ended time.Time }

// strike begins a fault amid the drain, lets it last, and ends it. If end is nil, the fault is
// over once it has begun.
func (d *drain) strike(begin func(), length time.Duration, end func()) fault {
	d.t.Helper()
	d.amid()
	f := fault{began: time.Now()}
	begin()
	if end != nil {
		d.last(length)
		end()
	}
	f.ended = time.Now()
	return f
}

// allowance is how far a case may deviate from the promise.
type allowance struct {
	loses  bool          // acknowledged data is lost for sure
	lost   int           // how many units are lost, if the case has counted them itself
	within time.Duration // how soon after the fault the next job starts; 0 is a second
	again  int           // jobs that run twice, since their worker or its writes were lost
	// recoverer: asynq lost track of tasks, and its recoverer brings them back
	// when their lease of 30 s and 30 s more are over. The recoverer looks each minute, and
	// when a server starts: so finish starts one more process then.
	recoverer bool
	// stepped: the clock of the scripts steps, also backward. A booking that was made while time stands still in a
	// ledger may count until its grace is over.
	stepped bool
}

// anyNumber allows any number of jobs to run again: they are counted, and their number is not known before.
const anyNumber = -1

// forgotten is how long asynq takes to give up a task on which no worker works.
const forgotten = 62 * time.Second

// finish waits for the rest of the drain, stops the processes and compares what happened with
// the promise.
func (d *drain) finish(f fault, row reliability.Row, may allowance) {
	d.t.Helper()
	d.until("asynq is done with all tasks", 4*time.Minute, func() bool {
		if d.quiet() {
			d.release()
		}
		if may.recoverer && time.Since(f.ended) > forgotten {
			may.recoverer = false
			d.run(1)
		}
		if d.begun() < d.jobs {
			return false
		}
		info, err := d.tasks.GetQueueInfo("default")
		return err == nil && info.Size == 0
	})
	d.release()
	for _, p := range d.processes {
		p.stop()
	}
	starts := d.all()
	if d.really != nil {
		for i := range starts {
			starts[i] = d.really(starts[i])
		}
	}
	row.Jobs, row.Fault = d.jobs, f.ended.Sub(f.began)
	row.Took = starts[len(starts)-1].Begun.Sub(starts[0].Begun)
	d.ran(starts, may, &row)
	d.kept(f, starts, may, &row)
	d.recovered(f, starts, may, &row)
	d.left(may, row.Lost)
	row.PutBack = float64(d.putBacks()) / float64(d.jobs)
	for _, p := range d.processes {
		stats := p.shaper.Stats()
		if stats.Unchecked != 0 || stats.Ended != 0 {
			d.t.Errorf("%d tasks ran unchecked and %d were ended, want none", stats.Unchecked, stats.Ended)
		}
	}
	d.write(row)
}

// write writes the row of what was measured.
func (d *drain) write(row reliability.Row) {
	d.t.Helper()
	d.t.Logf("%+v; put back since Redis could not decide: %v", row, d.refused)
	if path := os.Getenv(reliability.RowsVariable); path != "" {
		if err := row.Append(path); err != nil {
			d.t.Error(err)
		}
	}
}

// putBacks returns how often tasks were put back.
func (d *drain) putBacks() (n int64) {
	for _, p := range d.processes {
		n += p.shaper.Stats().PutBack
	}
	return n
}

// ran checks that each job ran, and ran once.
func (d *drain) ran(starts []start, may allowance, row *reliability.Row) {
	d.t.Helper()
	of := runs(starts)
	row.Ran = len(of)
	for id, n := range of {
		if n > 1 {
			row.Twice++
		}
		if n > 2 {
			d.t.Errorf("task %s ran %d times", id, n)
		}
	}
	if row.Ran != d.jobs {
		d.t.Errorf("%d jobs ran, want %d", row.Ran, d.jobs)
	}
	if row.Twice != may.again && may.again != anyNumber {
		d.t.Errorf("%d jobs ran twice, want %d", row.Twice, may.again)
	}
}

// kept checks that the limits were kept: a window exceeds its limit by no more units than
// charges were lost, and never by more than one limit.
func (d *drain) kept(f fault, starts []start, may allowance, row *reliability.Row) {
	d.t.Helper()
	row.Lost = may.lost
	if may.loses && may.lost == 0 {
		row.Lost = charged(starts, f.ended)
	}
	if may.loses && row.Lost == 0 {
		timely(d.t, "nothing was lost: this test has tested nothing")
	}
	over := throttletest.Check(d.scopes, checkable(starts))
	row.Over = len(over)
	for _, o := range over {
		extra := o.Units - o.Limit.Units
		row.Extra = max(row.Extra, extra)
		if extra > min(int64(row.Lost), o.Limit.Units) {
			d.t.Errorf("window over its limit, %d units were lost: %s", row.Lost, o)
		}
	}
}

// charged returns how many units were charged before an instant and count in a window that
// ends after it.
func charged(starts []start, at time.Time) (n int) {
	for _, s := range starts {
		if s.Decided.Before(at) && s.At.After(at.Add(-window)) {
			n++
		}
	}
	return n
}

// recovered checks that Redis decides again after the end of the fault, within a second in runs with
// LONG=1, and that jobs start again.
func (d *drain) recovered(f fault, starts []start, may allowance, row *reliability.Row) {
	d.t.Helper()
	since := func(what string, at time.Time, within time.Duration) time.Duration {
		d.t.Helper()
		took := at.Sub(f.ended)
		bound, stalled := within, d.stalls.of(f.ended, at)
		if stalled > 0 {
			// A call that tries Redis again may have failed because of it, which costs one more.
			bound += stalled + timeout + breakPeriod
		}
		if took < 0 {
			d.t.Errorf("%s %s after the fault", what, took)
		}
		if took > bound {
			timely(d.t, "%s %s after the fault, want at most %s", what, took, bound)
		}
		return took
	}
	row.Decided = since("the first decision is", d.firstAfter(f.ended), time.Second)
	after := slices.IndexFunc(starts, func(s start) bool { return s.Begun.After(f.ended) })
	if after < 0 || len(starts)-after < int(units)/4 {
		timely(d.t, "%d of %d jobs had started when the fault ended: it came too late to show anything", after, len(starts))
		return
	}
	row.Started = since("the first start is", starts[after].Begun, cmp.Or(may.within, time.Second))
}

// left checks that no capacity is held back, and that no key stays for ever. The one exception
// is the booking of a job whose grant was lost: no job asks for it, so it counts until its grace
// is over.
func (d *drain) left(may allowance, lost int) {
	d.t.Helper()
	ctx := context.WithoutCancel(d.t.Context())
	th := d.throttle
	if may.stepped { // the throttle must read the same stepped clock
		var err error
		th, err = throttle.New(d.name, d.reach.decide(), d.scopes, &throttle.Options{Timeout: time.Minute})
		must(d.t, err)
	}
	booked := d.booked(ctx, th)
	if booked > int64(lost) && !may.stepped {
		jobs, err := d.direct.HGetAll(ctx, "thr:{"+d.name+"}:4:jobs").Result()
		d.t.Errorf(
			"%d units are booked at the end, want at most the %d whose grants were lost; known of jobs: %v, %v",
			booked, lost, jobs, err)
	}
	if booked != 0 {
		ended := func() bool { return d.booked(ctx, th) == 0 }
		d.until("bookings have ended", longtest.Of(time.Minute, grace+lookahead), ended)
	}
	keys := d.keys("thr:{" + d.name + "}:4:*")
	if len(keys) == 0 {
		d.t.Error("the throttle has no keys: they were looked for in the wrong place")
	}
	for _, key := range keys {
		if ttl, err := d.direct.PTTL(ctx, key).Result(); err != nil || ttl == -1 {
			d.t.Errorf("key %s: lives %v (%v), want an expiry", key, ttl, err)
		}
	}
}

// booked returns how many units of the global limit are booked.
func (d *drain) booked(ctx context.Context, th *throttle.Throttle) int64 {
	d.t.Helper()
	usage, err := inspect.New(th).Usage(ctx, throttle.Global, "")
	must(d.t, err)
	return usage.Limits[0].Booked
}

// charges returns how many units one server has charged in all to starts longer ago than ago. The
// throttle's scopes must be counted.
func (d *drain) charges(client *redis.Client, ago time.Duration) int {
	d.t.Helper()
	th, err := throttle.New(d.name, client, d.scopes, &throttle.Options{Timeout: time.Minute})
	must(d.t, err)
	n, err := inspect.New(th).Count(d.t.Context(), throttle.Global, "", time.Hour, max(0, ago))
	must(d.t, err)
	return int(n)
}

// keys returns the keys on the throttle's servers that match.
func (d *drain) keys(match string) (keys []string) {
	d.t.Helper()
	ctx := context.WithoutCancel(d.t.Context())
	scan := func(ctx context.Context, node *redis.Client) error {
		all := node.Scan(ctx, 0, match, 1000).Iterator()
		for all.Next(ctx) {
			keys = append(keys, all.Val())
		}
		return all.Err()
	}
	var err error
	switch client := d.direct.(type) {
	case *redis.ClusterClient:
		err = client.ForEachMaster(ctx, scan)
	case *redis.Client:
		err = scan(ctx, client)
	}
	if err != nil {
		d.t.Errorf("scan: %v", err)
	}
	return keys
}
