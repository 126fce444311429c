package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// edgeRate is how many jobs may start per second once hours are open.
const edgeRate = 2000

// opensSoon returns hours that open at a full minute, one to two minutes from now, and when they open.
func opensSoon() (hours throttle.Limit, opens time.Time) {
	const clock = "15:04"
	opens = time.Now().UTC().Truncate(time.Minute).Add(2 * time.Minute)
	return throttle.OpenHours(opens.Format(clock) + "-" + opens.Add(12*time.Hour).Format(clock) + " @UTC"), opens
}

// openingHours makes many jobs of a thousand tenants wait for a scope that is closed, and pulls them from a second
// before it opens.
func openingHours(ctx context.Context, b *bench, client *redis.Client) error {
	hours, opens := opensSoon()
	th, err := open(client, "opens", limits{throttle.PerSecond(100)}, limits{throttle.PerSecond(edgeRate), hours}, nil)
	if err != nil {
		return err
	}
	l := &line{throttle: th, driver: th.Driver(), tenants: 1000}
	if err := l.fill(ctx, b.waiting); err != nil {
		return err
	}
	if err := sleep(ctx, time.Until(opens.Add(-time.Second))); err != nil {
		return err
	}
	return errors.Join(drive(ctx, th, 4*time.Second), look(ctx, th, throttle.Global, "", time.Second))
}

// hoursOpen plans many tasks of a thousand tenants while hours are closed, and has asynq run the first of them once the
// hours are open.
func hoursOpen(ctx context.Context, b *bench) error {
	return twoServers(ctx, func(_, _ *server, decide, work *redis.Client) error {
		hours, opens := opensSoon()
		th, err := open(decide, "edge", nil, limits{throttle.PerSecond(edgeRate), hours}, nil)
		if err != nil {
			return err
		}
		client, err := worker.NewClient(th, work, tenantJob, nil)
		if err != nil {
			return err
		}
		tasks := make([]*asynq.Task, b.waiting)
		for i := range tasks {
			tasks[i] = tenantTask(i, 1000)
		}
		if _, err := client.EnqueueAll(ctx, tasks); err != nil {
			return err
		}
		left := time.Until(opens)
		if left < 0 {
			return fmt.Errorf("%d tasks could not be planned before the edge", b.waiting)
		}
		b.say("%d tasks were planned %s before the edge", b.waiting, left.Round(time.Second))
		return b.cross(ctx, th, work, opens)
	})
}

// cross runs the tasks of ten seconds after an edge, or all if there are fewer.
func (b *bench) cross(ctx context.Context, th *throttle.Throttle, work *redis.Client, edge time.Time) error {
	shaper, err := worker.New(th, work, tenantJob, nil)
	if err != nil {
		return err
	}
	r := newRecord(min(b.waiting, 10*edgeRate))
	server := asynq.NewServerFromRedisClient(work,
		shaper.Configure(asynq.Config{Concurrency: shapedWorkers, LogLevel: asynq.FatalLevel}))
	if err := server.Start(shaper.Wrap(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		granted, _ := worker.Grant(ctx)
		r.add(granted.Start, task.Headers()["tenant"])
		return nil
	}))); err != nil {
		return err
	}
	select {
	case <-r.done:
	case <-ctx.Done():
	}
	shaper.Stop()
	server.Shutdown()
	b.printEdge(r.starts, edge, shaper.Stats().PutBack)
	return ctx.Err()
}

// printEdge prints how tasks started after an edge. The shares are those of the first second that begins with the first
// start.
func (b *bench) printEdge(starts []started, edge time.Time, putBack int64) {
	first, last := starts[0].at, starts[0].at
	for _, start := range starts {
		if start.at.Before(first) {
			first = start.at
		}
		if start.at.After(last) {
			last = start.at
		}
	}
	b.say("the first of %d starts %s after the edge, the last %s after it, %d put back", len(starts),
		first.Sub(edge).Round(time.Millisecond), last.Sub(edge).Round(time.Millisecond), putBack)
	b.most("ms from the edge to the first start", micros(first.Sub(edge))/1000, 100)
	b.most("put back per job", float64(putBack)/float64(len(starts)), 1.05)
	of := make(map[string]int)
	for _, start := range starts {
		if start.at.Before(first.Add(5 * time.Second)) {
			of[start.tenant]++
		}
	}
	least, most := len(starts), 0
	for _, n := range of {
		least, most = min(least, n), max(most, n)
	}
	b.say("in the first five seconds %d tenants have %d to %d starts each", len(of), least, most)
	b.most("most starts of a tenant less the fewest", float64(most-least), 2)
}
