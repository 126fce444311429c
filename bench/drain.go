package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// The tenants and the limits of a drain.
const (
	drainTenants = 8
	drainWindow  = 2 * time.Second
	tenantDrain  = 50
	globalDrain  = 200
)

// started is one job of a drain.
type started struct {
	at     time.Time // on the clock of the server that granted it
	tenant string
}

// record has the starts of a drain. It is safe for use by many goroutines.
type record struct {
	mu     sync.Mutex
	starts []started
	done   chan struct{} // closed with the last
	jobs   int
}

func newRecord(jobs int) *record { return &record{done: make(chan struct{}), jobs: jobs} }

func (r *record) add(at time.Time, tenant string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.starts = append(r.starts, started{at, tenant}); len(r.starts) == r.jobs {
		close(r.done)
	}
}

// outcome is how a drain went.
type outcome struct {
	limiter, queue spent   // what the two servers spent
	putBacks       float64 // per job
	makespan       time.Duration
	worst          float64 // the fullest window, as a part of its limit
	starts         []started
}

// drain makes asynq run a backlog. The limiter and asynq have a server each, so that their
// costs can be told apart.
func drain(ctx context.Context, b *bench) error {
	optimum := time.Duration(float64(b.jobs)/globalDrain*float64(drainWindow)) - drainWindow
	b.say("%d jobs of %d tenants, %d per %s each, %d of all; %d workers, idle; of the limiter's own server per job:",
		b.jobs, drainTenants, tenantDrain, drainWindow, globalDrain, asynqWorkers)
	b.say("  %-26s %8s %9s %9s %10s %10s %10s %9s", "", "CPU µs", "commands", "EVALSHA", "asynq's µs", "put back",
		"makespan", "worst")
	row := func(name string, is outcome) {
		n := float64(b.jobs)
		b.say("  %-26s %8.0f %9.1f %9.2f %10.0f %10.2f %10.3f %9.2f", name, micros(is.limiter.cpu)/n,
			is.limiter.commands/n, is.limiter.evalshas/n,
			micros(is.queue.cpu)/n, is.putBacks, is.makespan.Seconds()/max(optimum, time.Second).Seconds(), is.worst)
	}
	for _, precision := range []struct {
		name string
		of   func(limit throttle.Limit) throttle.Limit
	}{
		{"sub-windows of a hundredth", func(l throttle.Limit) throttle.Limit { l.Precision = l.Window / 100; return l }},
		{"exact", func(l throttle.Limit) throttle.Limit { l.Precision = throttle.Exact; return l }},
	} {
		is, err := b.shape(ctx, asynqWorkers, limits{precision.of(throttle.Per(tenantDrain, drainWindow))},
			limits{precision.of(throttle.Per(globalDrain, drainWindow))}, b.jobs, drainTenants)
		if err != nil {
			return err
		}
		row(precision.name, is)
		b.most("CPU µs of the limiter's server per job", micros(is.limiter.cpu)/float64(b.jobs), 300)
		b.most("EVALSHA per job", is.limiter.evalshas/float64(b.jobs), 1.5)
		b.most("commands per job", is.limiter.commands/float64(b.jobs), 25)
		b.most("put back per job", is.putBacks, 1)
		if optimum > 0 {
			b.most("makespan to the optimum", is.makespan.Seconds()/optimum.Seconds(), 1.03)
		}
		b.most("the fullest window to its limit", is.worst, 1)
	}
	is, err := b.recipe(ctx)
	if err != nil {
		return err
	}
	row("asynq's recipe, redis_rate", is)
	return nil
}

// twoServers runs f with a server for the limiter and another for asynq.
func twoServers(ctx context.Context, f func(limiter, queue *server, decide, work *redis.Client) error) error {
	return withServer(ctx, func(limiter *server) error {
		return withServer(ctx, func(queue *server) error {
			decide, work := limiter.client(), queue.client()
			defer decide.Close() //nolint:errcheck // nothing is lost with it
			defer work.Close()   //nolint:errcheck // nothing is lost with it
			return f(limiter, queue, decide, work)
		})
	})
}

// shape drains by the middleware.
func (b *bench) shape(ctx context.Context, workers int, tenant, global limits, jobs,
	tenants int) (is outcome, err error) {
	err = twoServers(ctx, func(limiter, queue *server, decide, work *redis.Client) error {
		th, err := open(decide, "drain", tenant, global, nil)
		if err != nil {
			return err
		}
		shaper, err := worker.New(th, work, tenantJob, nil)
		if err != nil {
			return err
		}
		r := newRecord(jobs)
		config := shaper.Configure(asynq.Config{Concurrency: workers, LogLevel: asynq.FatalLevel})
		handler := shaper.Wrap(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			granted, _ := worker.Grant(ctx)
			r.add(granted.Start, task.Headers()["tenant"])
			return nil
		}))
		is, err = r.drain(ctx, limiter, queue, work, config, handler, tenants, shaper.Stop)
		is.putBacks = float64(shaper.Stats().PutBack) / float64(jobs)
		is.worst = worst(r.starts, tenant, global)
		return err
	})
	return is, err
}

// drain enqueues the jobs and runs them.
func (r *record) drain(ctx context.Context, limiter, queue *server, work *redis.Client, config asynq.Config,
	handler asynq.Handler, tenants int, stop func()) (is outcome, err error) {
	client := asynq.NewClientFromRedisClient(work)
	if _, err := together(r.jobs, enqueuers, func(i int) error {
		task := worker.NewTask("drain", nil, map[string]string{"tenant": "t" + strconv.Itoa(i%tenants)})
		_, err := client.EnqueueContext(ctx, task)
		return err
	}); err != nil {
		return is, err
	}
	is.limiter, err = limiter.during(ctx, func() (err error) {
		is.queue, err = queue.during(ctx, func() error {
			server := asynq.NewServerFromRedisClient(work, config)
			if err := server.Start(handler); err != nil {
				return err
			}
			defer server.Shutdown()
			defer stop()
			select {
			case <-r.done:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(5 * time.Minute):
				return fmt.Errorf("%d of %d jobs have started in five minutes", len(r.starts), r.jobs)
			}
		})
		return err
	})
	if err != nil {
		return is, err
	}
	slices.SortFunc(r.starts, func(a, b started) int { return a.at.Compare(b.at) })
	is.makespan, is.starts = r.starts[len(r.starts)-1].at.Sub(r.starts[0].at), r.starts
	return is, nil
}

// worst returns the fullest window of any limit, as a fraction of the limit.
func worst(starts []started, tenant, global limits) float64 {
	by := map[string][]time.Time{"": nil}
	for _, s := range starts {
		by[""] = append(by[""], s.at)
		by[s.tenant] = append(by[s.tenant], s.at)
	}
	most := 0.0
	for key, at := range by {
		all := tenant
		if key == "" {
			all = global
		}
		for _, limit := range all {
			first := 0
			for i := range at {
				for at[i].Sub(at[first]) >= limit.Window {
					first++
				}
				most = max(most, float64(i-first+1)/float64(limit.Units))
			}
		}
	}
	return most
}

// waitError is a refusal, in the form of asynq's documentation on rate limiting.
type waitError struct{ retryIn time.Duration }

func (e *waitError) Error() string { return fmt.Sprintf("rate limited, retry in %s", e.retryIn) }

// recipe drains as asynq's documentation advises: a refused task does not count as failed, and is retried when the
// limiter says.
func (b *bench) recipe(ctx context.Context) (is outcome, err error) {
	err = twoServers(ctx, func(limiter, queue *server, decide, work *redis.Client) error {
		rate := redis_rate.NewLimiter(decide)
		r := newRecord(b.jobs)
		config := asynq.Config{
			Concurrency: asynqWorkers, LogLevel: asynq.FatalLevel, DelayedTaskCheckInterval: time.Second,
			IsFailure: func(err error) bool { return !errors.As(err, new(*waitError)) },
			RetryDelayFunc: func(_ int, err error, _ *asynq.Task) time.Duration {
				var wait *waitError
				if errors.As(err, &wait) {
					return wait.retryIn
				}
				return 0
			},
		}
		var putBacks atomic.Int64
		handler := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			tenant := task.Headers()["tenant"]
			err := allowOr(ctx, rate, tenant, tenantDrain)
			if err == nil {
				err = allowOr(ctx, rate, "global", globalDrain)
			}
			if err != nil {
				putBacks.Add(1)
				return err
			}
			r.add(time.Now(), tenant)
			return nil
		})
		is, err = r.drain(ctx, limiter, queue, work, config, handler, drainTenants, func() {})
		is.putBacks = float64(putBacks.Load()) / float64(b.jobs)
		is.worst = worst(r.starts, limits{throttle.Per(tenantDrain, drainWindow)},
			limits{throttle.Per(globalDrain, drainWindow)})
		return err
	})
	return is, err
}

func allowOr(ctx context.Context, rate *redis_rate.Limiter, key string, units int) error {
	result, err := rate.Allow(ctx, key, redis_rate.Limit{Rate: units, Burst: units, Period: drainWindow})
	if err == nil && result.Allowed == 0 {
		return &waitError{result.RetryAfter}
	}
	return err
}

// backlog is a backlog under one global limit, which all its jobs share.
type backlog struct{ jobs, tenants, perSecond int }

// shapedWorkers is more workers than a backlog needs whose handlers do nothing.
const shapedWorkers = 64

// beyondReach is a limit per second that is higher than the throttle can shape here.
const beyondReach = 5000

// shaped drains large backlogs under one limit, and beside each the same number of tasks of bare asynq. The last
// backlog runs as fast as it can.
func shaped(ctx context.Context, b *bench) error {
	for _, of := range []backlog{{100_000, 10_000, 1000}, {50_000, 1, 1000}, {20_000, 1000, 500},
		{80_000, 1000, beyondReach}} {
		if !b.full {
			of.jobs, of.tenants = of.jobs/10, max(of.tenants/10, 1)
		}
		if err := b.drainUnder(ctx, of); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) drainUnder(ctx context.Context, of backlog) error {
	var bare float64
	if err := withServer(ctx, func(s *server) (err error) {
		bare, err = crew{tenants: 1000}.tasksPerSecond(ctx, s, of.jobs, false)
		return err
	}); err != nil {
		return err
	}
	global := limits{throttle.PerSecond(int64(of.perSecond))}
	is, err := b.shape(ctx, shapedWorkers, nil, global, of.jobs, of.tenants)
	if err != nil {
		return err
	}
	// the jobs of the first second need no time
	optimum := time.Duration(of.jobs-of.perSecond) * time.Second / time.Duration(of.perSecond)
	perSecond := float64(of.jobs) / is.limiter.took.Seconds()
	b.say(
		"%d jobs of %d tenants under %d per second, %d workers, idle: %.0f jobs/s, of bare asynq's %.2f; %.0f µs "+
			"of CPU of the limiter's server per job, %.2f EVALSHA",
		of.jobs, of.tenants, of.perSecond, shapedWorkers, perSecond, perSecond/bare,
		micros(is.limiter.cpu)/float64(of.jobs), is.limiter.evalshas/float64(of.jobs))
	if of.perSecond == beyondReach {
		b.least("jobs per second to bare asynq's", perSecond/bare, 0.4)
	} else if optimum > 0 {
		b.most("makespan to the optimum", is.makespan.Seconds()/optimum.Seconds(), 1.05)
	}
	b.most("put back per job", is.putBacks, 1)
	b.most("the fullest window to its limit", is.worst, 1)
	b.say("  the longest time in which no job started: %s", longestPause(is.starts).Round(10*time.Millisecond))
	return nil
}

// longestPause returns the longest time between two starts, which are in order.
func longestPause(starts []started) (longest time.Duration) {
	for i := 1; i < len(starts); i++ {
		longest = max(longest, starts[i].at.Sub(starts[i-1].at))
	}
	return longest
}
