//go:build unix

package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// A worker that was there before: it runs until a signal ends it, and the tenant stands in
// the payload of its tasks.
func Example_run() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	sent := make(chan string)
	send := func(_ context.Context, task *asynq.Task) error {
		sent <- string(task.Payload())
		return nil
	}

	config := asynq.Config{Concurrency: 10}
	config.LogLevel = asynq.FatalLevel // this is an example
	connection := asynq.RedisClientOpt{Addr: server.Addr()}
	client := connection.MakeRedisClient().(redis.UniversalClient)
	defer client.Close()
	th, err := throttle.New("smtp", client, []throttle.Scope{
		{Name: "tenant", Limits: []throttle.Limit{throttle.PerSecond(2)}},
	}, &throttle.Options{Timeout: 5 * time.Second}) // this Redis shares a machine that may be busy
	if err != nil {
		log.Fatal(err)
	}
	shaper, err := worker.New(th, client, func(_ context.Context, task *asynq.Task) (throttle.Job, error) {
		var mail struct{ Tenant string }
		if err := json.Unmarshal(task.Payload(), &mail); err != nil {
			return throttle.Job{}, fmt.Errorf("%w: %w", err, asynq.SkipRetry) // no retry mends it
		}
		return throttle.Job{Weight: 1, Keys: map[string]string{"tenant": mail.Tenant}}, nil
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	workers := asynq.NewServer(connection, shaper.Configure(config))
	mux := asynq.NewServeMux()
	mux.Use(shaper.Wrap) // first, so that it is the outermost
	mux.HandleFunc("mail:send", send)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		signaled, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer cancel()
		context.AfterFunc(signaled, shaper.Stop) // beside Run, which has the same signals
		if err := workers.Run(mux); err != nil {
			log.Fatal(err)
		}
	}()

	queue := asynq.NewClient(connection)
	defer queue.Close()
	task := worker.NewTask("mail:send", []byte(`{"tenant": "acme", "to": "bob"}`), nil)
	if _, err := queue.Enqueue(task); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-sent)

	for running := true; running; { // until Run listens
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			log.Fatal(err)
		}
		select {
		case <-ended:
			running = false
		case <-time.After(10 * time.Millisecond):
		}
	}
	signal.Reset(syscall.SIGINT) // asynq keeps it, and Ctrl-C is to end the tests
	fmt.Println("ended")
	// Output:
	// {"tenant": "acme", "to": "bob"}
	// ended
}
