package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

func (p *program) limits() *cobra.Command {
	cmd := &cobra.Command{Use: "limits", Short: "the limits in force, and those that are set at run time",
		Args: cobra.NoArgs}
	cmd.AddCommand(p.limitsGet(), p.limitsSet(), p.limitsReset())
	return cmd
}

// configuration is the result of limits get.
type configuration struct {
	Throttle string            `json:"throttle"`
	Scopes   []view.ScopeOf    `json:"scopes"`
	Set      []inspect.Setting `json:"set"`
}

func (p *program) limitsGet() *cobra.Command {
	return &cobra.Command{
		Use:               "get THROTTLE [SCOPE [KEY]]",
		Short:             "the configured limits, and what is set at run time by whom; of one scope key what is in force",
		Args:              cobra.RangeArgs(1, 3),
		ValidArgsFunction: p.completeScope,
		RunE: limited(func(cmd *cobra.Command, args []string) error {
			ctx, scope, key := cmd.Context(), nth(args, 1), nth(args, 2)
			th, err := p.attach(ctx, args[0])
			if err != nil {
				return err
			}
			if err := p.differing(ctx, th); err != nil {
				return err
			}
			if scope != "" {
				if err := p.scopeKey(ctx, th, scope, key); err != nil {
					return err
				}
			}
			if key != "" || scope == throttle.Global {
				uses, err := view.UsageOf(ctx, th, scope, key)
				if err != nil {
					return err
				}
				set, err := settingsOf(ctx, target{th, scope, key})
				if err != nil {
					return err
				}
				result := struct {
					view.Uses
					Set []inspect.Setting `json:"set"`
				}{uses, set}
				return p.print(result, func(g *page) {
					writeUses(g, uses)
					for _, s := range set {
						g.line("%s", settingText(s, uses.Now))
					}
				})
			}
			c, err := configurationOf(ctx, th, scope)
			if err != nil {
				return err
			}
			now, err := p.now(ctx)
			if err != nil {
				return err
			}
			return p.print(c, func(g *page) { writeConfiguration(g, c, now) })
		}),
	}
}

func configurationOf(ctx context.Context, th *inspect.Inspector, scope string) (configuration, error) {
	c := configuration{Throttle: th.Name(), Set: []inspect.Setting{}}
	var err error
	if c.Scopes, err = configured(ctx, th, scope); err != nil || len(c.Scopes) == 0 {
		return c, err
	}
	set, err := th.Settings(ctx)
	for _, s := range set {
		if scope == "" || s.Scope == scope || s.Scope == "" {
			c.Set = append(c.Set, s)
		}
	}
	return c, err
}

// configured returns a scope as the newest process has configured it; with an empty name, all scopes.
func configured(ctx context.Context, th *inspect.Inspector, scope string) ([]view.ScopeOf, error) {
	processes, err := th.Processes(ctx)
	if err != nil || len(processes) == 0 {
		return nil, err
	}
	var scopes []view.ScopeOf
	for _, s := range processes[0].Scopes {
		if scope == "" || s.Name == scope {
			scopes = append(scopes, view.ScopeOf{Name: s.Name, Limits: s.Limits, Mode: s.Mode})
		}
	}
	return scopes, nil
}

func writeConfiguration(g *page, c configuration, now time.Time) {
	for _, s := range c.Scopes {
		g.line("%s: %s%s", s.Name, limitsText(s.Limits), modeText(s.Mode))
	}
	if len(c.Set) == 0 {
		g.line("nothing is set at run time")
		return
	}
	g.line("set at run time:")
	for _, s := range c.Set {
		g.line("  %s", settingText(s, now))
	}
}

func (p *program) limitsSet() *cobra.Command {
	var try bool
	var terms terms
	cmd := &cobra.Command{
		Use:   "set THROTTLE SCOPE [KEY] LIMITS",
		Short: "set limits at run time, for one key or for all keys of a scope",
		Long: "Set limits at run time, for one key or for all keys of a scope that have none of their own.\nThey " +
			"replace all limits that the scope is configured with: also name those that should stay.",
		Example: `  asynq-throttle limits set smtp tenant acme "5000/1h, 10/1s"
  asynq-throttle limits set smtp tenant acme 5000/1h --for 4h --why "the spring campaign"
  asynq-throttle limits set smtp tenant 2000/24h --dry-run   # what it would keep back`,
		Args:              cobra.RangeArgs(3, 4),
		ValidArgsFunction: p.completeScope,
		RunE: limited(func(cmd *cobra.Command, args []string) error {
			ctx, last := cmd.Context(), len(args)-1
			limits, err := throttle.ParseLimits(args[last])
			if err != nil {
				return statusError{misused, err}
			}
			of, err := p.target(ctx, args[0], args[1:last])
			if err != nil {
				return err
			}
			now, err := p.now(ctx)
			if err != nil {
				return err
			}
			end, err := terms.end(now)
			if err != nil {
				return err
			}
			until, why := inspect.Until(byLocalClock(end, now)), inspect.Why(terms.why)
			if err := of.th.CheckLimits(of.scope, limits, until, why); err != nil {
				return ofFlags(err)
			}
			if err := p.warnLifted(ctx, of, limits); err != nil {
				return err
			}
			if try {
				return p.try(ctx, of, limits)
			}
			return p.change(ctx, of, "limits", terms.text(limitsText(limits), end), func(ctx context.Context) error {
				return of.th.SetLimits(ctx, of.scope, of.key, limits, until, why)
			})
		}),
	}
	p.sure(cmd)
	terms.flags(cmd)
	cmd.Flags().BoolVar(&try, "dry-run", false,
		"change nothing, say what the limits would have kept back of the last window")
	return cmd
}

// warnLifted warns about limits in force that have no successor.
func (p *program) warnLifted(ctx context.Context, of target, limits []throttle.Limit) error {
	had, _, err := inForce(ctx, of)
	if err != nil {
		return err
	}
	if lifted := view.Lifted(had, limits); len(lifted) > 0 {
		fmt.Fprintf(p.errs, "warning: no longer in force for %s: %s; also name the limits that should stay\n", of,
			limitsText(lifted))
	}
	return nil
}

// inForce returns the limits that are set, and when they end by themselves; else the configured ones.
func inForce(ctx context.Context, of target) (limits []throttle.Limit, until time.Time, err error) {
	for _, key := range slices.Compact([]string{of.key, ""}) {
		all, err := of.th.SettingsOf(ctx, of.scope, key)
		if set := view.Find(all, "limits"); err != nil || set.Limits != nil {
			return set.Limits, set.Until, err
		}
	}
	scopes, err := configured(ctx, of.th, of.scope)
	if err != nil || len(scopes) == 0 {
		return nil, until, err
	}
	return slices.Clone(scopes[0].Limits), until, nil
}

func (p *program) limitsReset() *cobra.Command {
	var terms terms
	cmd := &cobra.Command{
		Use:               "reset THROTTLE SCOPE [KEY]",
		Short:             "take back limits that were set at run time",
		Args:              cobra.RangeArgs(2, 3),
		ValidArgsFunction: p.completeScope,
		RunE: limited(func(cmd *cobra.Command, args []string) error {
			of, err := p.target(cmd.Context(), args[0], args[1:])
			if err != nil {
				return err
			}
			return p.change(cmd.Context(), of, "limits", "", func(ctx context.Context) error {
				return of.th.ResetLimits(ctx, of.scope, of.key, inspect.Why(terms.why))
			})
		}),
	}
	p.sure(cmd)
	terms.reason(cmd)
	return cmd
}

// mostTried is how many keys of a scope are tried, those with the fullest limits.
const mostTried = 100

// try prints what limits would have held back.
func (p *program) try(ctx context.Context, of target, limits []throttle.Limit) error {
	keys, err := tried(ctx, of)
	if err != nil {
		return err
	}
	rows, err := view.Try(ctx, of.th, keys, limits)
	if err != nil {
		return err
	}
	result := struct {
		Throttle string       `json:"throttle"`
		Rows     []view.Tried `json:"rows"`
	}{of.th.Name(), rows}
	return p.print(result, func(g *page) { writeTried(g, of, rows) })
}

// tried reads the scope keys on which limits of a target are tried.
func tried(ctx context.Context, of target) ([]inspect.Usage, error) {
	if of.key == "" && of.scope != throttle.Global {
		return view.Fullest(ctx, of.th, of.scope, mostTried)
	}
	u, err := of.th.Usage(ctx, of.scope, of.key)
	return []inspect.Usage{u}, err
}

func writeTried(g *page, of target, rows []view.Tried) {
	held := 0
	for _, r := range rows {
		switch {
		case !r.Known:
			g.line("%s: %s: %s", view.ScopeKey(r.Scope, r.Key), r.Limit, r.Why)
		case r.Over > 0:
			g.line("%s: %d units started in the last window; %s would have kept %s back", view.ScopeKey(r.Scope, r.Key),
				r.Started, r.Limit, g.bad(strconv.FormatInt(r.Over, 10)))
		}
		if r.Over > 0 || !r.Known {
			held++
		}
	}
	if held == 0 {
		g.line("nothing would have been kept back of what started in the last window")
	}
	g.line("nothing was changed; to try it with what comes: asynq-throttle mode%s shadow, then set it",
		target{of.th, of.scope, ""}.args())
}

// quoted returns an argument as a shell reads it.
func quoted(text string) string {
	plain := strings.IndexFunc(text, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:@%+=,-", r)
	}) < 0
	switch printable := view.Printable(text); {
	case plain && text != "":
		return text
	case printable != text: // the form that bash and zsh read
		return "$'" + view.Printable(strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text)) + "'"
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
