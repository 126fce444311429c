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

// A code by which somebody logs in is of no use after ten minutes. One that cannot be sent
// in time is not sent at all, and the page says so.
func ExampleExpiresIn() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	th, err := throttle.New("smtp", client, []throttle.Scope{
		{Name: "tenant", Limits: []throttle.Limit{throttle.PerHour(1)}},
	}, &throttle.Options{Timeout: 5 * time.Second}) // this Redis shares a machine that may be busy
	if err != nil {
		log.Fatal(err)
	}
	told := make(chan string)
	shaper, err := worker.New(th, client, func(_ context.Context, task *asynq.Task) (throttle.Job, error) {
		return throttle.Job{Weight: 1, Keys: map[string]string{"tenant": task.Headers()["tenant"]}}, nil
	}, &worker.Options{
		Expired: func(_ context.Context, task *asynq.Task, _ *throttle.DeadlineError) error {
			told <- fmt.Sprintf("%s is not sent: ask for a new one", task.Payload())
			return nil // asynq is done with the task
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	workers := asynq.NewServerFromRedisClient(client,
		shaper.Configure(asynq.Config{Concurrency: 1, LogLevel: asynq.FatalLevel}))
	mux := asynq.NewServeMux()
	mux.Use(shaper.Wrap)
	mux.HandleFunc("code:send", func(_ context.Context, task *asynq.Task) error {
		told <- fmt.Sprintf("%s is sent", task.Payload())
		return nil
	})
	if err := workers.Start(mux); err != nil {
		log.Fatal(err)
	}
	queue := asynq.NewClientFromRedisClient(client)
	for n := range 2 {
		code := worker.NewTask("code:send", fmt.Appendf(nil, "code %d", n+1), map[string]string{"tenant": "acme"},
			worker.ExpiresIn(10*time.Minute))
		if _, err := queue.Enqueue(code); err != nil {
			log.Fatal(err)
		}
		fmt.Println(<-told)
	}

	shaper.Stop()
	workers.Shutdown()
	// Output:
	// code 1 is sent
	// code 2 is not sent: ask for a new one
}
