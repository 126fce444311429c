package throttle_test

import (
	"context"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// counters is an observer of one's own. Many goroutines call it, and wait for it: it
// only counts.
type counters struct {
	granted, held, fallbacks, givenBack, pauses atomic.Int64
}

func (c *counters) Decided(d throttle.Decision) {
	switch {
	case d.Err != nil: // it can never start, or Redis could not decide
	case d.Reservation.Outcome == throttle.Granted:
		c.granted.Add(1)
	default:
		c.held.Add(1)
	}
}

func (c *counters) FellBack(throttle.Outage) { c.fallbacks.Add(1) }

func (c *counters) Settled(s throttle.Settlement) { c.givenBack.Add(s.Charged - s.Actual) }

func (c *counters) Paused(throttle.Pause) { c.pauses.Add(1) }

// The other events are of no interest here.

func (*counters) Called(throttle.ScriptCall)  {}
func (*counters) Adapted(throttle.Adaptation) {}
func (*counters) Started(throttle.Lateness)   {}
func (*counters) PutBack(throttle.PutBack)    {}
func (*counters) Ended(throttle.Ending)       {}

// What a throttle does is counted by an observer of one's own. For Prometheus there is
// the package metrics.
func ExampleObserver() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	ctx := context.Background()
	var count counters
	th, err := throttle.New("llm", client, []throttle.Scope{
		{Name: "model", Limits: []throttle.Limit{throttle.PerMinute(1000)}}, // tokens
	}, &throttle.Options{Observer: &count, Timeout: 5 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	large := map[string]string{"model": "large"}
	granted, err := th.Reserve(ctx, throttle.Job{ID: "prompt-1", Weight: 800, Keys: large})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := th.Reserve(ctx, throttle.Job{ID: "prompt-2", Weight: 800, Keys: large}); err != nil {
		log.Fatal(err)
	}
	if _, err := th.Settle(ctx, granted, 150); err != nil {
		log.Fatal(err)
	}
	if _, err := inspect.New(th).Pause(ctx, "model", "large", time.Now().Add(time.Minute)); err != nil {
		log.Fatal(err)
	}
	fmt.Println("granted:", count.granted.Load())
	fmt.Println("held back:", count.held.Load())
	fmt.Println("decided by a fallback:", count.fallbacks.Load())
	fmt.Println("units given back:", count.givenBack.Load())
	fmt.Println("pauses:", count.pauses.Load())
	// Output:
	// granted: 1
	// held back: 1
	// decided by a fallback: 0
	// units given back: 650
	// pauses: 1
}
