package worker

import (
	"context"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

type grantKey struct{}

// Grant returns the reservation under which a handler runs: its Start is the
// granted start on Redis' clock, its Job has the weight that was charged. It
// returns false outside of a handler that a Shaper wraps.
func Grant(ctx context.Context) (throttle.Reservation, bool) {
	r, ok := ctx.Value(grantKey{}).(throttle.Reservation)
	return r, ok
}

func withGrant(ctx context.Context, r throttle.Reservation) context.Context {
	return context.WithValue(ctx, grantKey{}, r)
}
