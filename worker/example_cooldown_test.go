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

// A crawler has one connection to a host, and leaves it alone for ten times as long as the
// last page took.
func ExampleCooldown() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	th, err := throttle.New("crawler", client, []throttle.Scope{
		{Name: "host", Limits: []throttle.Limit{throttle.Running(1)}, Cooldown: time.Second}, // or as the handler says
	}, &throttle.Options{Timeout: 5 * time.Second}) // this Redis shares a machine that may be busy
	if err != nil {
		log.Fatal(err)
	}
	shaper, err := worker.New(th, client, func(context.Context, *asynq.Task) (throttle.Job, error) {
		return throttle.Job{Weight: 1, Keys: map[string]string{"host": "web.example"}}, nil
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	workers := asynq.NewServerFromRedisClient(client,
		shaper.Configure(asynq.Config{Concurrency: 4, LogLevel: asynq.FatalLevel}))
	get := func() { time.Sleep(20 * time.Millisecond) }
	fetched := make(chan time.Time)
	mux := asynq.NewServeMux()
	mux.Use(shaper.Wrap)
	mux.HandleFunc("fetch", func(ctx context.Context, _ *asynq.Task) error {
		began := time.Now()
		get()
		err := worker.Cooldown(ctx, "host", 10*time.Since(began))
		fetched <- began
		return err
	})

	queue := asynq.NewClientFromRedisClient(client)
	for range 2 {
		if _, err := queue.Enqueue(worker.NewTask("fetch", nil, nil)); err != nil {
			log.Fatal(err)
		}
	}
	if err := workers.Start(mux); err != nil {
		log.Fatal(err)
	}
	first := <-fetched
	second := <-fetched
	fmt.Println("left alone for 200 ms:", second.Sub(first) > 220*time.Millisecond)

	shaper.Stop()
	workers.Shutdown()
	// Output:
	// left alone for 200 ms: true
}
