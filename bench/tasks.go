package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// asynqWorkers is how many handlers run at a time.
const asynqWorkers = 16

// crew is how many tenants have tasks, and for how long their jobs may start out of an advance.
type crew struct {
	tenants int
	advance time.Duration
	least   float64 // the goal for tasks per second to those of bare asynq
}

// tasks runs asynq with and without the middleware, in turn, on handlers that do nothing,
// under limits that never bind.
func tasks(ctx context.Context, b *bench) error {
	return withAwakeServer(ctx, func(s *server, _ *redis.Client) error {
		b.say("%d tasks, %d workers, awake", b.tasks, asynqWorkers)
		for _, c := range []crew{{1000, 0, 0.70}, {20, time.Second, 0.70}, {1, time.Second, 0.92}} {
			if err := c.run(ctx, b, s); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c crew) run(ctx context.Context, b *bench, s *server) error {
	var without, with, ratios []float64
	for range b.rounds {
		plain, err := c.tasksPerSecond(ctx, s, b.tasks, false)
		if err != nil {
			return err
		}
		shaped, err := c.tasksPerSecond(ctx, s, b.tasks, true)
		if err != nil {
			return err
		}
		without, with, ratios = append(without, plain), append(with, shaped), append(ratios, shaped/plain)
	}
	b.say("%d tenants, Advance of %v: %.0f tasks/s of bare asynq, %.0f with the middleware", c.tenants, c.advance,
		median(without), median(with))
	b.least("tasks per second with the middleware to without", median(ratios), c.least)
	return nil
}

// tasksPerSecond returns how many tasks run in a second, measured from the first handler that runs.
func (c crew) tasksPerSecond(ctx context.Context, s *server, n int, shaped bool) (perSecond float64, err error) {
	client := s.client()
	defer func() { err = errors.Join(err, client.Close()) }()
	if err := client.FlushAll(ctx).Err(); err != nil {
		return 0, err
	}
	queue := asynq.NewClientFromRedisClient(client)
	if _, err := together(n, enqueuers, func(i int) error {
		_, err := queue.EnqueueContext(ctx, tenantTask(i, c.tenants))
		return err
	}); err != nil {
		return 0, fmt.Errorf("enqueue: %w", err)
	}
	var ran, began atomic.Int64
	done := make(chan time.Time, 1)
	handler := asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		switch ran.Add(1) {
		case 1:
			began.Store(time.Now().UnixNano())
		case int64(n):
			done <- time.Now()
		}
		return nil
	})
	config := asynq.Config{Concurrency: asynqWorkers, LogLevel: asynq.FatalLevel}
	run := asynq.Handler(handler)
	if shaped {
		never := limits{throttle.PerMinute(globalUnits)}
		th, err := open(client, "tasks", never, never, &throttle.Options{Advance: c.advance})
		if err != nil {
			return 0, err
		}
		shaper, err := worker.New(th, client, tenantJob, nil)
		if err != nil {
			return 0, err
		}
		defer shaper.Stop()
		config, run = shaper.Configure(config), shaper.Wrap(handler)
	}
	server := asynq.NewServerFromRedisClient(client, config)
	if err := server.Start(run); err != nil {
		return 0, fmt.Errorf("start asynq: %w", err)
	}
	defer server.Shutdown()
	select {
	case end := <-done:
		return float64(n-1) / end.Sub(time.Unix(0, began.Load())).Seconds(), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(2 * time.Minute):
		return 0, fmt.Errorf("only %d of %d tasks ran in two minutes", ran.Load(), n)
	}
}

// tenantTask returns the i-th task. The tenants own the tasks in turn.
func tenantTask(i, tenants int) *asynq.Task {
	return worker.NewTask("bench", nil, map[string]string{"tenant": "tenant-" + strconv.Itoa(i%tenants)})
}

func tenantJob(_ context.Context, task *asynq.Task) (throttle.Job, error) {
	return throttle.Job{Weight: 1, Keys: map[string]string{"tenant": task.Headers()["tenant"]}}, nil
}

// enqueuers is how many goroutines enqueue at a time in the rows with several: the same number as in
// worker.Client.EnqueueAll.
const enqueuers = 16

// plan enqueues the same tasks planned in one EnqueueAll, and by asynq's own client, one
// after the other and by several goroutines.
func plan(ctx context.Context, b *bench) error {
	return withAwakeServer(ctx, func(s *server, _ *redis.Client) error {
		rounds := 1 // each takes some ten seconds
		if b.full {
			rounds = b.rounds
		}
		var planned, oneByOne, many []float64
		for range rounds {
			for _, w := range []struct {
				figures *[]float64
				enqueue func(ctx context.Context, client *redis.Client, tasks []*asynq.Task) error
			}{{&oneByOne, enqueueBy(1)}, {&many, enqueueBy(enqueuers)}, {&planned, enqueuePlanned}} {
				perSecond, err := enqueuedPerSecond(ctx, s, b.plans, w.enqueue)
				if err != nil {
					return err
				}
				*w.figures = append(*w.figures, perSecond)
			}
		}
		b.say(
			"%d tasks, awake, %d rounds: %.0f tasks/s planned by one EnqueueAll; asynq alone %.0f one by one, %.0f "+
				"by %d goroutines",
			b.plans, rounds, median(planned), median(oneByOne), median(many), enqueuers)
		b.least("planned to asynq's client one by one", median(planned)/median(oneByOne), 1.5)
		b.say("        planned to asynq's client by %d goroutines: %.2f", enqueuers, median(planned)/median(many))
		return nil
	})
}

func enqueuedPerSecond(ctx context.Context, s *server, n int,
	enqueue func(context.Context, *redis.Client, []*asynq.Task) error) (perSecond float64, err error) {
	client := s.client()
	defer func() { err = errors.Join(err, client.Close()) }()
	if err := client.FlushAll(ctx).Err(); err != nil {
		return 0, err
	}
	all := make([]*asynq.Task, n)
	for i := range all {
		all[i] = tenantTask(i, 1000)
	}
	began := time.Now()
	if err := enqueue(ctx, client, all); err != nil {
		return 0, fmt.Errorf("enqueue: %w", err)
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

func enqueueBy(callers int) func(ctx context.Context, client *redis.Client, tasks []*asynq.Task) error {
	return func(ctx context.Context, client *redis.Client, tasks []*asynq.Task) error {
		queue := asynq.NewClientFromRedisClient(client)
		_, err := together(len(tasks), callers, func(i int) error {
			_, err := queue.EnqueueContext(ctx, tasks[i])
			return err
		})
		return err
	}
}

// enqueuePlanned plans under limits that bind: nearly all tasks stand in line.
func enqueuePlanned(ctx context.Context, client *redis.Client, tasks []*asynq.Task) error {
	th, err := open(client, "plan", limits{throttle.PerMinute(10)}, limits{throttle.PerMinute(1000)}, nil)
	if err != nil {
		return err
	}
	queue, err := worker.NewClient(th, client, tenantJob, nil)
	if err != nil {
		return err
	}
	all, err := queue.EnqueueAll(ctx, tasks)
	for _, one := range all.Tasks {
		err = errors.Join(err, one.Err)
	}
	return err
}
