package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// The handlers take between 25 and 75 ms, 50 ms on average. The window lets as many jobs start on average as the
// running limit.
const (
	runningPlaces  = 10
	runningServers = 4
	handlerTakes   = 50 * time.Millisecond
	runningWindow  = 2 * time.Second
)

// running drains a backlog under a running limit, and under a window that lets the same number of jobs start.
func running(ctx context.Context, b *bench) error {
	stop, err := awake()
	if err != nil {
		return err
	}
	defer stop()
	b.say(
		"%d jobs of one tenant, handlers of %s ± 50 %%, %d servers of %d workers, awake; of the limiter's own "+
			"server per job:",
		b.jobs, handlerTakes, runningServers, asynqWorkers)
	window := throttle.Per(int64(runningPlaces*runningWindow/handlerTakes), runningWindow)
	costs := make(map[throttle.Limit]float64)
	for _, limit := range []throttle.Limit{window, throttle.Running(runningPlaces)} {
		calls, part, err := idleLooks(ctx, limit)
		if err != nil {
			return err
		}
		is, runs, err := b.runUnder(ctx, limit)
		if err != nil {
			return err
		}
		costs[limit] = micros(is.limiter.cpu) / float64(b.jobs)
		b.say(
			"  %-12s %6.0f µs of CPU, %.0f in scripts, %5.1f commands, %5.2f EVALSHA, put back %.2f, %.3f of %d "+
				"places used, most at once %d", limit, costs[limit], micros(is.limiter.scripts)/float64(b.jobs),
			is.limiter.commands/float64(b.jobs), is.limiter.evalshas/float64(b.jobs), is.putBacks, placesUsed(runs),
			runningPlaces, atOnce(runs))
		b.say(
			"  %12s an idle server makes %.0f script calls a second to asynq's Redis, and takes %.1f %% of a core of it",
			"", calls, 100*part)
		if !limit.Running {
			continue
		}
		scopes := []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{limit}}}
		for _, over := range throttletest.Check(scopes, runs) {
			return fmt.Errorf("more ran than the limit: %s", over)
		}
		// Until each task has asked once, a woken task waits in asynq's queue behind new ones.
		runs = runs[len(runs)/2:]
		times := handOvers(runs)
		b.say("  when all have asked once a place is used again after %.1f ms (median), %.1f ms (p99)",
			micros(percentile(times, 0.5))/1000, micros(percentile(times, 0.99))/1000)
		b.most("ms until a place is used again, p99", micros(percentile(times, 0.99))/1000, 20)
		b.least("part of the places that is used", placesUsed(runs), 0.97)
		b.most("put back per job", is.putBacks, 1.05)
	}
	b.most("CPU of the limiter's server to that under a window", costs[throttle.Running(runningPlaces)]/costs[window], 1.5)
	return nil
}

// runUnder drains under one limit, and returns the runs that the handlers noted.
func (b *bench) runUnder(ctx context.Context, limit throttle.Limit) (is outcome, runs []throttletest.Start, err error) {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(1, 2))
	takes := func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return handlerTakes/2 + time.Duration(random.Int64N(int64(handlerTakes)))
	}
	r := newRecord(b.jobs)
	handler := asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		began, d := time.Now(), takes()
		time.Sleep(d)
		mu.Lock()
		runs = append(runs, throttletest.Start{At: began, End: time.Now(), Weight: 1})
		mu.Unlock()
		r.add(began, task.Headers()["tenant"])
		return nil
	})
	err = twoServers(ctx, func(limiter, queue *server, decide, work *redis.Client) error {
		shapers, err := shapersUnder(limit, decide, work)
		if err != nil {
			return err
		}
		var servers []*asynq.Server
		stop := func() {
			for _, s := range shapers {
				s.Stop()
			}
			for _, s := range servers {
				s.Shutdown()
			}
		}
		for _, s := range shapers[1:] {
			server := asynq.NewServerFromRedisClient(work, configured(s))
			if err := server.Start(s.Wrap(handler)); err != nil {
				return err
			}
			servers = append(servers, server)
		}
		is, err = r.drain(ctx, limiter, queue, work, configured(shapers[0]), shapers[0].Wrap(handler), 1, stop)
		for _, s := range shapers {
			is.putBacks += float64(s.Stats().PutBack) / float64(b.jobs)
		}
		return err
	})
	mu.Lock()
	defer mu.Unlock()
	return is, runs, err
}

// idleLooks returns how many script calls a second an asynq server without tasks makes, and which part of a core its
// Redis uses for them.
func idleLooks(ctx context.Context, limit throttle.Limit) (calls, part float64, err error) {
	err = twoServers(ctx, func(limiter, queue *server, decide, work *redis.Client) error {
		shapers, err := shapersUnder(limit, decide, work)
		if err != nil {
			return err
		}
		server := asynq.NewServerFromRedisClient(work, configured(shapers[0]))
		if err := server.Start(shapers[0].Wrap(
			asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil }))); err != nil {
			return err
		}
		defer server.Shutdown()
		defer shapers[0].Stop()
		is, err := queue.during(ctx, func() error { return sleep(ctx, 3*time.Second) })
		calls, part = is.evalshas/is.took.Seconds(), is.cpu.Seconds()/is.took.Seconds()
		return err
	})
	return calls, part, err
}

// configured returns the configuration of a shaper's asynq server.
func configured(s *worker.Shaper) asynq.Config {
	return s.Configure(asynq.Config{Concurrency: asynqWorkers, LogLevel: asynq.FatalLevel})
}

// shapersUnder makes a shaper for each server, each with a throttle of its own.
func shapersUnder(limit throttle.Limit, decide, work *redis.Client) (shapers []*worker.Shaper, err error) {
	scopes := []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{limit}}, {Name: "tenant"}}
	for range runningServers {
		th, err := throttle.New("running", decide, scopes, nil)
		if err != nil {
			return nil, err
		}
		s, err := worker.New(th, work, tenantJob, nil)
		if err != nil {
			return nil, err
		}
		shapers = append(shapers, s)
	}
	return shapers, nil
}

// handOvers returns the times from the end of each run to the start that took its place, sorted.
func handOvers(runs []throttletest.Start) (times []time.Duration) {
	var starts, ends []time.Time
	for _, run := range runs {
		starts, ends = append(starts, run.At), append(ends, run.End)
	}
	slices.SortFunc(starts, time.Time.Compare)
	slices.SortFunc(ends, time.Time.Compare)
	for i := runningPlaces; i < len(starts); i++ {
		times = append(times, starts[i].Sub(ends[i-runningPlaces]))
	}
	slices.Sort(times)
	return times
}

func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}

// placesUsed returns which part of the places was occupied, on average from the first start to the last.
func placesUsed(runs []throttletest.Start) float64 {
	first, last, busy := runs[0].At, runs[0].At, 0.0
	for _, run := range runs {
		busy += run.End.Sub(run.At).Seconds()
		if run.At.Before(first) {
			first = run.At
		}
		if run.At.After(last) {
			last = run.At
		}
	}
	return busy / (runningPlaces * max(last.Sub(first), time.Millisecond).Seconds())
}

// atOnce returns the largest number of runs at the same time.
func atOnce(runs []throttletest.Start) (most int) {
	for _, a := range runs {
		n := 0
		for _, b := range runs {
			if !b.At.After(a.At) && b.End.After(a.At) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}
