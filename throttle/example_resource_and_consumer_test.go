package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// A resource takes 5 calls per 10 s, each consumer may make 3 of them. One consumer
// calls once a second, another every two seconds. A call that cannot be made within
// a tenth of a second is refused. The question to Redis takes some of that time: a job
// whose deadline has passed when it is asked for is always refused.
func ExampleThrottle_Reserve_resourceAndConsumer() {
	server, err := miniredis.Run()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	resource, err := throttle.New("resource-12", client, []throttle.Scope{
		{Name: "consumer", Limits: []throttle.Limit{throttle.Per(3, 10*time.Second)}},
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(5, 10*time.Second)}},
	}, &throttle.Options{Timeout: 5 * time.Second}) // this Redis shares a machine that may be busy
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.UnixMicro(1_800_000_000_000_000)
	resource.SetNow(func() time.Time { return now }) // so that this is over in no time

	const patience = 100 * time.Millisecond
	call := func(second int, consumer string) {
		_, err := resource.Reserve(context.Background(), throttle.Job{
			ID:       fmt.Sprint(consumer, " at ", second),
			Weight:   1,
			Keys:     map[string]string{"consumer": consumer},
			MaxWait:  patience,
			Deadline: now.Add(patience),
		})
		var refused *throttle.DeadlineError
		switch {
		case err == nil:
			fmt.Printf("second %2d, consumer %s: allowed\n", second, consumer)
		case errors.As(err, &refused):
			fmt.Printf("second %2d, consumer %s: refused: %s has used %d of %s\n", second, consumer,
				refused.Hold.Scope, refused.Hold.Used, refused.Hold.Limit)
		default:
			fmt.Println(err)
		}
	}
	for second := range 13 {
		call(second, "1")
		if second%2 == 0 {
			call(second, "2")
		}
		now = now.Add(time.Second)
	}
	// Output:
	// second  0, consumer 1: allowed
	// second  0, consumer 2: allowed
	// second  1, consumer 1: allowed
	// second  2, consumer 1: allowed
	// second  2, consumer 2: allowed
	// second  3, consumer 1: refused: consumer has used 3 of 3/10s
	// second  4, consumer 1: refused: consumer has used 3 of 3/10s
	// second  4, consumer 2: refused: global has used 5 of 5/10s
	// second  5, consumer 1: refused: consumer has used 3 of 3/10s
	// second  6, consumer 1: refused: consumer has used 3 of 3/10s
	// second  6, consumer 2: refused: global has used 5 of 5/10s
	// second  7, consumer 1: refused: consumer has used 3 of 3/10s
	// second  8, consumer 1: refused: consumer has used 3 of 3/10s
	// second  8, consumer 2: refused: global has used 5 of 5/10s
	// second  9, consumer 1: refused: consumer has used 3 of 3/10s
	// second 10, consumer 1: allowed
	// second 10, consumer 2: allowed
	// second 11, consumer 1: allowed
	// second 12, consumer 1: allowed
	// second 12, consumer 2: allowed
}
