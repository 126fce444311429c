package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// onlyPlan is what -only says for the comparison of enqueueing alone.
const onlyPlan = "plan"

// enqueuers is how many goroutines enqueue at a time where several do: as many as
// worker.Client.EnqueueAll has.
const enqueuers = 16

// leastPlanned is what must be left of the tasks per second that asynq's client
// enqueues one after the other.
const leastPlanned = 0.5

// planning is tasks enqueued per second: planned in one EnqueueAll, and by asynq's own
// client, one after the other and by several goroutines.
type planning struct{ planned, oneByOne, together float64 }

// comparePlanning enqueues the same tasks in each way, in turn. Its figures are the
// medians of the rounds. It returns how many goals it missed.
func comparePlanning(ctx context.Context, out io.Writer, addr string, tasks, rounds int) (missed int, err error) {
	var planned, oneByOne, together []float64
	for range rounds {
		for _, way := range []struct {
			figures *[]float64
			enqueue func(ctx context.Context, client *redis.Client, tasks []*asynq.Task) error
		}{{&oneByOne, enqueueOneByOne}, {&together, enqueueTogether}, {&planned, enqueuePlanned}} {
			perSecond, err := enqueuedPerSecond(ctx, addr, tasks, way.enqueue)
			if err != nil {
				return 0, err
			}
			*way.figures = append(*way.figures, perSecond)
		}
	}
	p := planning{median(planned), median(oneByOne), median(together)}
	fmt.Fprintf(out, "\nenqueueing %d tasks: %.0f tasks/s planned by one EnqueueAll; asynq alone %.0f tasks/s one by one, %.0f tasks/s by %d goroutines\n",
		tasks, p.planned, p.oneByOne, p.together, enqueuers)
	fmt.Fprintf(out, "  %-7s planned to one by one: %.2f, at least %.2f; to %d goroutines: %.2f\n",
		verdict(p.planned/p.oneByOne >= leastPlanned, &missed), p.planned/p.oneByOne, leastPlanned, enqueuers, p.planned/p.together)
	return missed, nil
}

func enqueuedPerSecond(ctx context.Context, addr string, n int, enqueue func(context.Context, *redis.Client, []*asynq.Task) error) (perSecond float64, err error) {
	client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 2 * enqueuers})
	defer func() { err = errors.Join(err, client.Close()) }()
	if err := client.FlushAll(ctx).Err(); err != nil {
		return 0, err
	}
	tasks := make([]*asynq.Task, n)
	for i := range tasks {
		tasks[i] = worker.NewTask("bench", []byte("tenant-"+strconv.Itoa(i%tenants)), nil)
	}
	began := time.Now()
	if err := enqueue(ctx, client, tasks); err != nil {
		return 0, fmt.Errorf("enqueue: %w", err)
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

func enqueueOneByOne(ctx context.Context, client *redis.Client, tasks []*asynq.Task) error {
	queue := asynq.NewClientFromRedisClient(client)
	for _, task := range tasks {
		if _, err := queue.EnqueueContext(ctx, task); err != nil {
			return err
		}
	}
	return nil
}

func enqueueTogether(ctx context.Context, client *redis.Client, tasks []*asynq.Task) error {
	queue := asynq.NewClientFromRedisClient(client)
	var failed [enqueuers]error
	var each sync.WaitGroup
	for e := range enqueuers {
		each.Go(func() {
			for i := e; i < len(tasks) && failed[e] == nil; i += enqueuers {
				_, failed[e] = queue.EnqueueContext(ctx, tasks[i])
			}
		})
	}
	each.Wait()
	return errors.Join(failed[:]...)
}

// enqueuePlanned plans under limits that bind: nearly all tasks stand in line.
func enqueuePlanned(ctx context.Context, client *redis.Client, tasks []*asynq.Task) error {
	th, err := throttle.New("bench", client, []throttle.Scope{
		{Name: "tenant", Limits: limits{throttle.PerMinute(10)}},
		{Name: throttle.Global, Limits: limits{throttle.PerMinute(1000)}},
	}, &throttle.Options{Timeout: 10 * time.Second})
	if err != nil {
		return err
	}
	queue, err := worker.NewClient(th, client, func(_ context.Context, task *asynq.Task) (throttle.Job, error) {
		return throttle.Job{Weight: 1, Keys: map[string]string{"tenant": string(task.Payload())}}, nil
	}, nil)
	if err != nil {
		return err
	}
	plan, err := queue.EnqueueAll(ctx, tasks)
	if err == nil && plan.Last.IsZero() {
		err = errors.New("nothing was planned")
	}
	return err
}
