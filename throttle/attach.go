package throttle

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"
)

// attachedTimeout bounds each call of who only looks, and may do so from far away.
const attachedTimeout = 2 * time.Second

// AttachError says that a throttle cannot be attached to, or that one to which Attach did
// was asked for what it does not do.
type AttachError struct {
	Throttle string // its name
	Call     string // what it does not do, such as Reserve; empty if it cannot be attached to
	Reason   string
}

func (e *AttachError) Error() string {
	if e.Call != "" {
		return fmt.Sprintf("throttle: %s of the attached throttle %s: %s", e.Call, e.Throttle, e.Reason)
	}
	return fmt.Sprintf("throttle: %s cannot be attached to: %s", e.Throttle, e.Reason)
}

func (t *Throttle) refused(call string) error {
	return &AttachError{Throttle: t.name, Call: call, Reason: "it looks and controls, and has no limits of its own to decide by"}
}

// newest is the first process of this state version.
func newest(name string, all []Process) (Process, error) {
	for _, p := range all {
		if p.State == stateVersion {
			return p, nil
		}
	}
	reason := "no process has published it within a day"
	if len(all) > 0 {
		reason = "its processes are of state version " + all[0].State + ", this is " + stateVersion
	}
	return Process{}, &AttachError{Throttle: name, Reason: reason}
}

// attached makes a throttle of what a process has published.
func (c *caller) attached(ctx context.Context, name string, p Process) (*Throttle, error) {
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
		return nil, &AttachError{Throttle: name, Reason: "what " + p.String() + " has published is no configuration: " + err.Error()}
	}
	t := newThrottle(name, fair, p.Scopes, options, c)
	t.looks = true
	known, err := c.fields(ctx, t.keys.prefix+"shares")
	if err != nil {
		return nil, err
	}
	for flow, text := range known.of {
		if share, err := strconv.Atoi(text); err == nil && share >= 1 && share <= maxShare {
			t.shares.known[flow] = share
		}
	}
	return t, nil
}
