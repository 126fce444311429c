package worker

import (
	"context"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

type grantKey struct{}

// grant is the grant that a handler runs under.
type grant struct {
	throttle.Reservation
	shaper *Shaper
	task   *asynq.Task
	outer  *grant // of another shaper around this one

	mu        sync.Mutex
	cooldowns map[string]time.Duration // by scope, set by the handler
}

// Grant returns the reservation under which a handler runs: its Start is the
// granted start on Redis' clock, its Job has the weight that was charged. It
// returns false outside of a handler that a Shaper wraps. If several shapers do, it
// returns the grant of the innermost.
func Grant(ctx context.Context) (throttle.Reservation, bool) {
	g := grantOf(ctx)
	if g == nil {
		return throttle.Reservation{}, false
	}
	return g.Reservation, true
}

func grantOf(ctx context.Context) *grant {
	g, _ := ctx.Value(grantKey{}).(*grant)
	return g
}

// grantIn returns the innermost grant whose job has a key of a scope, nil if there is none.
func grantIn(ctx context.Context, scope string) *grant {
	g := grantOf(ctx)
	for g != nil && !g.shaper.paces(g.Job, scope) {
		g = g.outer
	}
	return g
}

func (s *Shaper) withGrant(ctx context.Context, g *grant) context.Context {
	g.shaper, g.outer = s, grantOf(ctx)
	return context.WithValue(ctx, grantKey{}, g)
}

// isInside reports whether an attempt already runs under a grant of this shaper's throttle, since two wraps are around
// its handler. A second reservation would charge the job twice, or put back its task.
func (s *Shaper) isInside(ctx context.Context, a attempt) bool {
	g := grantOf(ctx)
	for g != nil && (g.shaper.throttle != s.throttle || g.Job.ID != a.jobID()) {
		g = g.outer
	}
	if g == nil {
		return false
	}
	s.twice.Do(func() {
		s.log.Error("worker: Shaper.Wrap of one throttle is around the same handler twice: take one away. The inner one " +
			"does nothing")
	})
	return true
}
