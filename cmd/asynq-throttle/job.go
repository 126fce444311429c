package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/asynq-throttle/asynq-throttle/connect"
	"github.com/asynq-throttle/asynq-throttle/internal/explain"
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
			if err != nil {
				return err
			}
			if e.State == explain.Unknown && e.Task == nil {
				return fmt.Errorf("nothing is known of %s: it never asked, was given back, or has started; and no queue of asynq has such a task", plain(args[1]))
			}
			return p.print(e, func(g *page) { writeJob(g, e) })
		}),
	}
	cmd.Flags().StringVar(&asynqURL, "asynq", "", "asynq's Redis, if it is another one")
	return cmd
}

// asynqClient is that of asynq's Redis.
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
	if t := e.Task; t != nil {
		g.line("task %s of queue %s: %s, %s, retried %d of %d", plain(t.ID), plain(t.Queue), plain(t.Type), t.State, t.Retried, t.MaxRetry)
		if t.Paused {
			g.line("  %s", g.bad("the queue is paused in asynq"))
		}
		if t.LastError != "" {
			g.line("  last error: %s", strings.ReplaceAll(t.LastError, "\n", " "))
		}
	}
	switch e.State {
	case explain.Booked:
		g.line("job %s is booked for %s", plain(e.Job), at(e.Slot, e.Now))
	case explain.Waiting:
		about := ""
		if e.Guessed {
			about = "about "
		}
		priority := ""
		if e.Priority > 0 {
			priority = " with priority " + strconv.Itoa(e.Priority)
		}
		g.line("job %s is in line%s since %s, %d of %d jobs before it", plain(e.Job), priority, at(e.Arrived, e.Now), e.Before, e.Waiting)
		g.line("  expected to start %s%s", about, expected(e))
	case explain.Overdue:
		g.line("job %s did not come to its slot; asked for again, it comes to the front of its lane", plain(e.Job))
	default:
		g.line("the throttle knows nothing of job %s: it has not asked yet, was given back, or has started", plain(e.Job))
	}
	if e.Scope != "" {
		g.line("  its lane waits for %s", scopeKey(e.Scope, e.Key))
	}
	var rows [][]string
	for _, l := range e.Limits {
		room := roomAt(l.Limit, l.Free, e.Now)
		switch {
		case !l.Paused.IsZero():
			room = "paused until " + at(l.Paused, e.Now)
		case l.Free.IsZero():
			room = "closed"
		case !l.Free.After(e.Now.Add(time.Second)): // it was asked a moment later
			room = "now"
		}
		rows = append(rows, []string{"  " + scopeKey(l.Scope, l.Key), cmp.Or(l.Limit, "–"), fmt.Sprint(l.Used), fmt.Sprint(l.Booked), room + servedText(l.Served)})
	}
	if len(rows) > 0 {
		g.table([]string{"  LIMIT OF", "LIMIT", "USED", "BOOKED", "ROOM"}, rows)
	}
}

// expected tells what is never, since a limit is 0, from what is not known.
func expected(e explain.Explanation) string {
	switch {
	case !e.Expected.IsZero():
		return at(e.Expected, e.Now)
	case slices.ContainsFunc(e.Limits, func(l explain.LimitState) bool { return l.Limit != "" && l.Free.IsZero() }):
		return "never, unless limits change"
	}
	return "at a time that is not known"
}
