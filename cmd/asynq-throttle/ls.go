package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
)

// listed is one throttle in the output of ls.
type listed struct {
	Name      string    `json:"name"`
	State     string    `json:"state"`
	Processes int       `json:"processes"` // alive processes
	Seen      time.Time `json:"seen"`      // the last sign of life
	Alike     bool      `json:"alike"`
}

func (p *program) ls() *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "list the throttles whose processes have published in this Redis within a day",
		Args:  cobra.NoArgs,
		RunE: limited(func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if err := p.open(ctx); err != nil {
				return err
			}
			names, err := inspect.List(ctx, p.client)
			if err != nil {
				return err
			}
			result := struct {
				Throttles []listed `json:"throttles"`
			}{Throttles: []listed{}}
			for _, name := range names {
				of, err := p.listed(ctx, name)
				if err != nil {
					return err
				}
				result.Throttles = append(result.Throttles, of)
			}
			now, err := p.now(ctx)
			if err != nil {
				return err
			}
			return p.print(result, func(g *page) { writeList(g, result.Throttles, now) })
		}),
	}
}

// listed reads what ls shows of one throttle.
func (p *program) listed(ctx context.Context, name string) (listed, error) {
	of := listed{Name: name, Alike: true}
	th, err := inspect.Attach(ctx, name, p.client)
	var attach *inspect.AttachError
	if errors.As(err, &attach) {
		of.State = "other" // another state version, or no process
		return of, nil
	}
	if err != nil {
		return of, err
	}
	processes, err := th.Processes(ctx)
	for _, process := range processes {
		of.State = processes[0].State
		if process.Seen.After(of.Seen) {
			of.Seen = process.Seen
		}
	}
	alive, differing := view.Differing(processes)
	of.Processes, of.Alike = alive, differing == 0
	return of, err
}

func writeList(g *page, throttles []listed, now time.Time) {
	if len(throttles) == 0 {
		g.line("no throttle: no process has published one in this Redis within a day")
		return
	}
	var rows [][]string
	for _, of := range throttles {
		rows = append(rows, []string{of.Name, strconv.Itoa(of.Processes), at(of.Seen, now), of.State, yes(of.Alike)})
	}
	g.table([]string{"THROTTLE", "PROCESSES", "LAST SEEN", "STATE", "ALIKE"}, rows)
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}
