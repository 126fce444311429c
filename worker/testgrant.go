package worker

import (
	"context"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/testgrant"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/upstream"
)

// Package workertest gets its contexts here: only this package can make them.
var _ = testgrant.Use(newTestGrant)

// newTestGrant puts a grant of a shaper that wraps nothing into a context.
func newTestGrant(ctx context.Context, granted throttle.Reservation,
	to testgrant.Account) (handler context.Context, ended func() throttle.Reservation) {
	s := &Shaper{throttle: testDecider{Account: to}, driver: testDriver{},
		options: Options{MaxAskedWait: upstream.MaxWait}}
	s.puller = newPuller(s)
	g := &grant{Reservation: granted}
	return s.withGrant(ctx, g), g.ended
}

// testDecider decides nothing: a handler only settles, refunds and reports.
type testDecider struct {
	decider
	testgrant.Account
}

func (d testDecider) Settle(ctx context.Context, r throttle.Reservation, actual int64) (bool, error) {
	return d.Account.Settle(ctx, r, actual)
}

func (d testDecider) SettleCosts(ctx context.Context, r throttle.Reservation, actual map[string]int64) (bool, error) {
	return d.Account.SettleCosts(ctx, r, actual)
}

func (d testDecider) Refund(ctx context.Context, r throttle.Reservation) (bool, error) {
	return d.Account.Refund(ctx, r)
}

func (d testDecider) Report(ctx context.Context, scope, key string, r throttle.Report) (throttle.Adaptation, error) {
	return d.Account.Report(ctx, scope, key, r)
}

// testDriver has no line.
type testDriver struct{ driver }

// Due returns the zero time: no pull is ever due.
func (testDriver) Due() time.Time { return time.Time{} }
