package main

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/asynq-throttle/asynq-throttle/internal/view"
)

func (p *program) lines() *cobra.Command {
	var by string
	var filter view.Filter
	cmd := &cobra.Command{
		Use:   "lines THROTTLE",
		Short: "who waits, for what and until when; the oldest first",
		Example: `  asynq-throttle lines smtp                        # by the scope key that has no room
  asynq-throttle lines smtp --by flow              # by tenant
  asynq-throttle lines smtp --by lane --flow acme  # all that acme waits for`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completeThrottle,
		RunE: limited(func(cmd *cobra.Command, args []string) error {
			if by != "key" && by != "flow" && by != "lane" {
				return usagef("--by %q is none of key, flow, lane", by)
			}
			ctx := cmd.Context()
			th, err := p.attach(ctx, args[0])
			if err != nil {
				return err
			}
			if filter.Scope != "" {
				if err := p.scopeKey(ctx, th, filter.Scope, filter.Key); err != nil {
					return err
				}
			}
			w, err := view.Lines(ctx, th, view.By(by), filter, p.limit)
			if err != nil {
				return err
			}
			return p.print(w, func(g *page) {
				if w.Jobs == 0 && filter != (view.Filter{}) {
					g.line("nothing waits that --flow, --scope and --key select")
					return
				}
				writeLines(g, w)
			})
		}),
	}
	cmd.Flags().StringVar(&by, "by", "key",
		"what a row is of: key (the scope key that has no room), flow (the tenant that waits) or lane")
	cmd.Flags().StringVar(&filter.Flow, "flow", "", "only what this flow, a key of the fair scope, waits for")
	cmd.Flags().StringVar(&filter.Scope, "scope", "", "only what waits for this scope")
	cmd.Flags().StringVar(&filter.Key, "key", "", "only what waits for this key of the scope")
	p.rows(cmd)
	return cmd
}

// rows adds the flag for the number of rows to a verb.
func (p *program) rows(cmd *cobra.Command) {
	cmd.Flags().IntVarP(&p.limit, "rows", "n", 20, "how many rows at most")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if p.limit < 1 {
			return usagef("-n %d: it is 1 row at least; see %s -h", p.limit, cmd.CommandPath())
		}
		return nil
	}
}

func writeLines(g *page, w view.Waiting) {
	if w.Jobs == 0 {
		g.line("nothing waits")
		return
	}
	g.line("in line: %s of %s in %s", view.Many(w.Jobs, "job"), view.Many(w.Flows, "flow"), view.Many(w.Lanes, "lane"))
	var rows [][]string
	for _, r := range w.Rows {
		under := view.ScopeKey(r.Scope, r.Key)
		if r.Others > 0 {
			under += " and " + view.Many(r.Others, "other")
		}
		row := []string{under, strconv.FormatInt(r.Jobs, 10), since(r.Since, w.Now),
			cmp.Or(r.Why, "its turn"), roomAt(r.Why, r.Until, w.Now)}
		switch w.By {
		case view.ByKey:
			row = append([]string{strconv.Itoa(r.Flows)}, row...)
		case view.ByFlow:
			row = append([]string{cmp.Or(view.Name(r.Flow), "–")}, row...)
		case view.ByLane:
			row = append([]string{laneText(r)}, row...)
		}
		rows = append(rows, row)
	}
	head := map[view.By]string{view.ByKey: "FLOWS", view.ByFlow: "FLOW", view.ByLane: "LANE"}[w.By]
	g.table([]string{head, "WAIT FOR", "JOBS", "OLDEST", "WHY", "UNTIL"}, rows)
	g.more(len(rows), w.InAll)
}

// laneText describes a lane by its keys and priority.
func laneText(r view.Row) string {
	texts := make([]string, 0, len(r.Keys))
	for _, scope := range sorted(r.Keys) {
		texts = append(texts, scope+"="+view.Name(r.Keys[scope]))
	}
	text := cmp.Or(strings.Join(texts, " "), "all")
	if r.Priority > 0 {
		text += " priority " + strconv.Itoa(r.Priority)
	}
	return text
}
