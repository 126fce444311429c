package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

func (p *program) watch() *cobra.Command {
	var every time.Duration
	var times int
	cmd := &cobra.Command{
		Use:               "watch THROTTLE",
		Short:             "status and who waits, again and again until it is interrupted",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completeThrottle,
		RunE: func(cmd *cobra.Command, args []string) error {
			if every < 200*time.Millisecond {
				return usagef("--every %s is less than 200ms", every)
			}
			if times < 0 {
				return usagef("--times %d: it is 0 at least, for a watch until it is interrupted", times)
			}
			ctx := cmd.Context()
			th, err := p.attach(ctx, args[0])
			if err != nil {
				return err
			}
			var watch view.Watch
			ticker := time.NewTicker(every)
			defer ticker.Stop()
			for n := 1; ; n++ {
				if th, err = p.refresh(ctx, th, &watch); err != nil {
					return err
				}
				if n == times {
					return nil
				}
				select {
				case <-ticker.C:
				case <-ctx.Done():
					return nil
				}
			}
		},
	}
	p.rows(cmd)
	cmd.Flags().DurationVar(&every, "every", time.Second, "how often")
	cmd.Flags().IntVar(&times, "times", 0, "how many times; 0 until it is interrupted")
	return cmd
}

// watched is one reading.
type watched struct {
	view.Status
	Waiting view.Waiting `json:"waiting"`
}

// refresh reads once, and attaches anew since the configuration may have changed. While Redis does not answer, the
// watch goes on.
func (p *program) refresh(ctx context.Context, th *inspect.Inspector, watch *view.Watch) (*inspect.Inspector, error) {
	fresh, err := inspect.Attach(ctx, th.Name(), p.client)
	if err == nil {
		th = fresh
	}
	var w watched
	if err == nil {
		w.Status, w.Waiting, err = watch.Read(ctx, th, p.limit)
	}
	if errors.Is(err, context.Canceled) || ctx.Err() != nil {
		return th, nil //nolint:nilerr // it was interrupted, which is how a watch ends
	}
	if p.terminal && !p.asJSON {
		if _, err := io.WriteString(p.out, "\x1b[H\x1b[2J"); err != nil {
			return th, err
		}
	}
	if errors.Is(err, throttle.ErrUnavailable) {
		_,
			err := io.WriteString(p.errs, "asynq-throttle: "+strings.TrimPrefix(err.Error(), "throttle: ")+
			"; it is asked again\n")
		return th, err
	}
	if err != nil {
		return th, err
	}
	return th, p.print(w, func(g *page) {
		writeStatus(g, w.Status)
		g.line("")
		writeLines(g, w.Waiting)
	})
}
