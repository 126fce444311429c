package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

func (p *program) pause() *cobra.Command {
	var of terms
	cmd := &cobra.Command{
		Use:   "pause THROTTLE SCOPE [KEY]",
		Short: "let nothing start under a scope key until a time, in any process",
		Example: `  asynq-throttle pause smtp domain gmail.example --for 2h
  asynq-throttle pause smtp global --until 18:00`,
		Args:              cobra.RangeArgs(2, 3),
		ValidArgsFunction: p.completeScope,
		RunE: limited(func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			key, err := p.oneKey(ctx, args)
			if err != nil {
				return err
			}
			now, err := p.now(ctx)
			if err != nil {
				return err
			}
			end, err := of.end(now)
			if err != nil {
				return err
			}
			if end.IsZero() {
				return usagef("say how long with --for, such as --for 2h, or until when with --until, such as --until 18:00")
			}
			ends := byLocalClock(end, now)
			return p.change(ctx, key, "pause", of.text("", end), func(ctx context.Context) error {
				_, err := key.th.Pause(ctx, key.scope, key.key, ends, inspect.Why(of.why))
				return err
			})
		}),
	}
	p.sure(cmd)
	of.flags(cmd)
	return cmd
}

func (p *program) resume() *cobra.Command {
	var terms terms
	cmd := &cobra.Command{
		Use:               "resume THROTTLE SCOPE [KEY]",
		Short:             "end a pause now",
		Args:              cobra.RangeArgs(2, 3),
		ValidArgsFunction: p.completeScope,
		RunE: limited(func(cmd *cobra.Command, args []string) error {
			of, err := p.oneKey(cmd.Context(), args)
			if err != nil {
				return err
			}
			return p.change(cmd.Context(), of, "pause", "", func(ctx context.Context) error {
				_, err := of.th.Resume(ctx, of.scope, of.key, inspect.Why(terms.why))
				return err
			})
		}),
	}
	p.sure(cmd)
	terms.reason(cmd)
	return cmd
}

// oneKey returns a target that is one scope key.
func (p *program) oneKey(ctx context.Context, args []string) (target, error) {
	of, err := p.target(ctx, args[0], args[1:])
	if err == nil && of.key == "" && of.scope != throttle.Global {
		return of, usagef("a pause is of one key of scope %s: name it", of.scope)
	}
	return of, err
}
