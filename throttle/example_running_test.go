package throttle_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Without asynq a program says itself that a job has ended, and that it still runs.
func ExampleRunning() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	ctx := context.Background()

	th, err := throttle.New("exports", client, []throttle.Scope{
		{Name: "tenant", Limits: []throttle.Limit{{Units: 2, Running: true, Lease: time.Minute}}}, // 2/running@1m
	}, &throttle.Options{Timeout: 5 * time.Second}) // this Redis shares a machine that may be busy
	if err != nil {
		log.Fatal(err)
	}
	export := func(n int) throttle.Job {
		return throttle.Job{ID: fmt.Sprint("export-", n), Weight: 1, Keys: map[string]string{"tenant": "acme"}}
	}
	first, err := th.Wait(ctx, export(1)) // sleeps until there is a place
	if err != nil {
		log.Fatal(err)
	}
	if _, err := th.Wait(ctx, export(2)); err != nil {
		log.Fatal(err)
	}
	third, err := th.Reserve(ctx, export(3))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the third is", third.Outcome)

	held, err := th.Renew(ctx, first) // every 20 s or so, first.Lease / 3, while it runs
	if err != nil {
		log.Fatal(err)
	}
	if !held[0] {
		log.Fatal("another may run in its place: stop")
	}
	if _, err := th.Done(ctx, first); err != nil { // when it has ended
		log.Fatal(err)
	}
	if _, err := th.Wait(ctx, export(3)); err != nil {
		log.Fatal(err)
	}
	fmt.Println("the third runs")
	// Output:
	// the third is waiting
	// the third runs
}
