package worker_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// A prompt is charged what it may take at most. Its handler corrects that to what it
// took, or to nothing where the upstream was not asked. What it did not take is free at
// once: else each prompt would have to wait for a minute after the one before.
func ExampleSettle() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	th, err := throttle.New("llm", client, []throttle.Scope{
		{Name: "model", Limits: []throttle.Limit{throttle.PerMinute(1000)}}, // tokens
	}, &throttle.Options{Timeout: 5 * time.Second}) // this Redis shares a machine that may be busy
	if err != nil {
		log.Fatal(err)
	}
	shaper, err := worker.New(th, client, func(context.Context, *asynq.Task) (throttle.Job, error) {
		return throttle.Job{Weight: 800, Keys: map[string]string{"model": "large"}}, nil
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	workers := asynq.NewServerFromRedisClient(client,
		shaper.Configure(asynq.Config{Concurrency: 1, LogLevel: asynq.FatalLevel}))
	mux := asynq.NewServeMux()
	mux.Use(shaper.Wrap)
	answered := make(chan string)
	mux.HandleFunc("prompt", func(ctx context.Context, task *asynq.Task) error {
		grant, _ := worker.Grant(ctx)
		prompt := string(task.Payload())
		var err error
		if prompt == "hello" { // the answer is in a cache
			err = worker.Refund(ctx)
		} else {
			took := int64(150) // as the upstream says
			err = worker.Settle(ctx, took)
		}
		if err != nil {
			log.Print(err) // it stays charged; no reason to ask the upstream again
		}
		answered <- fmt.Sprintf("%s: charged %d", prompt, grant.Job.Weight)
		return nil
	})

	queue := asynq.NewClientFromRedisClient(client)
	for _, prompt := range []string{"hello", "question 1", "question 2"} {
		if _, err := queue.Enqueue(worker.NewTask("prompt", []byte(prompt), nil)); err != nil {
			log.Fatal(err)
		}
	}
	if err := workers.Start(mux); err != nil {
		log.Fatal(err)
	}
	for range 3 {
		fmt.Println(<-answered)
	}
	usage, err := inspect.New(th).Usage(context.Background(), "model", "large")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("used:", usage.Limits[0].Used)

	shaper.Stop()
	workers.Shutdown()
	// Output:
	// hello: charged 800
	// question 1: charged 800
	// question 2: charged 800
	// used: 300
}
