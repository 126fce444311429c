package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

func (p *program) pause() *cobra.Command {
	var length, until string
	cmd := &cobra.Command{
		Use:   "pause THROTTLE SCOPE [KEY]",
		Short: "let nothing start under a scope key until a time, in no process",
		Example: `  asynq-throttle pause smtp domain gmail.example --for 2h
  asynq-throttle pause smtp global --until 18:00`,
		Args:              cobra.RangeArgs(2, 3),
		ValidArgsFunction: p.completeScope,
		RunE: limited(func(cmd *cobra.Command, args []string) error {
			end, err := pauseEnd(length, until, time.Now())
			if err != nil {
				return err
			}
			of, err := p.oneKey(cmd.Context(), args)
			if err != nil {
				return err
			}
			return p.change(cmd.Context(), of, "pause", end.Local().Format(time.RFC3339), func(ctx context.Context) error {
				_, err := of.th.Pause(ctx, of.scope, of.key, end)
				return err
			})
		}),
	}
	p.sure(cmd)
	cmd.Flags().StringVar(&length, "for", "", "how long, such as 30m, 2h or 1d")
	cmd.Flags().StringVar(&until, "until", "", "until when: 18:00, 2026-11-22 18:00, or with a zone as in RFC 3339")
	return cmd
}

func (p *program) resume() *cobra.Command {
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
				_, err := of.th.Resume(ctx, of.scope, of.key)
				return err
			})
		}),
	}
	p.sure(cmd)
	return cmd
}

// oneKey is a target that is one scope key.
func (p *program) oneKey(ctx context.Context, args []string) (target, error) {
	of, err := p.target(ctx, args[0], args[1:])
	if err == nil && of.key == "" && of.scope != throttle.Global {
		return of, usagef("a pause is of one key of scope %s: name it", of.scope)
	}
	return of, err
}

// pauseEnd reads how long a pause is, or until when.
func pauseEnd(length, until string, now time.Time) (time.Time, error) {
	switch {
	case length != "" && until != "":
		return time.Time{}, usagef("--for and --until: one of them, not both")
	case length == "" && until == "":
		return time.Time{}, usagef("say how long with --for, such as --for 2h, or until when with --until, such as --until 18:00")
	case length != "":
		span, is := view.ParseSpan(length)
		if !is {
			return time.Time{}, usagef("--for %q is not a duration of up to 400 days, such as 30m, 2h or 1d", length)
		}
		return now.Add(span), nil
	}
	if end, err := time.Parse(time.RFC3339, until); err == nil {
		return inFuture(end, now)
	}
	if end, err := time.ParseInLocation("2006-01-02 15:04", until, now.Location()); err == nil {
		return inFuture(end, now)
	}
	clock, err := time.Parse("15:04", until)
	if err != nil {
		return time.Time{}, usagef("--until %q is none of 18:00, 2026-11-22 18:00, 2026-11-22T18:00:00Z", until)
	}
	end := time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), 0, 0, now.Location())
	if !end.After(now) {
		end = end.AddDate(0, 0, 1)
	}
	return end, nil
}

func inFuture(end, now time.Time) (time.Time, error) {
	if !end.After(now) {
		return end, usagef("--until %s is past", end.Format(time.RFC3339))
	}
	return end, nil
}
