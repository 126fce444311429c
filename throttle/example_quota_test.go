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

// A provider grants 5,000 requests a day, which begins at midnight in Los Angeles. A window beside the quota paces
// what starts then.
func ExamplePerCalendarDay() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	ctx := context.Background()

	th, err := throttle.New("maps", client, []throttle.Scope{
		{Name: "account", Limits: []throttle.Limit{
			throttle.PerCalendarDay(5000, "America/Los_Angeles"), throttle.PerMinute(20),
		}},
	}, &throttle.Options{Timeout: 5 * time.Second}) // this Redis shares a machine that may be busy
	if err != nil {
		log.Fatal(err)
	}
	job := throttle.Job{ID: "route-1", Weight: 3, Keys: map[string]string{"account": "acme"}}
	if _, err := th.Reserve(ctx, job); err != nil {
		log.Fatal(err)
	}
	usage, err := inspect.New(th).Usage(ctx, "account", "acme")
	if err != nil {
		log.Fatal(err)
	}
	zone, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		log.Fatal(err)
	}
	for _, limit := range usage.Limits {
		fmt.Printf("%d of %s", limit.Used, limit.Limit)
		if !limit.Anew.IsZero() {
			fmt.Printf(", anew at %s", limit.Anew.In(zone).Format("15:04"))
		}
		fmt.Println()
	}
	// Output:
	// 3 of 20/1m
	// 3 of 5000/day@America/Los_Angeles, anew at 00:00
}
