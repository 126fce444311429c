package main

import (
	"context"
	"fmt"
	"io"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// checkRedis tells what is wrong with the Redis that -redis names; the error is what
// keeps the run from beginning.
func checkRedis(ctx context.Context, stderr io.Writer, th *throttle.Throttle) error {
	findings, err := th.Check(ctx)
	for _, f := range findings {
		fmt.Fprintf(stderr, "emailer: redis: %s\n", f)
	}
	return err
}
