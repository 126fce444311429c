package main

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

func (p *program) usage() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "usage THROTTLE [SCOPE [KEY]]",
		Short: "how limits are used: of one scope key, of all keys of a scope, or of all; the fullest first",
		Long: "How limits are used: of one scope key, of all keys of a scope, or of all; the fullest first.\n\n" +
			"USED are the units that started in the window that ends now, or in the period of a quota, BOOKED those " +
			"that are promised\n" +
			"to jobs which have not started, ROOM when the next unit may start, and when a quota begins anew; in shadow " +
			"and off\n" +
			"nothing is delayed. FLOWS WAIT is how many keys of the fair scope wait for this scope key. LINE is how long " +
			"its line is\n" +
			"and may get, where it has a bound.\n" +
			"LIMIT IS also has the served share of a limit that follows its upstream.",
		Example: `  asynq-throttle usage smtp tenant acme
  asynq-throttle usage smtp tenant -n 50`,
		Args:              cobra.RangeArgs(1, 3),
		ValidArgsFunction: p.completeScope,
		RunE: limited(func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			th, err := p.attach(ctx, args[0])
			if err != nil {
				return err
			}
			if err := p.differing(ctx, th); err != nil {
				return err
			}
			uses, err := p.readUses(ctx, th, args[1:])
			if err != nil {
				return err
			}
			return p.print(uses, func(g *page) { writeUses(g, uses) })
		}),
	}
	p.rows(cmd)
	return cmd
}

func (p *program) readUses(ctx context.Context, th *inspect.Inspector, args []string) (view.Uses, error) {
	scope, key := nth(args, 0), nth(args, 1)
	if scope == "" {
		return view.UsageOfAll(ctx, th, "", p.limit)
	}
	if err := p.scopeKey(ctx, th, scope, key); err != nil {
		return view.Uses{}, err
	}
	if key == "" && scope != throttle.Global {
		return view.UsageOfAll(ctx, th, scope, p.limit)
	}
	return view.UsageOf(ctx, th, scope, key)
}

func writeUses(g *page, uses view.Uses) {
	if len(uses.Rows) == 0 {
		g.line("no scope key is in use")
		return
	}
	head := []string{"SCOPE KEY", "LIMIT", "USED", "", "BOOKED", "ROOM", "FLOWS WAIT", "LIMIT IS"}
	bounded := slices.ContainsFunc(uses.Rows, func(u view.Use) bool { return u.Line != "" })
	if bounded {
		head = append(head, "LINE")
	}
	var rows [][]string
	for _, u := range uses.Rows {
		set := cmp.Or(setText(u, uses.Now), "configuration") + servedText(u.Served)
		row := []string{
			view.ScopeKey(u.Scope, u.Key), cmp.Or(u.Limit, "–"), strconv.FormatInt(u.Used, 10), view.Percent(u.Ratio),
			strconv.FormatInt(u.Booked, 10), room(u.Mode, u.Paused, u.Limit, u.Hours, u.Free, u.Anew, uses.Now),
			strconv.FormatInt(u.Waiting, 10), set + modeText(u.Mode),
		}
		if bounded {
			row = append(row, cmp.Or(u.Line, "–"))
		}
		rows = append(rows, row)
	}
	g.table(head, rows)
	g.more(len(rows), uses.InAll)
}

func nth(args []string, i int) string {
	if i < len(args) {
		return args[i]
	}
	return ""
}

func sorted[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }
