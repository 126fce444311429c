package worker_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/worker"
)

// busyError is what the client of some service returns: no HTTP, no SMTP.
type busyError struct{ wait time.Duration } // 0: the service did not say

func (busyError) Error() string { return "too busy" }

// A service says that it is too busy. The handler passes this on to the throttle, with the scope whose key has to
// wait: all tasks of this account then wait, and lose no retry.
func ExampleAskedToWait() {
	call := func(_ context.Context, order string) error {
		if order == "order 1" {
			return busyError{wait: 30 * time.Second}
		}
		return busyError{}
	}

	handler := func(ctx context.Context, task *asynq.Task) error {
		err := call(ctx, string(task.Payload()))
		var busy busyError
		if errors.As(err, &busy) {
			return worker.AskedToWait("account", busy.wait, err)
		}
		return err
	}
	for _, order := range []string{"order 1", "order 2"} {
		fmt.Println(handler(context.Background(), asynq.NewTask("order", []byte(order))))
	}
	// Output:
	// worker: the upstream asks to wait 30s, scope account
	// worker: the upstream asks to wait 1m0s, scope account
}
