package throttle

import (
	"context"
	"fmt"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// evaluate runs a script. Only Go can compute when the periods of a calendar begin, and Redis keeps these times, the
// edges of the calendar. A script that lacks edges writes nothing and says which; it is called again when Redis has
// them. That happens once in some 15 periods.
func (c *caller) evaluate(ctx context.Context, s script, args []any) (any, error) {
	for tries := 0; ; tries++ {
		reply, err := c.evaluateOnce(ctx, s, args)
		if err == nil {
			return reply, nil
		}
		missing, is := wire.ReadMissingEdges(err.Error())
		if !is || tries > mostCalendars {
			return reply, err
		}
		if err := c.storeEdges(ctx, missing, args); err != nil {
			return nil, err
		}
	}
}

// mostCalendars is how many calendars one call may lack: as many as limits concern one job, and as many again that
// were set at run time.
const mostCalendars = 2 * maxLimits

// storeEdges gives Redis edges that a script needs. args are the arguments of that script.
func (c *caller) storeEdges(ctx context.Context, missing wire.MissingEdges, args []any) error {
	own, err := missing.Arguments()
	if err != nil {
		return fmt.Errorf("throttle: a calendar of another process: %w: %w", ErrState, err)
	}
	all := append(make([]any, 0, 6), args[:3]...)
	for _, text := range own {
		all = append(all, text)
	}
	_, err = c.evaluateOnce(ctx, edgesScript, all)
	return err
}

// heedMissing gives Redis the edges that a script lacked for one of several jobs or lanes, so that the next call can
// decide it. It reports whether edges were missing.
func (t *setup) heedMissing(ctx context.Context, trouble string) bool {
	missing, is := wire.ReadMissingEdges(trouble)
	if is {
		_, _ = t.redis.within(ctx, func(ctx context.Context) (any, error) {
			return nil, t.redis.storeEdges(ctx, missing, t.arguments(nil))
		})
	}
	return is
}
