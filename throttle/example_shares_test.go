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

// Two tenants wait for the limit that they share. One that pays for it starts three jobs
// where another starts one, and does not have to wait until the other's are through.
func ExampleOptions_shares() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	th, err := throttle.New("smtp", client, []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerMinute(40)}},
		{Name: "tenant"}, // no limit of its own; its keys take turns
	}, &throttle.Options{
		FairScope: "tenant", // the default, where there is a scope of this name
		Shares:    map[string]int{"acme": 3},
		Timeout:   5 * time.Second, // this Redis shares a machine that may be busy
	})
	if err != nil {
		log.Fatal(err)
	}
	var campaign []throttle.Job
	for _, tenant := range []string{"globex", "acme"} { // globex came first
		for range 200 {
			campaign = append(campaign, throttle.Job{Weight: 1, Keys: map[string]string{"tenant": tenant}})
		}
	}
	forecast, err := inspect.New(th).Forecast(context.Background(), campaign)
	if err != nil {
		log.Fatal(err)
	}
	started := make(map[string]int) // from the second minute to the fifth
	for i, start := range forecast.Starts {
		if minute := start.Sub(forecast.Now).Minutes(); minute >= 0.5 && minute < 4.5 {
			started[campaign[i].Keys["tenant"]]++
		}
	}
	fmt.Println("acme", started["acme"], "globex", started["globex"])
	// Output:
	// acme 120 globex 40
}
