package worker

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// ErrNoGrant says that a context belongs to no handler that runs under a grant or, for a call that
// names a scope, that no such grant has a key of the scope.
var ErrNoGrant = errors.New("worker: the context has no grant to settle")

// Settle corrects the charge of a handler's task, once, to the units that it really took: see
// throttle.Throttle.Settle. A second call, or one that comes too late, changes nothing and
// returns nil. A grant that is never settled keeps its charge. The call is carried out even if
// the handler's own context is over. If several shapers wrap a handler, Settle corrects the
// charge of the innermost; Shaper.Settle corrects that of one shaper.
//
// Its errors: ErrNoGrant and those of throttle.Throttle.Settle.
func Settle(ctx context.Context, actual int64) error { return grantOf(ctx).settle(ctx, actual) }

// SettleCosts is Settle with an actual cost for each scope, by its name: see
// throttle.Throttle.SettleCosts.
func SettleCosts(ctx context.Context, actual map[string]int64) error {
	return grantOf(ctx).settleCosts(ctx, actual)
}

// Refund gives back the whole charge of a handler's task, since it took nothing.
// Its errors are those of Settle.
func Refund(ctx context.Context) error { return grantOf(ctx).refund(ctx) }

// Settle is the function Settle for this shaper's grant.
func (s *Shaper) Settle(ctx context.Context, actual int64) error {
	return s.grantOf(ctx).settle(ctx, actual)
}

// SettleCosts is the function SettleCosts for this shaper's grant.
func (s *Shaper) SettleCosts(ctx context.Context, actual map[string]int64) error {
	return s.grantOf(ctx).settleCosts(ctx, actual)
}

// Refund is the function Refund for this shaper's grant.
func (s *Shaper) Refund(ctx context.Context) error { return s.grantOf(ctx).refund(ctx) }

// grantOf is this shaper's grant; nil if there is none.
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
	g.shaper.puller.answered()
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
	g.shaper.puller.answered()
	return err
}

func (g *grant) refund(ctx context.Context) error {
	if g == nil {
		return ErrNoGrant
	}
	_, err := g.shaper.throttle.Refund(context.WithoutCancel(ctx), g.Reservation)
	g.shaper.puller.answered()
	return err
}

// refund gives back the charge of a grant that a handler did not use. The runner gives back its places.
func (s *Shaper) refund(ctx context.Context, r throttle.Reservation) {
	if _, err := s.throttle.Refund(context.WithoutCancel(ctx), r); err != nil {
		s.log.Debug("worker: an unused grant stays charged", zap.Error(err))
	}
	s.puller.answered()
}
