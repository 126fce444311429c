package inspect_test

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

// A limit is tried in shadow: no job is delayed, and each grant shows which limit would have
// kept its job back. Units counted in shadow still count when the limit is enforced.
func ExampleInspector_SetMode() {
	server, err := miniredis.Run() // stands for any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	ctx := context.Background()
	th, err := throttle.New("crawl", client, []throttle.Scope{
		{Name: "host", Limits: []throttle.Limit{throttle.PerMinute(2)}, Mode: throttle.Shadow},
	}, &throttle.Options{Timeout: 5 * time.Second}) // this Redis shares a machine that may be busy
	if err != nil {
		log.Fatal(err)
	}
	visit := func(page string) {
		r, err := th.Reserve(ctx, throttle.Job{ID: page, Weight: 1, Keys: map[string]string{"host": "example.org"}})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(page, ": ", r.Outcome)
		if r.Shadow != nil {
			fmt.Printf(", held by %s in force", r.Shadow.Limit)
		}
		fmt.Println()
	}
	visit("page-1")
	visit("page-2")
	visit("page-3")
	if err := inspect.New(th).SetMode(ctx, "host", throttle.Enforce); err != nil {
		log.Fatal(err)
	}
	visit("page-4")
	// Output:
	// page-1: granted
	// page-2: granted
	// page-3: granted, held by 2/1m in force
	// page-4: waiting
}
