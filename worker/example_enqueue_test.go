package worker_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// Each mail is planned when it is enqueued, so its sender can be told when it will be out.
// The workers need the same throttle and function, see ExampleNew.
func ExampleClient_Enqueue() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	th, err := throttle.New("smtp", client, []throttle.Scope{
		{Name: "tenant", Limits: []throttle.Limit{throttle.PerMinute(2)}},
	}, &throttle.Options{Timeout: 5 * time.Second}) // this Redis shares a machine that may be busy
	if err != nil {
		log.Fatal(err)
	}
	queue, err := worker.NewClient(th, client, func(_ context.Context, task *asynq.Task) (throttle.Job, error) {
		return throttle.Job{Weight: 1, Keys: map[string]string{"tenant": task.Headers()["tenant"]}}, nil
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	began := time.Now()
	for n := range 3 {
		mail := worker.NewTask("mail:send", fmt.Appendf(nil, "mail %d", n+1), map[string]string{"tenant": "acme"})
		planned, err := queue.Enqueue(context.Background(), mail, asynq.Queue("mails"))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("mail %d: %s, after %s\n", n+1, planned.Reservation.Outcome, planned.Start.Sub(began).Round(time.Minute))
	}
	// Output:
	// mail 1: booked, after 0s
	// mail 2: booked, after 0s
	// mail 3: waiting, after 1m0s
}
