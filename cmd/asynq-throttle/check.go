package main

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// checked is the result of check.
type checked struct {
	Throttle  string             `json:"throttle"`
	Findings  []finding          `json:"findings"`
	Processes []throttle.Process `json:"processes"`
	// Differences lists how the configurations differ from the first process', by process ID.
	Differences map[string][]string `json:"differences"`
}

type finding struct {
	Severity string `json:"severity"`
	What     string `json:"what"`
	Text     string `json:"text"`
	Remedy   string `json:"remedy"`
}

func (p *program) check() *cobra.Command {
	return &cobra.Command{
		Use:               "check THROTTLE",
		Short:             "is Redis fit, and are all processes configured alike? exit status 3 if not",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completeThrottle,
		RunE: limited(func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			th, err := p.attach(ctx, args[0])
			if err != nil {
				return err
			}
			now, err := p.now(ctx)
			if err != nil {
				return err
			}
			c, err := checkedOf(ctx, th, now)
			if err != nil {
				return err
			}
			if err := p.print(c, func(g *page) { writeCheck(g, c, now) }); err != nil {
				return err
			}
			for _, f := range c.Findings {
				if f.Severity != "note" {
					return errUnwell
				}
			}
			return nil
		}),
	}
}

func checkedOf(ctx context.Context, th *inspect.Inspector, now time.Time) (checked, error) {
	c := checked{Throttle: th.Name(), Findings: []finding{}, Differences: map[string][]string{}}
	found, err := th.Check(ctx)
	var faulty *inspect.CheckError
	if errors.As(err, &faulty) {
		found, err = append(faulty.Faults, found...), nil
	}
	if err != nil {
		return c, err
	}
	for _, f := range found {
		c.Findings = append(c.Findings, finding{f.Severity, f.What, f.Text, f.Remedy})
	}
	set, err := th.Settings(ctx)
	if err != nil {
		c.Findings = append(c.Findings, finding{"note", "settings",
			"what is set at run time cannot be read: " + err.Error(), "allow SCAN"})
	}
	for _, s := range view.Forgotten(set, now) {
		c.Findings = append(c.Findings, finding{
			"note", "settings", "set without an end a week ago or longer: " + settingText(s, now),
			"take it back, or set it anew with --for or --until",
		})
	}
	c.Processes, err = th.Processes(ctx)
	for _, process := range c.Processes {
		if what := c.Processes[0].Differences(process); len(what) > 0 {
			c.Differences[process.ID] = what
		}
	}
	return c, err
}

func writeCheck(g *page, c checked, now time.Time) {
	for _, f := range c.Findings {
		severity := coloured(f.Severity)
		if f.Severity != "note" {
			severity = g.bad(f.Severity)
		}
		g.line("%s: %s; %s", severity, f.Text, f.Remedy)
	}
	var rows [][]string
	for _, process := range c.Processes {
		alike := "as the newest"
		if what := c.Differences[process.ID]; len(what) > 0 {
			alike = "the newest has " + strings.Join(what, "; ")
		}
		rows = append(rows, []string{
			view.Name(process.Program), view.Name(process.Host), strconv.Itoa(process.PID), at(process.Since, now),
			at(process.Seen, now),
			yes(process.Alive), cmp.Or(process.Library, "–"), process.State, alike,
		})
	}
	g.table([]string{"PROGRAM", "HOST", "PROCESS", "SINCE", "LAST SEEN", "ALIVE", "VERSION", "STATE", "CONFIGURED"}, rows)
}
