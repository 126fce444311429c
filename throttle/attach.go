package throttle

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// attachedTimeout bounds each call of an attached Inspector, which may be far away from Redis.
const attachedTimeout = 2 * time.Second

// AttachError says why Attach found no throttle.
type AttachError struct {
	Throttle string // its name
	Reason   string
}

func (e *AttachError) Error() string {
	return fmt.Sprintf("throttle: %s cannot be attached to: %s", e.Throttle, e.Reason)
}

// newest returns the first process of this state version.
func newest(name string, all []Process) (Process, error) {
	for _, p := range all {
		if p.State == wire.StateVersion {
			return p, nil
		}
	}
	reason := "no process has published it within a day"
	if len(all) > 0 {
		reason = "its processes are of state version " + all[0].State + ", this is " + wire.StateVersion
	}
	return Process{}, &AttachError{Throttle: name, Reason: reason}
}

// attached makes an Inspector from what a process has published.
func (c *caller) attached(ctx context.Context, name string, p Process) (*Inspector, error) {
	options := c.options
	options.Lookahead, options.Grace, options.FairScope, options.Shares = p.Lookahead, p.Grace, p.FairScope, p.Shares
	options.FairByTime, options.PriorityFloor = p.FairByTime, cmp.Or(p.PriorityFloor, defaultPriorityFloor)
	if options.FairScope == "" {
		options.FairScope = Global
	}
	err := options.validate()
	if err == nil {
		err = validateScopes(p.Scopes, options.Lookahead)
	}
	fair := ""
	if err == nil {
		fair, err = options.fairScope(p.Scopes)
	}
	if err != nil {
		return nil, &AttachError{Throttle: name,
			Reason: "what " + p.String() + " has published is no configuration: " + err.Error()}
	}
	t := newSetup(name, fair, p.Scopes, options, c)
	known, err := c.scores(ctx, t.keys.prefix+"shares")
	if err != nil {
		return nil, err
	}
	for flow, score := range known {
		if share := int64(score) % shareSecond; share >= 1 && share <= maxShare {
			t.shares.known[flow] = int(share)
		}
	}
	return &Inspector{t}, nil
}
