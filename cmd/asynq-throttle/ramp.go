package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

func (p *program) ramp() *cobra.Command {
	cmd := &cobra.Command{Use: "ramp", Short: "hold, continue or end a limit whose units grow",
		Args: cobra.NoArgs}
	cmd.AddCommand(
		p.steer("hold", "keep the units of the present step, until the ramp is continued", throttle.Limit.Held),
		p.steer("continue", "go on where the ramp was held; the next steps come later by the time that it was held",
			throttle.Limit.Continued),
		p.steer("end", "put the quota of the last step in the place of the ramp",
			func(l throttle.Limit, _ time.Time) throttle.Limit { return l.Ended() }))
	return cmd
}

// steer returns a command that changes the ramps among the limits in force, and sets all of these limits.
func (p *program) steer(verb, short string, changed func(throttle.Limit, time.Time) throttle.Limit) *cobra.Command {
	var terms terms
	cmd := &cobra.Command{
		Use:   verb + " THROTTLE SCOPE [KEY]",
		Short: short,
		Long: short + ".\nThe command sets the limits in force, with the ramp changed, for one key, or for all keys of " +
			"a scope that have none\nof their own. Starts of the period stay counted. Limits that have an end keep it; after " +
			"it the configured ramp is in\nforce, as if it had never been held.",
		Example:           "  asynq-throttle ramp " + verb + ` smtp ip 192.0.2.7 --why "deferrals at one domain"`,
		Args:              cobra.RangeArgs(2, 3),
		ValidArgsFunction: p.completeScope,
		RunE: limited(func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			of, err := p.target(ctx, args[0], args[1:])
			if err != nil {
				return err
			}
			now, err := p.now(ctx)
			if err != nil {
				return err
			}
			limits, until, err := p.steered(ctx, of, verb, now, changed)
			if err != nil {
				return err
			}
			end, err := terms.end(now)
			if err != nil {
				return err
			}
			if end.IsZero() {
				end = until
			}
			ends := inspect.Until(byLocalClock(end, now))
			return p.change(ctx, of, "limits", terms.text(limitsText(limits), end), func(ctx context.Context) error {
				return of.th.SetLimits(ctx, of.scope, of.key, limits, ends, inspect.Why(terms.why))
			})
		}),
	}
	p.sure(cmd)
	terms.flags(cmd)
	return cmd
}

// steered returns the limits in force with their ramps changed, and when they end by themselves. It is an error if that
// changes nothing.
func (p *program) steered(ctx context.Context, of target, verb string, now time.Time,
	changed func(throttle.Limit, time.Time) throttle.Limit) (limits []throttle.Limit, until time.Time, err error) {
	if limits, until, err = inForce(ctx, of); err != nil {
		return nil, until, err
	}
	had, ramps, same := limitsText(limits), 0, true
	for i, l := range limits {
		if l.Ramp != "" {
			limits[i] = changed(l, now)
			ramps, same = ramps+1, same && limits[i] == l
		}
	}
	switch {
	case ramps == 0:
		return nil, until, usagef("%s: no ramp to %s among the limits in force: %s", of, verb, had)
	case same && verb == "hold":
		return nil, until, usagef("%s: the ramp is held already: %s", of, had)
	case same:
		return nil, until, usagef("%s: the ramp is not held: %s", of, had)
	}
	return limits, until, nil
}
