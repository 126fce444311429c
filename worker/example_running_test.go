package worker_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// A domain takes two connections at once, and 100 a minute. Nothing in the handler is about
// that: a task that finds both taken comes when one is free.
func Example_running() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	th, err := throttle.New("smtp", client, []throttle.Scope{
		{Name: "domain", Limits: []throttle.Limit{throttle.Running(2), throttle.PerMinute(100)}},
	}, &throttle.Options{Timeout: 5 * time.Second}) // this Redis shares a machine that may be busy
	if err != nil {
		log.Fatal(err)
	}
	shaper, err := worker.New(th, client, func(_ context.Context, task *asynq.Task) (throttle.Job, error) {
		return throttle.Job{Weight: 1, Keys: map[string]string{"domain": task.Headers()["domain"]}}, nil
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	workers := asynq.NewServerFromRedisClient(client,
		shaper.Configure(asynq.Config{Concurrency: 16, LogLevel: asynq.FatalLevel}))
	var mu sync.Mutex
	running, most := 0, 0
	count := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		running += n
		most = max(most, running)
	}
	var sent sync.WaitGroup
	send := func(ctx context.Context, _ *asynq.Task) error {
		defer sent.Done()
		count(1)
		defer count(-1)
		select {
		case <-time.After(20 * time.Millisecond): // the mail is out
			return nil
		case <-ctx.Done(): // its Timeout, or worker.ErrPlaceLost: another task may run in its place
			return context.Cause(ctx)
		}
	}
	mux := asynq.NewServeMux()
	mux.Use(shaper.Wrap)
	mux.HandleFunc("mail:send", send)

	queue := asynq.NewClientFromRedisClient(client)
	for n := range 8 {
		sent.Add(1)
		task := worker.NewTask("mail:send", fmt.Appendf(nil, "mail %d", n), map[string]string{"domain": "gmail.example"})
		if _, err := queue.Enqueue(task); err != nil {
			log.Fatal(err)
		}
	}
	if err := workers.Start(mux); err != nil {
		log.Fatal(err)
	}
	sent.Wait()
	fmt.Println("two at once, or fewer:", most <= 2)

	shaper.Stop()
	workers.Shutdown()
	// Output:
	// two at once, or fewer: true
}
