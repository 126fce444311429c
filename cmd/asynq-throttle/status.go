package main

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

func (p *program) status() *cobra.Command {
	return &cobra.Command{
		Use:               "status THROTTLE",
		Short:             "how a throttle is: its processes, what waits, what is set, how busy its Redis is",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completeThrottle,
		RunE: limited(func(cmd *cobra.Command, args []string) error {
			s, err := p.readStatus(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return p.print(s, func(g *page) { writeStatus(g, s) })
		}),
	}
}

func (p *program) readStatus(ctx context.Context, name string) (view.Status, error) {
	th, err := p.attach(ctx, name)
	if err != nil {
		return view.Status{}, err
	}
	return view.StatusOf(ctx, th)
}

func writeStatus(g *page, s view.Status) {
	alike := g.good("configured alike")
	switch {
	case s.Processes == 0:
		alike = g.bad("nothing starts until one runs")
	case !s.Alike:
		alike = g.bad("NOT configured alike: asynq-throttle check " + s.Throttle)
	}
	g.line("%s at %s: %s, %s", s.Throttle, s.Now.Local().Format("2006-01-02 15:04:05 MST"),
		view.Many(s.Processes, "process"), alike)
	writeWaiting(g, s)
	for _, u := range s.Global {
		g.line("global      %s", useText(u, s.Now))
	}
	var scopes []string
	for _, of := range s.Scopes {
		scopes = append(scopes, of.Name+" "+limitsText(of.Limits)+modeText(of.Mode))
	}
	g.line("configured  %s", strings.Join(scopes, "; "))
	if len(s.Set) == 0 {
		g.line("set         nothing at run time")
	}
	for i, of := range s.Set {
		if i == mostSet {
			g.line("set         … and %d more: asynq-throttle limits get %s", len(s.Set)-i, s.Throttle)
			break
		}
		g.line("set         %s", settingText(of, s.Now))
	}
	if age := s.Now.Sub(s.SetAsOf); age > time.Second && len(s.Set) > 0 {
		g.line("set         as it was %s ago", view.Span(age))
	}
	writeLoad(g, s.Redis)
}

// mostSet is how many settings status shows.
const mostSet = 10

func writeWaiting(g *page, s view.Status) {
	if s.Jobs == 0 {
		g.line("in line     nothing waits")
		return
	}
	g.line("in line     %s of %s in %s", view.Many(s.Jobs, "job"), view.Many(s.Flows, "flow"), view.Many(s.Lanes, "lane"))
	if r := s.Oldest; r != nil {
		until := ""
		switch {
		case r.Until.IsZero():
		case view.Leased(r.Why) && r.Until.After(s.Now):
			until = ", room " + roomAt(r.Why, r.Until, s.Now)
		default:
			until = ", until " + at(r.Until, s.Now)
		}
		g.line("oldest      %s, for %s, under %s: %s%s", cmp.Or(view.Name(r.Flow), "–"), since(r.Since, s.Now),
			view.ScopeKey(r.Scope, r.Key), cmp.Or(r.Why, "its turn"), until)
	}
}

func writeLoad(g *page, l view.Load) {
	verdict := l.Verdict
	if verdict == "unknown" {
		g.line("Redis       unknown: INFO does not say how busy it is, or may not be read; round trip %s",
			l.RoundTrip.Round(10*time.Microsecond))
		return
	}
	shown := coloured(verdict)
	if verdict == "bottleneck" {
		shown = g.bad(verdict)
	}
	g.line("Redis       %s: %s of a core, round trip %s, %d commands a second, "+
		"scripts of all programs %s a call, %s; over %s",
		shown, view.Percent(l.CPU), l.RoundTrip.Round(10*time.Microsecond), l.Commands, l.Script.Round(time.Microsecond),
		cmp.Or(l.Memory, "memory not known"), l.Over.Round(time.Millisecond))
}

// useText formats the use of one limit in one line.
func useText(u view.Use, now time.Time) string {
	text := "without limits"
	if u.Limit != "" {
		text = u.Limit + ": " + strconv.FormatInt(u.Used, 10) + " used (" + view.Percent(u.Ratio) + "), " +
			strconv.FormatInt(u.Booked, 10) + " booked"
		if u.Mode == throttle.Enforce && u.Free.After(now) {
			text += ", room " + at(u.Free, now)
		}
	}
	text += servedText(u.Served)
	if set := setText(u, now); set != "" {
		text += ", " + set
	}
	switch {
	case u.Mode != throttle.Enforce:
		text += ", " + view.DelaysNothing(u.Mode)
	case !u.Paused.IsZero():
		text += ", paused until " + at(u.Paused, now)
	}
	return text
}

// servedText formats the served share of a limit; empty if the upstream serves all.
func servedText(part float64) string {
	if text := view.ServedText(part); text != "" {
		return ", " + text
	}
	return ""
}

// setText says where a limit was set at run time, and until when; empty where it is configured.
func setText(u view.Use, now time.Time) string {
	return view.SetText(u.SetFor, u.Ends, func(end time.Time) string { return at(end, now) })
}

// settingText formats a setting in one line: what is set, until when, by whom and why.
func settingText(s inspect.Setting, now time.Time) string {
	name := view.ScopeKey(s.Scope, s.Key)
	switch {
	case s.Scope == "":
		name = "all scopes"
	case s.Key == "" && s.Scope != throttle.Global:
		name = "all of " + s.Scope
	}
	text := name + ": "
	switch s.What {
	case "pause":
		text += "paused"
	case "limits":
		text += limitsText(s.Limits)
	case "mode":
		text += "mode " + s.Mode
	}
	if !s.Until.IsZero() {
		text += " until " + at(s.Until, now)
	}
	text += ", by " + s.By + " at " + at(s.At, now)
	if s.Why != "" {
		text += ": " + s.Why
	}
	return text
}

// limitsText formats limits for people.
func limitsText(limits []throttle.Limit) string {
	return cmp.Or(view.LimitTexts(limits), "without limits")
}

// modeText formats a mode; empty for enforce, the usual one.
func modeText(m throttle.Mode) string {
	if m == throttle.Enforce {
		return ""
	}
	return " (" + m.String() + ")"
}
