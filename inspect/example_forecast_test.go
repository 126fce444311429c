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

// When would a campaign of a hundred mails be out, given what is under way? A forecast
// reserves nothing.
func ExampleInspector_Forecast() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	th, err := throttle.New("smtp", client, []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerMinute(100)}},
		{Name: "tenant", Limits: []throttle.Limit{throttle.PerMinute(20)}},
	}, &throttle.Options{Timeout: 5 * time.Second}) // this Redis shares a machine that may be busy
	if err != nil {
		log.Fatal(err)
	}
	campaign := make([]throttle.Job, 100)
	for i := range campaign {
		campaign[i] = throttle.Job{Weight: 1, Keys: map[string]string{"tenant": "acme"}}
	}
	forecast, err := inspect.New(th).Forecast(context.Background(), campaign)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the 21st after", forecast.Starts[20].Sub(forecast.Now).Round(time.Second))
	fmt.Println("the last after", forecast.Last.Sub(forecast.Now).Round(time.Second))
	// Output:
	// the 21st after 1m0s
	// the last after 4m0s
}

// Why does a job not start? Explain returns all that is known of the job; its text is for
// people.
func ExampleInspector_Explain() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	th, err := throttle.New("smtp", client, []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerMinute(100)}},
		{Name: "tenant", Limits: []throttle.Limit{throttle.PerMinute(20)}},
	}, &throttle.Options{Timeout: 5 * time.Second}) // this Redis shares a machine that may be busy
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	mail := throttle.Job{ID: "mail-1", Weight: 1, Keys: map[string]string{"tenant": "acme"}}
	if _, err := inspect.New(th).Pause(ctx, "tenant", "acme", time.Now().Add(time.Hour)); err != nil {
		log.Fatal(err)
	}
	if _, err := th.Reserve(ctx, mail); err != nil {
		log.Fatal(err)
	}
	e, err := inspect.New(th).Explain(ctx, mail)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d jobs before it, expected to start in %s\n", e.Before, e.Expected.Sub(e.Now).Round(time.Minute))
	fmt.Printf("it waits for %s %s\n", e.Blocked.Scope, e.Blocked.Key)
	for _, usage := range e.Usage {
		for _, limit := range usage.Limits {
			fmt.Printf("%s %s: %d used, %d booked, paused: %t\n", usage.Scope, limit.Limit, limit.Used,
				limit.Booked, !usage.Paused.IsZero())
		}
	}
	// log.Print(e) has all of it on one screen.

	// Output:
	// 0 jobs before it, expected to start in 1h0m0s
	// it waits for tenant acme
	// global 100/1m: 0 used, 0 booked, paused: false
	// tenant 20/1m: 0 used, 0 booked, paused: true
}
