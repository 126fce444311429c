package workertest_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/upstream"
	"github.com/asynq-throttle/asynq-throttle/worker"
	"github.com/asynq-throttle/asynq-throttle/worker/workertest"
)

// complete is the handler to be tested.
func complete(ctx context.Context, task *asynq.Task) error {
	resp, err := http.Get(string(task.Payload()))
	if err != nil {
		return worker.Untouched(err)
	}
	defer resp.Body.Close()
	wait, refused := upstream.HTTPWait(resp)
	if _, err := worker.Report(ctx, "model", throttle.Report{Refused: refused, RetryAfter: wait}); err != nil {
		return err
	}
	if refused {
		return worker.AskedToWait("model", wait, nil)
	}
	return worker.Settle(ctx, 150) // as the answer says
}

// What a handler says of its grant, looked at in a unit test: no Redis, no asynq server.
func ExampleNewGrant() {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/busy" {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer provider.Close()

	job := throttle.Job{Weight: 800, Keys: map[string]string{"model": "large"}}
	for _, path := range []string{"/", "/busy"} {
		ctx, grant := workertest.NewGrant(context.Background(), job)
		err := complete(ctx, asynq.NewTask("prompt", []byte(provider.URL+path)))
		units, settled := grant.Settled()
		fmt.Println("error:", err)
		fmt.Println("settled:", settled, units)
		fmt.Println("refused:", grant.Reports("model")[0].Refused)
	}
	// Output:
	// error: <nil>
	// settled: true 150
	// refused: false
	// error: worker: the upstream asks to wait 1m0s, scope model
	// settled: false 0
	// refused: true
}
