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

// A customer waits for an answer while 600 of its own summaries wait. The answer comes next,
// and the summaries go on.
func ExampleJob_priority() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	ctx := context.Background()

	const interactive, batch = 0, 1
	th, err := throttle.New("model", client, []throttle.Scope{
		{Name: "tenant", Limits: []throttle.Limit{throttle.PerMinute(60)}},
	}, &throttle.Options{Timeout: 5 * time.Second}) // this Redis shares a machine that may be busy
	if err != nil {
		log.Fatal(err)
	}
	prompt := func(id string, priority int) throttle.Job {
		return throttle.Job{ID: id, Weight: 1, Priority: priority, Keys: map[string]string{"tenant": "acme"}}
	}
	for i := range 600 {
		if _, err := th.Reserve(ctx, prompt(fmt.Sprint("summary-", i), batch)); err != nil {
			log.Fatal(err)
		}
	}
	forecast, err := inspect.New(th).Forecast(ctx, []throttle.Job{prompt("answer", interactive), prompt("summary", batch)})
	if err != nil {
		log.Fatal(err)
	}
	for i, of := range []string{"an answer", "a summary"} {
		fmt.Printf("%s starts in %s\n", of, forecast.Starts[i].Sub(forecast.Now).Round(time.Minute))
	}
	// Output:
	// an answer starts in 1m0s
	// a summary starts in 10m0s
}
