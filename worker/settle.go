package worker

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// ErrNoGrant says that a context is none of a handler that runs under a grant.
var ErrNoGrant = errors.New("worker: the context has no grant to settle")

// Settle corrects what the task of a handler was charged to what it really took, in
// units, once: see throttle.Throttle.Settle. A second call, or one that comes too late,
// changes nothing and returns nil. A grant that is never settled keeps its estimate. The call ends even if the
// handler's own context is over. Where several shapers are wrapped around a handler, it is about the innermost;
// Shaper.Settle is about one of them.
//
// Its errors: ErrNoGrant and those of throttle.Throttle.Settle.
func Settle(ctx context.Context, actual int64) error { return grantOf(ctx).settle(ctx, actual) }

// SettleCosts is Settle with an actual cost for each scope, by its name: see
// throttle.Throttle.SettleCosts.
func SettleCosts(ctx context.Context, actual map[string]int64) error {
	return grantOf(ctx).settleCosts(ctx, actual)
}

// Refund takes back all that the task of a handler was charged, since it took nothing.
// Its errors are those of Settle.
func Refund(ctx context.Context) error { return grantOf(ctx).refund(ctx) }

// Settle is the function Settle for what this shaper has granted.
func (s *Shaper) Settle(ctx context.Context, actual int64) error {
	return s.grantOf(ctx).settle(ctx, actual)
}

// SettleCosts is the function SettleCosts for what this shaper has granted.
func (s *Shaper) SettleCosts(ctx context.Context, actual map[string]int64) error {
	return s.grantOf(ctx).settleCosts(ctx, actual)
}

// Refund is the function Refund for what this shaper has granted.
func (s *Shaper) Refund(ctx context.Context) error { return s.grantOf(ctx).refund(ctx) }

// grantOf is what this shaper has granted.
func (s *Shaper) grantOf(ctx context.Context) *grant {
	g := grantOf(ctx)
	for g != nil && g.shaper != s {
		g = g.outer
	}
	return g
}

func (g *grant) settle(ctx context.Context, actual int64) error {
	if g == nil {
		return ErrNoGrant
	}
	done, err := g.shaper.throttle.Settle(context.WithoutCancel(ctx), g.Reservation, actual)
	g.shaper.puller.heard()
	if done {
		g.shaper.options.learn(g.task, actual)
	}
	return err
}

func (g *grant) settleCosts(ctx context.Context, actual map[string]int64) error {
	if g == nil {
		return ErrNoGrant
	}
	_, err := g.shaper.throttle.SettleCosts(context.WithoutCancel(ctx), g.Reservation, actual)
	g.shaper.puller.heard()
	return err
}

func (g *grant) refund(ctx context.Context) error {
	if g == nil {
		return ErrNoGrant
	}
	_, err := g.shaper.throttle.Refund(context.WithoutCancel(ctx), g.Reservation)
	g.shaper.puller.heard()
	return err
}

// refund gives back what a handler did not use.
func (s *Shaper) refund(ctx context.Context, r throttle.Reservation) {
	if _, err := s.throttle.Refund(context.WithoutCancel(ctx), r); err != nil {
		s.log.Debug("worker: a grant that was not used stays charged", zap.Error(err))
	}
	if _, err := s.throttle.Done(context.WithoutCancel(ctx), r); err != nil {
		s.log.Debug("worker: a place that was not used is free after its lease", zap.Error(err))
	}
	s.puller.heard()
}
