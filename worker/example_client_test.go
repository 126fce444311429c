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

// A campaign is planned when it is enqueued: each mail for the time at which its
// tenant's quota has room, and it is known at once when the last will be out. The
// workers need the same throttle and function, see ExampleNew.
func ExampleClient_EnqueueAll() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	th, err := throttle.New("smtp", client, []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerMinute(100)}},
		{Name: "tenant", Limits: []throttle.Limit{throttle.PerMinute(20)}},
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
	campaign := make([]*asynq.Task, 50)
	for i := range campaign {
		campaign[i] = worker.NewTask("mail:send", fmt.Appendf(nil, "mail %d", i+1),
			map[string]string{"tenant": "acme"}, asynq.MaxRetry(3))
	}
	began := time.Now()
	plan, err := queue.EnqueueAll(context.Background(), campaign, asynq.Queue("mails"))
	if err != nil {
		log.Fatal(err)
	}
	for _, n := range []int{1, 20, 21, 50} {
		task := plan.Tasks[n-1]
		fmt.Printf("mail %d of queue %s: %s, after %s\n", n, task.Info.Queue, task.Reservation.Outcome,
			task.Start.Sub(began).Round(time.Minute))
	}
	fmt.Println("the last after", plan.Last.Sub(began).Round(time.Minute))
	// Output:
	// mail 1 of queue mails: booked, after 0s
	// mail 20 of queue mails: booked, after 0s
	// mail 21 of queue mails: waiting, after 1m0s
	// mail 50 of queue mails: waiting, after 2m0s
	// the last after 2m0s
}
