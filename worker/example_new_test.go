package worker_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// A tenant's third mail has to wait until its window of a second has room. It goes
// back to asynq, without losing a retry, and is woken then.
func ExampleNew() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	sent := make(chan time.Time)

	th, err := throttle.New("smtp", client, []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerSecond(200)}},
		{Name: "tenant", Limits: []throttle.Limit{throttle.PerSecond(2), throttle.PerDay(50_000)}},
	}, &throttle.Options{Timeout: 5 * time.Second}) // this Redis shares a machine that may be busy
	if err != nil {
		log.Fatal(err)
	}
	shaper, err := worker.New(th, client, func(_ context.Context, task *asynq.Task) (throttle.Job, error) {
		return throttle.Job{Weight: 1, Keys: map[string]string{"tenant": task.Headers()["tenant"]}}, nil
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	workers := asynq.NewServerFromRedisClient(client,
		shaper.Configure(asynq.Config{Concurrency: 1, LogLevel: asynq.FatalLevel}))
	mux := asynq.NewServeMux()
	mux.Use(shaper.Wrap) // first, so that it is the outermost
	mux.HandleFunc("mail:send", func(ctx context.Context, task *asynq.Task) error {
		grant, _ := worker.Grant(ctx)
		fmt.Println(string(task.Payload()))
		sent <- grant.Start
		return nil
	})
	if err := workers.Start(mux); err != nil {
		log.Fatal(err)
	}

	queue := asynq.NewClientFromRedisClient(client)
	for n := range 3 {
		task := worker.NewTask("mail:send", fmt.Appendf(nil, "mail %d", n+1), map[string]string{"tenant": "acme"},
			asynq.MaxRetry(0))
		if _, err := queue.Enqueue(task); err != nil {
			log.Fatal(err)
		}
	}
	first := <-sent
	<-sent
	third := <-sent
	fmt.Println("a second later:", third.Sub(first) >= time.Second)

	shaper.Stop()
	workers.Shutdown()
	// Output:
	// mail 1
	// mail 2
	// mail 3
	// a second later: true
}
