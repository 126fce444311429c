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

// An upstream asks for no more requests: a pause closes its key for all processes. Jobs of
// other keys go on.
func ExampleInspector_Pause() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	ctx := context.Background()
	th, err := throttle.New("smtp", client, []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerSecond(200)}},
		{Name: "domain"}, // no limit of its own; it can be paused
	}, &throttle.Options{Lookahead: time.Hour, Timeout: 5 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := inspect.New(th).Pause(ctx, "domain", "gmail.example", time.Now().Add(10*time.Minute)); err != nil {
		log.Fatal(err)
	}
	for _, domain := range []string{"gmail.example", "web.example"} {
		r, err := th.Reserve(ctx, throttle.Job{ID: "to " + domain, Weight: 1, Keys: map[string]string{"domain": domain}})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(domain, r.Outcome, r.Delay().Round(time.Minute), r.Hold != nil && r.Hold.Paused)
	}
	resumed, err := inspect.New(th).Resume(ctx, "domain", "gmail.example")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("resumed:", resumed)
	// Output:
	// gmail.example booked 10m0s true
	// web.example granted 0s false
	// resumed: true
}
