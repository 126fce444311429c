package main

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/asynq-throttle/asynq-throttle/connect"
	"github.com/asynq-throttle/asynq-throttle/internal/explain"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

func (p *program) job() *cobra.Command {
	var asynqURL string
	cmd := &cobra.Command{
		Use:   "job THROTTLE ID",
		Short: "why a job or a task of asynq does not run, and when it will",
		Example: `  asynq-throttle job smtp 0198f6c2-7b0e      # asynq's task, looked for in all queues
  asynq-throttle job smtp mails/0198f6c2     # of this queue
  asynq-throttle job smtp mail-17            # a job that a program reserved under this ID`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: p.completeThrottle,
		RunE: limited(func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			th, err := p.attach(ctx, args[0])
			if err != nil {
				return err
			}
			client, closing, err := p.asynqClient(asynqURL)
			if err != nil {
				return err
			}
			defer closing()
			e, err := explain.Job(ctx, th, client, args[1])
			if errors.As(err, new(*throttle.InvalidJobError)) {
				return statusError{misused, err}
			}
			if err != nil {
				return err
			}
			if e.State == explain.Unknown && e.Task == nil {
				return fmt.Errorf(
					"nothing is known of %s: it never asked, was given back, or has started; and no queue of asynq "+
						"has such a task", view.Name(args[1]))
			}
			return p.print(e, func(g *page) { writeJob(g, e) })
		}),
	}
	cmd.Flags().StringVar(&asynqURL, "asynq", "", "asynq's Redis, if it is another one")
	return cmd
}

// asynqClient returns the client of asynq's Redis.
func (p *program) asynqClient(url string) (redis.UniversalClient, func(), error) {
	if url == "" {
		return p.client, func() {}, nil
	}
	client, err := connect.Open(url)
	if err != nil {
		return nil, nil, statusError{misused, err}
	}
	return client, func() { _ = client.Close() }, nil
}

func writeJob(g *page, e explain.Explanation) {
	g.line("%s%s.", view.Capital(e.Why), startText(e))
	if e.Help != "" {
		g.line("%s", e.Help)
	}
	if t := e.Task; t != nil {
		g.line("task %s of queue %s: %s, %s, retried %d of %d", view.Name(t.ID), view.Name(t.Queue), view.Name(t.Type),
			t.State, t.Retried, t.MaxRetry)
		if t.Paused {
			g.line("  %s", g.bad("the queue is paused in asynq"))
		}
		if t.LastError != "" {
			g.line("  last error: %s", strings.ReplaceAll(t.LastError, "\n", " "))
		}
		if t.PutBack != "" {
			g.line("  put back: %s", strings.ReplaceAll(t.PutBack, "\n", " "))
		}
	}
	switch e.State {
	case explain.Booked:
		g.line("job %s is booked for %s", view.Name(e.Job), at(e.Slot, e.Now))
	case explain.Waiting:
		priority := ""
		if e.Priority > 0 {
			priority = " with priority " + strconv.Itoa(e.Priority)
		}
		g.line("job %s is in line%s since %s, %d of the %s of its lane before it; %d are in line in all",
			view.Name(e.Job), priority, at(e.Arrived, e.Now), max(0, e.Before), view.Many(e.Waiting, "job"), e.InLine)
	default:
		g.line("job %s has no slot and is not in line", view.Name(e.Job))
	}
	if e.Scope != "" {
		g.line("  its lane waits for %s at the moment", view.ScopeKey(e.Scope, e.Key))
	}
	var rows [][]string
	for _, l := range e.Limits {
		rows = append(rows, []string{"  " + view.ScopeKey(l.Scope, l.Key), cmp.Or(l.Limit, "–"), fmt.Sprint(l.Used),
			fmt.Sprint(l.Booked), room(l.Mode, l.Paused, l.Limit, l.Hours, l.Free, l.Anew, e.Now) + servedText(l.Served)})
	}
	if len(rows) > 0 {
		g.table([]string{"  LIMIT OF", "LIMIT", "USED", "BOOKED", "ROOM"}, rows)
	}
}

// startText describes when the job starts, as far as that is known.
func startText(e explain.Explanation) string {
	switch {
	case e.Held():
		return ""
	case e.State == explain.Booked && e.Until.Equal(e.Slot):
		return "; it starts " + at(e.Slot, e.Now)
	case e.State == explain.Waiting && !e.Expected.IsZero():
		about := ""
		if e.Guessed {
			about = "about "
		}
		text := "; expected to start " + about + at(e.Expected, e.Now)
		if e.Earliest {
			text += " at the earliest: how long jobs run is not known"
		}
		return text
	case e.State == explain.Waiting && e.Never():
		return "; never, unless limits change"
	case !e.Until.IsZero():
		return ", until " + at(e.Until, e.Now)
	}
	return ""
}
