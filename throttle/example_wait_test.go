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

// A caller without a queue sleeps until its job may start.
func ExampleThrottle_Wait() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	th, err := throttle.New("api", client, []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(2, 300*time.Millisecond)}},
	}, &throttle.Options{Timeout: 5 * time.Second}) // this Redis shares a machine that may be busy
	if err != nil {
		log.Fatal(err)
	}
	var first time.Time
	for n := range 5 {
		r, err := th.Wait(context.Background(), throttle.Job{ID: fmt.Sprintf("call-%d", n), Weight: 1})
		if err != nil {
			log.Fatal(err)
		}
		if n == 0 {
			first = r.Start
		}
		full := time.Duration(n/2) * 300 * time.Millisecond // two in each window
		fmt.Println(r.Job.ID, "waited for its window:", r.Start.Sub(first) >= full)
	}
	// Output:
	// call-0 waited for its window: true
	// call-1 waited for its window: true
	// call-2 waited for its window: true
	// call-3 waited for its window: true
	// call-4 waited for its window: true
}
