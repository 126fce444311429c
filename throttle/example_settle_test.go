package throttle_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// A job is charged the most that it may take. Once its use is known, the charge is corrected, and the rest is free at
// once.
func ExampleThrottle_Settle() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	ctx := context.Background()
	th, err := throttle.New("llm", client, []throttle.Scope{
		{Name: "model", Limits: []throttle.Limit{throttle.PerMinute(1000)}}, // tokens
	}, &throttle.Options{Timeout: 5 * time.Second}) // this Redis shares a machine that may be busy
	if err != nil {
		log.Fatal(err)
	}
	prompt := throttle.Job{ID: "prompt-1", Weight: 800, Keys: map[string]string{"model": "large"}} // at most
	granted, err := th.Reserve(ctx, prompt)
	if err != nil {
		log.Fatal(err)
	}
	took := int64(150) // as the upstream says
	settled, err := th.Settle(ctx, granted, took)
	if err != nil {
		log.Fatal(err)
	}
	again, err := th.Refund(ctx, granted)
	if err != nil {
		log.Fatal(err)
	}
	usage, err := inspect.New(th).Usage(ctx, "model", "large")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("settled:", settled)
	fmt.Println("once more:", again)
	fmt.Println("used:", usage.Limits[0].Used)
	// Output:
	// settled: true
	// once more: false
	// used: 150
}
