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

// Limits are set while workers run. All processes obey them from their next decision
// on, until the limits are reset.
func ExampleInspector_SetLimits() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	ctx := context.Background()
	th, err := throttle.New("api", client, []throttle.Scope{
		{Name: "tenant", Limits: []throttle.Limit{throttle.PerHour(1000)}},
	}, &throttle.Options{Timeout: 5 * time.Second}) // this Redis shares a machine that may be busy
	if err != nil {
		log.Fatal(err)
	}
	show := func(tenant string) {
		usage, err := inspect.New(th).Usage(ctx, "tenant", tenant)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s:", tenant)
		for _, limit := range usage.Limits {
			fmt.Printf(" %s", limit.Limit)
		}
		fmt.Printf(", set for: %s\n", usage.SetFor)
	}
	// For one tenant, and for all tenants without limits of their own.
	limits := []throttle.Limit{throttle.PerHour(5000), throttle.PerSecond(10)}
	if err := inspect.New(th).SetLimits(ctx, "tenant", "acme", limits); err != nil {
		log.Fatal(err)
	}
	if err := inspect.New(th).SetLimits(ctx, "tenant", "", []throttle.Limit{throttle.PerHour(500)}); err != nil {
		log.Fatal(err)
	}
	show("acme")
	show("globex")
	if err := inspect.New(th).ResetLimits(ctx, "tenant", ""); err != nil {
		log.Fatal(err)
	}
	show("globex")
	// Output:
	// acme: 10/1s 5000/1h, set for: key
	// globex: 500/1h, set for: scope
	// globex: 1000/1h, set for:
}
