package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Redis is gone. By default nothing starts. A process of four may also go on by itself
// with a quarter of each limit: half of that at once, half over the window.
func ExampleFallback() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	defer client.Close()
	server.Close()

	scopes := []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerMinute(40)}}}
	try := func(opts *throttle.Options) {
		th, err := throttle.New("smtp", client, scopes, opts)
		if err != nil {
			log.Fatal(err)
		}
		granted, refused := 0, 0
		for n := range 8 {
			job := throttle.Job{ID: fmt.Sprintf("mail-%d", n), Weight: 1}
			r, err := th.Reserve(context.Background(), job)
			switch {
			case errors.Is(err, throttle.ErrUnavailable):
				refused++ // ask again later
			case err != nil:
				log.Fatal(err)
			case r.Outcome == throttle.Granted:
				granted++
			}
		}
		fmt.Printf("granted %d, refused %d\n", granted, refused)
	}
	try(nil)
	try(&throttle.Options{Fallback: throttle.FallbackLocal, LocalShare: 0.25})
	try(&throttle.Options{Fallback: throttle.FallbackOpen})
	// Output:
	// granted 0, refused 8
	// granted 5, refused 3
	// granted 8, refused 0
}
