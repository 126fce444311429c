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

// One message to 30 recipients is one connection to its domain and 30 mails of its
// tenant. The server refused two of the recipients: they are given back.
func ExampleJob_costs() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	ctx := context.Background()

	th, err := throttle.New("smtp", client, []throttle.Scope{
		{Name: "tenant", Limits: []throttle.Limit{throttle.PerMinute(1000)}}, // mails
		{Name: "domain", Limits: []throttle.Limit{throttle.PerMinute(20)}},   // connections
	}, &throttle.Options{Timeout: 5 * time.Second}) // this Redis shares a machine that may be busy
	if err != nil {
		log.Fatal(err)
	}
	message := throttle.Job{
		ID:     "message-1",
		Weight: 30,
		Costs:  map[string]int64{"domain": 1},
		Keys:   map[string]string{"tenant": "acme", "domain": "web.example"},
	}
	granted, err := th.Reserve(ctx, message)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := th.SettleCosts(ctx, granted, map[string]int64{"tenant": 28}); err != nil {
		log.Fatal(err)
	}
	for _, of := range [][2]string{{"tenant", "acme"}, {"domain", "web.example"}} {
		usage, err := inspect.New(th).Usage(ctx, of[0], of[1])
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s %s: %d of %s\n", of[0], of[1], usage.Limits[0].Used, usage.Limits[0].Limit)
	}
	// Output:
	// tenant acme: 28 of 1000/1m
	// domain web.example: 1 of 20/1m
}
