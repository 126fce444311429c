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

// A job without room gets a slot: the moment to ask for it again.
func ExampleThrottle_Reserve() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	th, err := throttle.New("crawl", client, []throttle.Scope{
		{Name: "host", Limits: []throttle.Limit{throttle.PerMinute(100)}},
	}, &throttle.Options{
		Lookahead: time.Hour,       // nobody waits in line for a slot within the hour
		Timeout:   5 * time.Second, // this Redis shares a machine that may be busy
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, job := range []throttle.Job{
		{ID: "page-1", Weight: 80, Keys: map[string]string{"host": "example.org"}},
		{ID: "page-2", Weight: 30, Keys: map[string]string{"host": "example.org"}},
		{ID: "page-3", Weight: 30, Keys: map[string]string{"host": "example.com"}},
		{ID: "page-2", Weight: 30, Keys: map[string]string{"host": "example.org"}}, // asked again: the same slot
	} {
		r, err := th.Reserve(context.Background(), job)
		if err != nil {
			log.Fatal(err)
		}
		switch r.Outcome {
		case throttle.Granted:
			fmt.Println(job.ID, "starts now")
		case throttle.Booked:
			fmt.Printf("%s starts in %s: %s limit %s, %d used, %d booked\n",
				job.ID, r.Delay().Round(time.Minute), r.Hold.Scope, r.Hold.Limit, r.Hold.Used, r.Hold.Booked)
		}
	}
	// Output:
	// page-1 starts now
	// page-2 starts in 1m0s: host limit 100/1m, 80 used, 0 booked
	// page-3 starts now
	// page-2 starts in 1m0s: host limit 100/1m, 80 used, 30 booked
}
