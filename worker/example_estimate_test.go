package worker_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/estimate"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// Nobody says what a prompt takes: the first ones are charged what an answer may have at
// most on top of the prompt's tokens, the later ones what such prompts have taken.
func Example_estimate() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	th, err := throttle.New("llm", client, []throttle.Scope{
		{Name: "model", Limits: []throttle.Limit{throttle.PerMinute(100_000)}}, // tokens
	}, &throttle.Options{Timeout: 5 * time.Second}) // this Redis shares a machine that may be busy
	if err != nil {
		log.Fatal(err)
	}
	// An answer has 4000 tokens at most. A job of more than the limit would never start.
	estimator, err := estimate.New(4000, &estimate.Options{Most: 100_000})
	if err != nil {
		log.Fatal(err)
	}
	shaper, err := worker.New(th, client, func(context.Context, *asynq.Task) (throttle.Job, error) {
		return throttle.Job{Keys: map[string]string{"model": "large"}}, nil // its Weight is estimated
	}, &worker.Options{
		Estimator: estimator,
		Kind: func(task *asynq.Task) (kind string, size int64) {
			return task.Type() + " large", tokens(task.Payload())
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	workers := asynq.NewServerFromRedisClient(client,
		shaper.Configure(asynq.Config{Concurrency: 1, LogLevel: asynq.FatalLevel}))
	mux := asynq.NewServeMux()
	mux.Use(shaper.Wrap)
	answered := make(chan string)
	mux.HandleFunc("summarise", func(ctx context.Context, task *asynq.Task) error {
		took := summarise(task.Payload())
		if err := worker.Settle(ctx, took); err != nil {
			log.Print(err) // it stays charged; no reason to ask the upstream again
		}
		grant, _ := worker.Grant(ctx)
		answered <- fmt.Sprintf("%d tokens: charged %d, took %d", tokens(task.Payload()), grant.Job.Weight, took)
		return nil
	})

	queue := asynq.NewClientFromRedisClient(client)
	for i := range 21 {
		prompt := make([]byte, 4*(300+i%7*100))
		if _, err := queue.Enqueue(worker.NewTask("summarise", prompt, nil)); err != nil {
			log.Fatal(err)
		}
	}
	if err := workers.Start(mux); err != nil {
		log.Fatal(err)
	}
	for i := range 21 {
		if said := <-answered; i == 0 || i >= 19 {
			fmt.Println(said)
		}
	}
	shaper.Stop()
	workers.Shutdown()
	// Output:
	// 300 tokens: charged 4300, took 340
	// 800 tokens: charged 860, took 860
	// 900 tokens: charged 960, took 940
}

// tokens guesses how many a prompt has.
func tokens(prompt []byte) int64 { return int64(len(prompt) / 4) }

// summarise asks a model, which says how many tokens prompt and answer had.
func summarise(prompt []byte) int64 { return tokens(prompt) + 40 + tokens(prompt)/100%3*10 }
