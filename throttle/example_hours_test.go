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

// A tenant's mails go out by day, by the clock of Paris. What is asked for at night has its place in the morning.
func ExampleOpenHours() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	server.SetTime(time.Date(2026, 11, 27, 18, 30, 0, 0, time.UTC)) // a Friday evening
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	ctx := context.Background()

	th, err := throttle.New("mails", client, []throttle.Scope{
		{Name: "tenant", Limits: []throttle.Limit{
			throttle.PerMinute(100),
			throttle.OpenHours("Mon-Fri 09:00-17:00, Sat 10:00-12:00 @Europe/Paris", "2026-12-25", "2027-01-01"),
		}},
	}, &throttle.Options{Timeout: 5 * time.Second}) // this Redis shares a machine that may be busy
	if err != nil {
		log.Fatal(err)
	}
	got, err := th.Reserve(ctx, throttle.Job{ID: "mail-1", Weight: 1, Keys: map[string]string{"tenant": "acme"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s until %s\nby %s\n", got.Outcome, got.Start.UTC().Format("Mon 15:04 MST"), got.Hold.Limit)
	// Output:
	// waiting until Sat 09:00 UTC
	// by open Mon-Fri 09:00-17:00, Sat 10:00-12:00, except 2026-12-25 2027-01-01 @Europe/Paris
}
