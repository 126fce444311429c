package main

import (
	"cmp"
	"time"

	"github.com/spf13/cobra"

	"github.com/asynq-throttle/asynq-throttle/inspect"
)

func (p *program) changes() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "changes THROTTLE",
		Short:             "who paused what, set which limits and modes; the last first",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completeThrottle,
		RunE: limited(func(cmd *cobra.Command, args []string) error {
			th, err := p.attach(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			all, err := th.Changes(cmd.Context())
			if err != nil {
				return err
			}
			result := struct {
				Throttle string           `json:"throttle"`
				Changes  []inspect.Change `json:"changes"`
				InAll    int              `json:"changes_in_all"`
			}{args[0], append([]inspect.Change{}, all[:min(p.limit, len(all))]...), len(all)}
			now, err := p.now(cmd.Context())
			if err != nil {
				return err
			}
			return p.print(result, func(g *page) {
				writeChanges(g, result.Changes, now)
				g.more(len(result.Changes), result.InAll)
			})
		}),
	}
	p.rows(cmd)
	return cmd
}

func writeChanges(g *page, all []inspect.Change, now time.Time) {
	if len(all) == 0 {
		g.line("nothing was changed at run time within a month")
		return
	}
	var rows [][]string
	for _, c := range all {
		of := target{scope: c.Scope, key: c.Key}
		rows = append(rows, []string{at(c.At, now), c.What, of.String(), cmp.Or(c.Before, "–"),
			cmp.Or(afterText(c, now), "–"), c.By, cmp.Or(c.Why, "–")})
	}
	g.table([]string{"WHEN", "WHAT", "OF", "BEFORE", "AFTER", "BY", "WHY"}, rows)
}

// afterText formats the setting after a change, with its end; for a pause, only its end.
func afterText(c inspect.Change, now time.Time) string {
	if c.What == "pause" || c.Until.IsZero() {
		return c.After
	}
	return c.After + " until " + at(c.Until, now)
}
