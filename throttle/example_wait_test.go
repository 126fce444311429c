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
		fmt.Printf("%s in window %d\n", r.Job.ID, r.Start.Sub(first)/(300*time.Millisecond))
	}
	// Output:
	// call-0 in window 0
	// call-1 in window 0
	// call-2 in window 1
	// call-3 in window 1
	// call-4 in window 2
}
