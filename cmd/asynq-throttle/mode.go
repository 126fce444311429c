package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

func (p *program) mode() *cobra.Command {
	var everything bool
	var of terms
	cmd := &cobra.Command{
		Use:   "mode THROTTLE [SCOPE MODE | --all MODE]",
		Short: "show whether limits are enforced, or set that for a scope or, with --all, for all scopes",
		Long: "Show whether limits are enforced, or set that for a scope or, with --all, for all scopes.\n" +
			"MODE is enforce, shadow, off or reset.",
		Example: `  asynq-throttle mode smtp                  # what is configured and set
  asynq-throttle mode smtp tenant shadow    # count, delay nothing
  asynq-throttle mode smtp --all off --for 1h --why "the relay moves"   # switch the throttle off
  asynq-throttle mode smtp tenant reset     # as configured`,
		Args:              cobra.RangeArgs(1, 3),
		ValidArgsFunction: p.completeScope,
		RunE: limited(func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && !everything {
				if err := of.noEnd(); err != nil {
					return err
				}
				return p.showModes(cmd.Context(), args[0])
			}
			scope, mode := nth(args, 1), nth(args, 2)
			if everything {
				scope, mode = "", nth(args, 1)
			}
			if mode == "" || everything && len(args) != 2 || !everything && scope == "" {
				return usagef("want mode THROTTLE SCOPE MODE, or mode THROTTLE --all MODE; MODE is enforce, shadow, off or reset")
			}
			return p.setMode(cmd.Context(), args[0], scope, mode, of)
		}),
	}
	p.sure(cmd)
	of.flags(cmd)
	cmd.Flags().BoolVar(&everything, "all", false, "set the mode of all scopes for which none is set")
	return cmd
}

func (p *program) setMode(ctx context.Context, name, scope, text string, of terms) error {
	var mode throttle.Mode
	if text != "reset" {
		if err := mode.UnmarshalText([]byte(text)); err != nil {
			return usagef("mode %q is none of enforce, shadow, off, reset", text)
		}
	}
	th, err := p.attach(ctx, name)
	if err == nil && scope != "" {
		err = p.scopeKey(ctx, th, scope, "")
	}
	if err != nil {
		return err
	}
	if text == "reset" {
		if err := of.noEnd(); err != nil {
			return err
		}
		return p.change(ctx, target{th, scope, ""}, "mode", "", func(ctx context.Context) error {
			return th.ResetMode(ctx, scope, inspect.Why(of.why))
		})
	}
	now, err := p.now(ctx)
	if err != nil {
		return err
	}
	end, err := of.end(now)
	if err != nil {
		return err
	}
	ends := inspect.Until(byLocalClock(end, now))
	return p.change(ctx, target{th, scope, ""}, "mode", of.text(text, end), func(ctx context.Context) error {
		return th.SetMode(ctx, scope, mode, ends, inspect.Why(of.why))
	})
}

func (p *program) showModes(ctx context.Context, name string) error {
	th, err := p.attach(ctx, name)
	if err != nil {
		return err
	}
	c, err := configurationOf(ctx, th, "")
	if err != nil {
		return err
	}
	now, err := p.now(ctx)
	if err != nil {
		return err
	}
	return p.print(c, func(g *page) {
		for _, s := range c.Scopes {
			g.line("%s: %s", s.Name, s.Mode)
		}
		for _, s := range c.Set {
			if s.What == "mode" {
				g.line("set: %s", settingText(s, now))
			}
		}
	})
}
