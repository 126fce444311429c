package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// asynq's recipe for tasks that have failed for good works as it is: handlers and ErrorHandler
// see the user's own counts.
func ExampleShaper_Configure() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	th, err := throttle.New("smtp", client, []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerSecond(200)}},
	}, &throttle.Options{Timeout: 5 * time.Second}) // this Redis shares a machine that may be busy
	if err != nil {
		log.Fatal(err)
	}
	shaper, err := worker.New(th, client, func(context.Context, *asynq.Task) (throttle.Job, error) {
		return throttle.Job{Weight: 1}, nil
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	alerted := make(chan string)
	alert := func(kind string, err error) { alerted <- fmt.Sprintf("%s failed for good: %v", kind, err) }

	config := asynq.Config{Concurrency: 1}
	config.ErrorHandler = asynq.ErrorHandlerFunc(func(ctx context.Context, task *asynq.Task, err error) {
		retried, _ := asynq.GetRetryCount(ctx)
		maxRetry, _ := asynq.GetMaxRetry(ctx)
		if retried >= maxRetry || errors.Is(err, asynq.SkipRetry) {
			alert(task.Type(), err)
		}
	})
	config.LogLevel = asynq.FatalLevel // this is an example
	workers := asynq.NewServerFromRedisClient(client, shaper.Configure(config))
	mux := asynq.NewServeMux()
	mux.Use(shaper.Wrap)
	mux.HandleFunc("mail:send", func(context.Context, *asynq.Task) error { return errors.New("no such mailbox") })
	if err := workers.Start(mux); err != nil {
		log.Fatal(err)
	}
	if _,
		err := asynq.NewClientFromRedisClient(client).Enqueue(
		worker.NewTask("mail:send", nil, nil, asynq.MaxRetry(0))); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-alerted)
	shaper.Stop()
	workers.Shutdown()
	// Output:
	// mail:send failed for good: no such mailbox (last of 0 retries: skip retry for the task)
}
