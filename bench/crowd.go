package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// The limits of a crowd, and its lanes, which get its jobs in turn.
const (
	crowdLimit = 500 // a second, for all lanes; each lane may use twice its part of it
	crowdLanes = 20
)

// pullsAnyway is how often a process pulls when nothing is due, as in the package worker.
const pullsAnyway = 500 * time.Millisecond

// crowd is a number of processes that share a throttle and have no other load. A job that asks, also for its slot,
// comes to the next process in turn, as if all processes took jobs from one queue.
type crowd struct {
	processes []*process
	fail      context.CancelCauseFunc
	running   sync.WaitGroup

	next, started atomic.Int64
	calls         callCount
}

// callCount is a hook of go-redis that counts calls of scripts.
type callCount struct {
	passing
	reserves, pulls atomic.Int64
}

// ProcessHook counts a call of a script.
func (c *callCount) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		switch scriptOf(command) {
		case "reserve":
			c.reserves.Add(1)
		case "pull":
			c.pulls.Add(1)
		}
		return next(ctx, command)
	}
}

// process is a throttle with a client of its own.
type process struct {
	crowd    *crowd
	client   *redis.Client
	throttle *throttle.Throttle
	driver   throttle.Driver
}

// situation is the load of a crowd.
type situation struct {
	name      string
	perSecond int  // new jobs of all processes
	waiting   int  // jobs that wait at the start
	paused    bool // the global scope key is paused for an hour
}

var situations = []situation{
	{"none, nothing waits", 0, 0, false},
	{"none, a job waits an hour", 0, 1, true},
	{"half the limit, with room", crowdLimit / 2, 0, false},
	{"the limit, behind a backlog", crowdLimit, 4 * crowdLimit, false},
}

// crowds measures few processes and many, in each situation.
func crowds(ctx context.Context, b *bench) error {
	length := time.Duration(b.jobs) * 4 * time.Millisecond
	b.say("jobs come to the processes in turn, to %d hot lanes, under %d/1s for all and %d/1s per tenant, for %s:",
		crowdLanes, crowdLimit, 2*crowdLimit/crowdLanes, length)
	b.say("")
	b.say("| new jobs | processes | starts/s | reserves/s | pulls/s | calls per job | µs of CPU per job | %% of a core |")
	b.say("|---|---|---|---|---|---|---|---|")
	idle := make(map[int]float64)
	for _, of := range situations {
		for _, processes := range []int{5, 50} {
			is, err := crowdIn(ctx, processes, of, length)
			if err != nil {
				return fmt.Errorf("%d processes, %s: %w", processes, of.name, err)
			}
			b.say("| %s | %d | %.0f | %.0f | %.0f | %s | %s | %.1f |", of.name, processes, is.starts, is.reserves, is.pulls,
				perStart(is.reserves+is.pulls, is.starts, 2), perStart(1e6*is.part, is.starts, 0), 100*is.part)
			if of.paused {
				idle[processes] = is.part
			}
		}
	}
	b.say("")
	b.most("part of a core for the pulls of 50 processes while nothing is due", idle[50], 0.1)
	return nil
}

// perStart divides a figure by the starts, and writes it with the given number of digits. It returns a dash if no job
// starts.
func perStart(all, starts float64, digits int) string {
	if starts == 0 {
		return "-"
	}
	return strconv.FormatFloat(all/starts, 'f', digits, 64)
}

// crowdFigures are what a crowd does in a second.
type crowdFigures struct{ starts, reserves, pulls, part float64 } // part: the part of a core that the server takes

// crowdIn measures a crowd for a length of time. Before that, the crowd runs for as long, at most a second.
func crowdIn(ctx context.Context, processes int, of situation, length time.Duration) (is crowdFigures, err error) {
	err = withServer(ctx, func(s *server) error {
		ctx, fail := context.WithCancelCause(ctx)
		c := &crowd{fail: fail}
		defer func() {
			fail(context.Canceled)
			c.running.Wait()
			for _, p := range c.processes {
				_ = p.client.Close() // nothing is lost with it
			}
		}()
		for range processes {
			if err := c.add(s); err != nil {
				return err
			}
		}
		if err := c.prepare(ctx, of); err != nil {
			return err
		}
		c.start(ctx, of.perSecond)
		if err := sleep(ctx, min(length, time.Second)); err != nil {
			return context.Cause(ctx)
		}
		starts, reserves, pulls := c.started.Load(), c.calls.reserves.Load(), c.calls.pulls.Load()
		spent, err := s.during(ctx, func() error { return sleep(ctx, length) })
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		took := spent.took.Seconds()
		is = crowdFigures{float64(c.started.Load()-starts) / took, float64(c.calls.reserves.Load()-reserves) / took,
			float64(c.calls.pulls.Load()-pulls) / took, spent.cpu.Seconds() / took}
		return err
	})
	return is, err
}

// add adds a process.
func (c *crowd) add(s *server) error {
	client := s.client()
	client.AddHook(&c.calls)
	p := &process{crowd: c, client: client}
	c.processes = append(c.processes, p)
	th, err := open(client, "crowd", limits{throttle.PerSecond(2 * crowdLimit / crowdLanes)},
		limits{throttle.PerSecond(crowdLimit)}, nil)
	if err != nil {
		return err
	}
	p.throttle, p.driver = th, th.Driver()
	return nil
}

// prepare pauses the global scope key if the situation says so, and asks for the jobs that wait at the start.
func (c *crowd) prepare(ctx context.Context, of situation) error {
	th := c.processes[0].throttle
	if of.paused {
		if _, err := inspect.New(th).Pause(ctx, throttle.Global, "", time.Now().Add(time.Hour)); err != nil {
			return err
		}
	}
	jobs := make([]throttle.Job, of.waiting)
	for n := range jobs {
		jobs[n] = laneJob("waits-", n)
	}
	for _, answer := range th.ReserveAll(ctx, jobs) {
		if answer.Err != nil {
			return answer.Err
		}
		c.heed(ctx, answer.Reservation)
	}
	return nil
}

// laneJob returns the n-th job. The lanes get the jobs in turn.
func laneJob(prefix string, n int) throttle.Job {
	return brought(prefix+strconv.Itoa(n), "t"+strconv.Itoa(n%crowdLanes))
}

// start starts the pulls of every process, and the arrival of jobs.
func (c *crowd) start(ctx context.Context, perSecond int) {
	for _, p := range c.processes {
		c.running.Go(func() { p.pullOnAndOn(ctx) })
	}
	if perSecond == 0 {
		return
	}
	c.running.Go(func() {
		began := time.Now()
		for n := 0; ; n++ {
			if sleep(ctx, time.Until(began.Add(time.Duration(n)*time.Second/time.Duration(perSecond)))) != nil {
				return
			}
			c.running.Go(func() { c.ask(ctx, laneJob("job-", n)) })
		}
	})
}

// ask makes the next process ask for a job.
func (c *crowd) ask(ctx context.Context, j throttle.Job) {
	p := c.processes[c.next.Add(1)%int64(len(c.processes))]
	r, err := p.throttle.Reserve(ctx, j)
	if err != nil {
		c.failed(ctx, err)
		return
	}
	c.heed(ctx, r)
}

// heed counts a start, and lets a booked job ask for its slot in time. A waiting job asks when a pull has booked it.
func (c *crowd) heed(ctx context.Context, r throttle.Reservation) {
	switch r.Outcome {
	case throttle.Granted:
		c.started.Add(1)
	case throttle.Booked:
		c.bring(ctx, r)
	case throttle.Waiting:
	}
}

// bring lets a booked job ask for its slot as early as the package worker does.
func (c *crowd) bring(ctx context.Context, r throttle.Reservation) {
	c.running.Go(func() {
		if sleep(ctx, untilBrought(r)) == nil {
			c.ask(ctx, brought(r.Job.ID, r.Job.Keys["tenant"]))
		}
	})
}

// pullOnAndOn pulls as the package worker does: when the line is due, at most every 50 to 60 ms.
func (p *process) pullOnAndOn(ctx context.Context) {
	var last time.Time
	for {
		due := p.driver.Due()
		if time.Since(last) < pullsAnyway && (due.IsZero() || time.Until(due) > 0) {
			if sleep(ctx, pullsApart+rand.N(pullsApart/5)) != nil {
				return
			}
			continue
		}
		last = time.Now()
		pulled, err := p.driver.Pull(ctx)
		if err != nil {
			p.crowd.failed(ctx, err)
			return
		}
		for _, r := range slices.Concat(pulled.Booked, pulled.Overdue) {
			p.crowd.bring(ctx, r)
		}
		if !pulled.Full && sleep(ctx, pullsApart+rand.N(pullsApart/5)) != nil {
			return
		}
	}
}

// failed ends the crowd, unless it has ended.
func (c *crowd) failed(ctx context.Context, err error) {
	if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		c.fail(err)
	}
}
