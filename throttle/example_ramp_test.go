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

// A new IP address is warmed up: 50 mails on the first day, twice as many on each day after it.
func ExampleRamp() {
	server, err := miniredis.Run() // stands for any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	server.SetTime(time.Date(2026, 12, 3, 9, 0, 0, 0, time.UTC)) // the third day
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	ctx := context.Background()

	warmup := throttle.Ramp("50/day x2 max 20000 from 2026-12-01 @UTC")
	th, err := throttle.New("mails", client, []throttle.Scope{
		{Name: "ip", Limits: []throttle.Limit{warmup, throttle.PerMinute(10)}},
	}, &throttle.Options{Timeout: 5 * time.Second}) // this Redis shares a machine that may be busy
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(warmup)

	// Mails are deferred: the third day's units stay in force, until somebody continues the ramp.
	held := warmup.Held(time.Date(2026, 12, 3, 9, 0, 0, 0, time.UTC))
	in := inspect.New(th)
	err = in.SetLimits(ctx, "ip", "192.0.2.7", []throttle.Limit{held, throttle.PerMinute(10)},
		inspect.Why("deferrals at one domain"))
	if err != nil {
		log.Fatal(err)
	}
	server.SetTime(time.Date(2026, 12, 5, 9, 0, 0, 0, time.UTC))
	usage, err := in.Usage(ctx, "ip", "192.0.2.7")
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range usage.Limits {
		fmt.Printf("%s: %d in force\n", l.Limit.Label(), l.Units)
	}
	goesOn := held.Continued(usage.Now)
	fmt.Println(goesOn.UnitsAt(usage.Now), "today,", goesOn.UnitsAt(usage.Now.AddDate(0, 0, 1)), "tomorrow")
	// Output:
	// ramp 50 100 200 400 800 1600 3200 6400 12800 20000/day from 2026-12-01 @UTC
	// 1m: 10 in force
	// day@UTC: 200 in force
	// 200 today, 400 tomorrow
}
