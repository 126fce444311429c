package reliability_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// runnerVariable is the environment variable that makes this test binary a worker process
// under a running limit, and has the settings of the process.
const runnerVariable = "RELIABILITY_RUNNER"

const (
	placesAtOnce  = 20
	runsInProcess = 4 // handlers
)

var runningLease = longtest.Of(2*time.Second, 3*time.Second)

var atOnce = []throttle.Scope{{Name: throttle.Global,
	Limits: []throttle.Limit{{Units: placesAtOnce, Running: true, Lease: runningLease}}}}

// runnerSettings are the settings of a worker process under a running limit.
type runnerSettings struct {
	Name, Decide, Work string
	Process            int
}

func (s runnerSettings) notes() string { return s.Name + ":runs" } // begins and ends of handlers, as JSON

// ran is one call of a handler: noted without an end when it begins, and again at its end.
type ran struct {
	Task          string
	Process, Call int
	Job           string
	Weight        int64
	Granted       time.Time // on Redis' clock
	Start         time.Time // on Redis' clock
	Begun, Ended  time.Time // on this machine's clock
	Long          bool      // the handler takes three leases
	Lost          bool      // the handler was told that its place was lost
}

// beRunner runs the worker process under a running limit. It ends with its parent.
func beRunner(text string) error {
	var settings runnerSettings
	if err := json.Unmarshal([]byte(text), &settings); err != nil {
		return err
	}
	work := redis.NewClient(&redis.Options{Addr: settings.Work})
	th, err := throttle.New(settings.Name, redis.NewClient(&redis.Options{Addr: settings.Decide}), atOnce, nil)
	if err != nil {
		return err
	}
	shaper, err := worker.New(th, work, func(_ context.Context, task *asynq.Task) (throttle.Job, error) {
		weight, err := strconv.ParseInt(task.Headers()["weight"], 10, 64)
		return throttle.Job{Weight: weight}, err
	}, nil)
	if err != nil {
		return err
	}
	calls := make(chan int, 1)
	calls <- 0
	handler := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		grant, ok := worker.Grant(ctx)
		if !ok {
			return errNoGrant
		}
		call := <-calls
		calls <- call + 1
		id, _ := asynq.GetTaskID(ctx)
		r := ran{Task: id, Process: settings.Process, Call: call, Job: grant.Job.ID, Weight: grant.Job.Weight,
			Granted: grant.Now, Start: grant.Start}
		r.Begun = time.Now()
		again, _ := asynq.GetRetryCount(ctx)
		r.Long = settings.Process == 1 && call%8 == 0 && again == 0
		if err := r.note(work, settings.notes()); err != nil {
			return err
		}
		took, err := strconv.Atoi(task.Headers()["ms"])
		if err != nil {
			return err
		}
		if r.Long {
			took = int(3 * runningLease / time.Millisecond)
		}
		timer := time.NewTimer(time.Duration(took) * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		r.Ended, r.Lost = time.Now(), errors.Is(context.Cause(ctx), worker.ErrPlaceLost)
		return errors.Join(r.note(work, settings.notes()), ctx.Err())
	})
	server := asynq.NewServerFromRedisClient(work, shaper.Configure(asynq.Config{
		Concurrency: runsInProcess, LogLevel: asynq.FatalLevel,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 },
	}))
	if err := server.Start(shaper.Wrap(handler)); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func (r ran) note(work *redis.Client, list string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return work.RPush(context.Background(), list, text).Err()
}

// runningDrain is jobs of several weights that four processes run under one running limit.
type runningDrain struct {
	t      *testing.T
	notes  *redis.Client
	list   string
	jobs   int
	killed time.Time // when process 0 was killed
	stop   [2]time.Time
}

// TestRunningDrain_F32: one of four processes is killed, one stands still for twice the lease,
// replies are lost and scripts forgotten. By the handlers' own record no more units run at
// once than the limit allows, except for the process that stood still, whose handlers are told;
// and no place of the dead process counts when its lease is over. How soon places are used again
// and handlers are told depends on the machine as well: only LONG=1 asserts it, and
// TestPlacesOfADeadProcess in worker, in virtual time.
func TestRunningDrain_F32(t *testing.T) {
	t.Parallel()
	server, queue := redistest.Start(t), redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	name := redistest.Name(t)
	settings := runnerSettings{Name: name, Decide: proxy.Addr, Work: queue.Addr}
	d := &runningDrain{t: t, notes: queue.Client(t), list: settings.notes(), jobs: longtest.Of(200, 10_000)}
	d.enqueue(asynq.NewClientFromRedisClient(queue.Client(t)))
	var processes []*child
	for n := range 4 {
		settings.Process = n
		processes = append(processes, startSelf(t, runnerVariable, settings))
	}
	d.until("many have run", func() bool { return d.ended() > d.jobs/10 && d.holds(0) > 7 || d.ended() > d.jobs/2 })
	processes[0].kill()
	d.killed = time.Now()
	d.until("the lease of the dead process is over",
		func() bool { return time.Since(d.killed) > runningLease+time.Second })
	d.free(name, server.Client(t))
	must(t, server.Client(t).ScriptFlush(t.Context()).Err())
	for n := range 20 {
		proxy.DropReply("evalsha", 1+7*n)
	}
	d.until("the process that is to stand still runs something for long", func() bool {
		return slices.ContainsFunc(d.all(),
			func(r ran) bool { return r.Long && r.Ended.IsZero() && time.Since(r.Begun) < runningLease/2 }) ||
			d.ended() >= d.jobs-runsInProcess
	})
	must(t, processes[1].process.Process.Signal(syscall.SIGSTOP))
	d.stop[0] = time.Now()
	d.until("it has stood still for long", func() bool { return time.Since(d.stop[0]) > 2*runningLease })
	d.stop[1] = time.Now()
	must(t, processes[1].process.Process.Signal(syscall.SIGCONT))
	// asynq brings back the tasks of the dead process much later.
	d.until("the rest has run", func() bool { return d.ended() >= d.jobs-runsInProcess })
	d.check()
}

func (d *runningDrain) enqueue(client *asynq.Client) {
	d.t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	for n := range d.jobs {
		headers := map[string]string{"weight": strconv.Itoa(1 + r.IntN(5)), "ms": strconv.Itoa(50 + r.IntN(200))}
		_, err := client.Enqueue(worker.NewTask(taskType, nil, headers), asynq.TaskID(fmt.Sprintf("%06d", n)))
		must(d.t, err)
	}
}

func (d *runningDrain) until(what string, is func() bool) {
	d.t.Helper()
	interval := longtest.Of(50*time.Millisecond, 500*time.Millisecond) // each time all notes are read
	poll := time.NewTicker(interval)
	defer poll.Stop()
	for range int(longtest.Of(2*time.Minute, 20*time.Minute) / interval) {
		if is() {
			return
		}
		<-poll.C
	}
	d.t.Fatalf("%s: not in time, %d of %d have ended", what, d.ended(), d.jobs)
}

// free checks that no place of the dead process counts any more.
func (d *runningDrain) free(name string, client redis.UniversalClient) {
	d.t.Helper()
	th, err := throttle.New(name, client, atOnce, &throttle.Options{Timeout: time.Minute})
	must(d.t, err)
	var dead []throttle.Reservation
	for _, r := range d.all() {
		if r.Process == 0 && r.Ended.IsZero() {
			dead = append(dead, throttle.Reservation{Job: throttle.Job{ID: r.Job, Weight: r.Weight},
				Outcome: throttle.Granted, Start: r.Start, Lease: runningLease})
		}
	}
	held, err := th.Done(d.t.Context(), dead...)
	must(d.t, err)
	for i, counts := range held {
		if counts {
			d.t.Errorf("%s of the dead process counts when its lease is over", dead[i].Job.ID)
		}
	}
}

// all returns the handlers' calls so far.
func (d *runningDrain) all() []ran {
	calls := make(map[[2]int]ran)
	for _, text := range d.notes.LRange(d.t.Context(), d.list, 0, -1).Val() {
		var r ran
		must(d.t, json.Unmarshal([]byte(text), &r))
		calls[[2]int{r.Process, r.Call}] = r
	}
	var all []ran
	for _, r := range calls {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b ran) int { return a.Begun.Compare(b.Begun) })
	return all
}

func (d *runningDrain) ended() int {
	tasks := make(map[string]bool)
	for _, r := range d.all() {
		if !r.Ended.IsZero() && !r.Lost {
			tasks[r.Task] = true
		}
	}
	return len(tasks)
}

// holds returns how many units run in a process now.
func (d *runningDrain) holds(process int) (units int64) {
	for _, r := range d.all() {
		if r.Process == process && r.Ended.IsZero() {
			units += r.Weight
		}
	}
	return units
}

func (d *runningDrain) check() {
	d.t.Helper()
	var runs []throttletest.Start
	var dead, told int64
	lease := runningLease + runningLease/500
	for _, r := range d.all() {
		end := r.Ended
		switch {
		case r.Process == 0 && (end.IsZero() || end.After(d.killed)):
			dead, end = dead+r.Weight, d.killed
		case r.Process == 1 && !r.Begun.Before(d.stop[0]) && r.Granted.Before(d.stop[1].Add(-lease)):
			continue // granted before its process stood still, and begun after that
		case r.Process == 1 && r.Begun.Before(d.stop[0]) && (end.IsZero() || end.After(d.stop[0])):
			if r.Lost {
				told++
			} else if end.IsZero() || end.After(d.stop[1].Add(time.Second)) {
				timely(d.t, "%s ran on from %s to %s, and was not told that its place was lost", r.Task, r.Begun, end)
			}
			end = d.stop[0]
		case r.Lost:
			timely(d.t, "%s of process %d was told that its place was lost after %s", r.Task, r.Process, end.Sub(r.Begun))
			continue // its process stood still too, for as long as a lease
		}
		runs = append(runs, throttletest.Start{At: r.Begun, End: end, Weight: r.Weight})
	}
	for _, over := range throttletest.Check(atOnce, runs) {
		d.t.Error(over)
	}
	again, full := d.usedAgain(runs), int64(0)
	for _, r := range runs {
		full = max(full, sumAt(runs, r.At))
	}
	d.t.Logf("%d calls, up to %d units at once; %d units died, all places were used again after %s; %d were told",
		len(runs), full, dead, again, told)
	if told == 0 {
		timely(d.t, "no handler was told that its place was lost")
	}
	if dead < 5 || full < placesAtOnce-2 {
		timely(d.t, "%d units died, and up to %d ran at once: this test has tested nothing", dead, full)
	}
	if again > runningLease+time.Second {
		timely(d.t, "the dead process' places were used again after %s, want up to %s", again, runningLease+time.Second)
	}
}

// usedAgain returns how long after the kill the units in the other processes reached the limit again.
func (d *runningDrain) usedAgain(runs []throttletest.Start) time.Duration {
	for _, r := range runs {
		if r.At.After(d.killed) && sumAt(runs, r.At) > placesAtOnce-5 {
			return r.At.Sub(d.killed)
		}
	}
	return time.Hour
}

func sumAt(runs []throttletest.Start, at time.Time) (units int64) {
	for _, r := range runs {
		if !r.At.After(at) && (r.End.IsZero() || r.End.After(at)) {
			units += r.Weight
		}
	}
	return units
}
