// Package workertest helps to test handlers that run under a package worker's grant, without a
// Redis and without an asynq server.
package workertest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/testgrant"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	_ "github.com/asynq-throttle/asynq-throttle/worker" // which sets testgrant.New
)

// Grant is a grant that records what a handler settles, refunds and reports. NewGrant makes one.
// It is safe for use by many goroutines.
type Grant struct {
	granted throttle.Reservation

	mu       sync.Mutex
	settled  bool // or refunded: the first counts
	units    *int64
	costs    map[string]int64
	refunded bool
	reports  map[string][]throttle.Report
	ended    func() throttle.Reservation
}

// NewGrant returns the context of a handler whose job was granted, started now, and the grant
// itself. Package worker answers the handler as it does under a throttle that has only this job
// and a Floor in every scope: Settle, SettleCosts and Refund return nil, and the first of them
// counts; Report returns a served share of 1. As always, a Report of a scope of which the job
// has no key returns ErrNoGrant, and a negative settlement a *throttle.InvalidJobError.
//
// The methods of a Shaper with the same names know only that shaper's grants: a handler that
// calls them instead of the functions gets ErrNoGrant.
//
// The context is derived from ctx; NewGrant starts no goroutine.
func NewGrant(ctx context.Context, job throttle.Job) (context.Context, *Grant) {
	now := time.Now()
	g := &Grant{
		granted: throttle.Reservation{Job: job, Outcome: throttle.Granted, Start: now, Now: now},
		reports: make(map[string][]throttle.Report),
	}
	ctx, g.ended = testgrant.New(ctx, g.granted, account{g})
	return ctx, g
}

// Settled returns the units that the handler has settled the job for; false if it has not.
func (g *Grant) Settled() (units int64, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.units == nil {
		return 0, false
	}
	return *g.units, true
}

// SettledCosts returns the units that the handler has settled, by scope; nil if it has not called
// SettleCosts.
func (g *Grant) SettledCosts() map[string]int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.costs)
}

// Refunded reports whether the handler has called Refund. A handler that returns Untouched or a
// wait is refunded by the Shaper: test the error that it returns.
func (g *Grant) Refunded() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refunded
}

// Reports returns the handler's reports about a scope, in order. Started is the start of the grant
// unless the handler has set another.
func (g *Grant) Reports(scope string) []throttle.Report {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.reports[scope])
}

// Cooldowns returns the cool-downs that the handler has set, by scope; nil if none.
func (g *Grant) Cooldowns() map[string]time.Duration { return g.ended().Cooldowns }

// account records the calls of package worker.
type account struct{ *Grant }

func (a account) Settle(_ context.Context, _ throttle.Reservation, actual int64) (bool, error) {
	if err := checkActual(actual); err != nil {
		return false, err
	}
	return a.once(func() { a.units = &actual }), nil
}

func (a account) SettleCosts(_ context.Context, _ throttle.Reservation, actual map[string]int64) (bool, error) {
	for _, units := range actual {
		if err := checkActual(units); err != nil {
			return false, err
		}
	}
	return a.once(func() { a.costs = maps.Clone(actual) }), nil
}

func (a account) Refund(context.Context, throttle.Reservation) (bool, error) {
	return a.once(func() { a.refunded = true }), nil
}

func checkActual(units int64) error {
	if units < 0 {
		return &throttle.InvalidJobError{Field: "actual", Value: units, Reason: "is less than 0"}
	}
	return nil
}

// once notes the first settlement of the grant.
func (a account) once(note func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.settled {
		return false
	}
	a.settled = true
	note()
	return true
}

func (a account) Report(_ context.Context, scope, key string, r throttle.Report) (throttle.Adaptation, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reports[scope] = append(a.reports[scope], r)
	return throttle.Adaptation{Scope: scope, Key: key, Before: 1, Served: 1}, nil
}
