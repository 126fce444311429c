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

// When could a page be fetched, if it came now? Nothing is charged or booked by asking.
func ExampleThrottle_Peek() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	ctx := context.Background()
	th, err := throttle.New("crawl", client, []throttle.Scope{
		{Name: "host", Limits: []throttle.Limit{throttle.PerMinute(100)}},
	}, &throttle.Options{Timeout: 5 * time.Second}) // this Redis shares a machine that may be busy
	if err != nil {
		log.Fatal(err)
	}
	host := map[string]string{"host": "example.org"}
	if _, err := th.Reserve(ctx, throttle.Job{ID: "page-1", Weight: 80, Keys: host}); err != nil {
		log.Fatal(err)
	}
	for _, weight := range []int64{20, 30} {
		r, err := th.Peek(ctx, throttle.Job{ID: "page-2", Weight: weight, Keys: host})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("weight %d: %s, after %s\n", weight, r.Outcome, r.Delay().Round(time.Minute))
	}
	usage, err := inspect.New(th).Usage(ctx, "host", "example.org")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("used:", usage.Limits[0].Used)
	// Output:
	// weight 20: granted, after 0s
	// weight 30: waiting, after 1m0s
	// used: 80
}
