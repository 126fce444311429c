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

// A whole program: it sends two mails a second for each tenant, and 200 a second for all tenants together.
func Example() {
	server, err := miniredis.Run() // stands for any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	sent := make(chan string)
	send := func(_ context.Context, task *asynq.Task) error {
		sent <- string(task.Payload())
		return nil
	}

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
	config := asynq.Config{Concurrency: 1}
	config.LogLevel = asynq.FatalLevel // keeps the output of this example short
	workers := asynq.NewServerFromRedisClient(client, shaper.Configure(config))
	mux := asynq.NewServeMux()
	mux.Use(shaper.Wrap) // first, so that it is the outermost
	mux.HandleFunc("mail:send", send)
	if err := workers.Start(mux); err != nil {
		log.Fatal(err)
	}

	queue := asynq.NewClientFromRedisClient(client)
	acme := map[string]string{"tenant": "acme"} // the headers that the function above reads
	for _, mail := range []string{"mail 1", "mail 2", "mail 3"} {
		task := worker.NewTask("mail:send", []byte(mail), acme)
		if _, err := queue.Enqueue(task); err != nil {
			log.Fatal(err)
		}
	}
	for range 3 {
		fmt.Println(<-sent) // the third mail is sent a second after the first
	}

	shaper.Stop() // tasks that wait for their start go back to asynq at once
	workers.Shutdown()
	// Unordered output:
	// mail 1
	// mail 2
	// mail 3
}
