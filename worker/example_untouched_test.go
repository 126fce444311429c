package worker_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// A mail whose relay cannot be reached has used nothing of its tenant's quota: the
// charge is given back, and the retry is charged when it comes.
func ExampleUntouched() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	const relay = "127.0.0.1:1" // nobody listens there

	th, err := throttle.New("smtp", client, []throttle.Scope{
		{Name: "tenant", Limits: []throttle.Limit{throttle.PerMinute(20)}},
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
	used := func() int64 {
		usage, err := inspect.New(th).Usage(context.Background(), "tenant", "acme")
		if err != nil {
			log.Fatal(err)
		}
		return usage.Limits[0].Used
	}
	failed := make(chan bool)
	workers := asynq.NewServerFromRedisClient(client, shaper.Configure(asynq.Config{
		Concurrency:  1,
		LogLevel:     asynq.FatalLevel,
		ErrorHandler: asynq.ErrorHandlerFunc(func(context.Context, *asynq.Task, error) { failed <- true }),
	}))
	mux := asynq.NewServeMux()
	mux.Use(shaper.Wrap)
	mux.HandleFunc("mail:send", func(ctx context.Context, task *asynq.Task) error {
		fmt.Println("used while it is sent:", used())
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", relay)
		if err != nil {
			return worker.Untouched(err)
		}
		defer conn.Close()
		_, err = conn.Write(task.Payload())
		return err // the relay may have counted it: the charge stays
	})

	queue := asynq.NewClientFromRedisClient(client)
	if _,
		err := queue.Enqueue(worker.NewTask("mail:send", []byte("mail 1"), map[string]string{"tenant": "acme"})); err != nil {
		log.Fatal(err)
	}
	if err := workers.Start(mux); err != nil {
		log.Fatal(err)
	}
	<-failed
	fmt.Println("used after it failed:", used())

	shaper.Stop()
	workers.Shutdown()
	// Output:
	// used while it is sent: 1
	// used after it failed: 0
}
