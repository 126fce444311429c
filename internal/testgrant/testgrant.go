// Package testgrant connects worker, which alone can put a grant into a context, with
// worker/workertest, whose users need one without a Redis.
package testgrant

import (
	"context"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Account records what a handler does with its grant. Its methods are those of
// throttle.Throttle.
type Account interface {
	Settle(ctx context.Context, granted throttle.Reservation, actual int64) (bool, error)
	SettleCosts(ctx context.Context, granted throttle.Reservation, actual map[string]int64) (bool, error)
	Refund(ctx context.Context, granted throttle.Reservation) (bool, error)
	Report(ctx context.Context, scope, key string, r throttle.Report) (throttle.Adaptation, error)
}

// Maker puts a grant into a context. The function ended returns the grant with the cool-downs
// that the handler has set so far.
type Maker func(ctx context.Context, granted throttle.Reservation, to Account) (handler context.Context,
	ended func() throttle.Reservation)

// New is the Maker of package worker.
var New Maker

// Use sets New. Package worker calls it once, before any test runs.
func Use(m Maker) Maker {
	New = m
	return m
}
