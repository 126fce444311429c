package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// throughput is how many tasks per second asynq gets through.
type throughput struct{ without, with, ratio float64 }

// compareThroughput runs asynq with and without the middleware, in turn, on
// handlers that do nothing, under limits that never bind. Its figures are the
// medians of the rounds, the ratio that of runs next to each other.
func compareThroughput(ctx context.Context, addr string, tasks, rounds int) (*throughput, error) {
	var without, with, ratios []float64
	for range rounds {
		plain, err := tasksPerSecond(ctx, addr, tasks, false)
		if err != nil {
			return nil, err
		}
		shaped, err := tasksPerSecond(ctx, addr, tasks, true)
		if err != nil {
			return nil, err
		}
		without, with, ratios = append(without, plain), append(with, shaped), append(ratios, shaped/plain)
	}
	return &throughput{without: median(without), with: median(with), ratio: median(ratios)}, nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func tasksPerSecond(ctx context.Context, addr string, tasks int, shaped bool) (perSecond float64, err error) {
	client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 2 * asynqWorkers})
	defer func() { err = errors.Join(err, client.Close()) }()
	if err := client.FlushAll(ctx).Err(); err != nil {
		return 0, err
	}
	queue := asynq.NewClientFromRedisClient(client)
	for i := range tasks {
		task := asynq.NewTask("bench", []byte("tenant-"+strconv.Itoa(i%tenants)))
		if _, err := queue.EnqueueContext(ctx, task); err != nil {
			return 0, fmt.Errorf("enqueue: %w", err)
		}
	}
	var ran atomic.Int64
	done := make(chan struct{})
	handler := asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		if ran.Add(1) == int64(tasks) {
			close(done)
		}
		return nil
	})
	mux := asynq.NewServeMux()
	mux.Handle("bench", handler)
	stopShaper := func() {}
	config := asynq.Config{Concurrency: asynqWorkers, LogLevel: asynq.ErrorLevel}
	if shaped {
		shaper, err := newShaper(client)
		if err != nil {
			return 0, err
		}
		stopShaper = shaper.Stop
		config = shaper.Configure(config)
		mux.Use(shaper.Wrap)
	}
	server := asynq.NewServerFromRedisClient(client, config)
	began := time.Now()
	if err := server.Start(mux); err != nil {
		return 0, fmt.Errorf("start asynq: %w", err)
	}
	defer server.Shutdown()
	defer stopShaper()
	select {
	case <-done:
		return float64(tasks) / time.Since(began).Seconds(), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(2 * time.Minute):
		return 0, fmt.Errorf("only %d of %d tasks ran in two minutes", ran.Load(), tasks)
	}
}

func newShaper(client redis.UniversalClient) (*worker.Shaper, error) {
	t, err := throttle.New("bench", client, []throttle.Scope{
		{Name: "tenant", Limits: limits{throttle.PerMinute(globalUnits)}},
		{Name: throttle.Global, Limits: limits{throttle.PerMinute(globalUnits)}},
	}, nil)
	if err != nil {
		return nil, err
	}
	return worker.New(t, client, func(_ context.Context, task *asynq.Task) (throttle.Job, error) {
		return throttle.Job{Weight: 1, Keys: map[string]string{"tenant": string(task.Payload())}}, nil
	}, nil)
}
