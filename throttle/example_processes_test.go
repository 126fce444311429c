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

// Processes that give their throttle the same name share its limits. Each has a Throttle
// of its own, here two in one process.
func ExampleNew_processes() {
	server, err := miniredis.Run() // stands for any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	scopes := []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.PerMinute(3)}}}
	open := func() *throttle.Throttle {
		// This Redis shares a machine that may be busy.
		th, err := throttle.New("smtp", client, scopes, &throttle.Options{Timeout: 5 * time.Second})
		if err != nil {
			log.Fatal(err)
		}
		return th
	}
	first, second := open(), open()
	for n, th := range []*throttle.Throttle{first, second, first, second} {
		job := throttle.Job{ID: fmt.Sprintf("mail-%d", n), Weight: 1, Keys: map[string]string{"tenant": "acme"}}
		r, err := th.Reserve(context.Background(), job)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(job.ID, r.Outcome)
	}
	// Output:
	// mail-0 granted
	// mail-1 granted
	// mail-2 granted
	// mail-3 waiting
}
