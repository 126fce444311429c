package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// target is the object of a change: a scope key, all keys of a scope, or all scopes.
type target struct {
	th         *inspect.Inspector
	scope, key string
}

// String describes the target for people.
func (of target) String() string {
	switch {
	case of.scope == "":
		return "all scopes"
	case of.key == "" && of.scope != throttle.Global:
		return "all keys of " + of.scope
	}
	return view.ScopeKey(of.scope, of.key)
}

// args returns the target as arguments of a command line, which follow its flags. A tenant may have chosen a key that
// looks like a flag.
func (of target) args() string {
	names := slices.DeleteFunc([]string{of.th.Name(), of.scope, of.key}, func(name string) bool { return name == "" })
	text := ""
	if of.scope == "" {
		text = " --all"
	}
	if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "-") }) {
		text += " --"
	}
	for _, name := range names {
		text += " " + quoted(name)
	}
	return text
}

// target opens the throttle and checks the names of a scope and perhaps a key. An empty key is an error: it may be an
// unset variable of a script, which does not want to change all keys.
func (p *program) target(ctx context.Context, name string, args []string) (target, error) {
	if len(args) > 1 && args[1] == "" {
		return target{}, usagef("the key is empty: leave it out for all keys of the scope")
	}
	th, err := p.attach(ctx, name)
	if err != nil {
		return target{}, err
	}
	of := target{th, nth(args, 0), nth(args, 1)}
	return of, p.scopeKey(ctx, th, of.scope, of.key)
}

// sure adds to a verb the flag that skips its question.
func (p *program) sure(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&p.yes, "yes", "y", false, "do not ask")
}

// changed is the result of a verb that changes a setting.
type changed struct {
	Throttle string `json:"throttle"`
	Scope    string `json:"scope,omitempty"`
	Key      string `json:"key,omitempty"`
	What     string `json:"what"` // limits, pause or mode
	Before   string `json:"before,omitempty"`
	After    string `json:"after,omitempty"`
	// Until is when the setting ends by itself, Why the given reason, and WhyBefore that of the setting before.
	Until     time.Time `json:"until,omitzero"`
	Why       string    `json:"why,omitempty"`
	WhyBefore string    `json:"why_before,omitempty"`
	Undo      string    `json:"undo,omitempty"` // a command; empty where nothing has changed
	// ServedBefore is the served share that a reset of limits has set to 1; zero if it was 1 or is unchanged.
	ServedBefore float64 `json:"served_before,omitzero"`

	mode throttle.Mode // the mode in force for a key that is now paused
}

// change changes a setting, and prints the setting before and the command that undoes the change.
func (p *program) change(ctx context.Context, of target, what, wanted string,
	do func(ctx context.Context) error) error {
	before, err := settingOf(ctx, of, what)
	if err != nil {
		return err
	}
	question := fmt.Sprintf("%s of %s: now %s; make it %s?", what, of,
		view.WithReason(settingWord(what, settingNow(what, before)), before.Why), settingWord(what, wanted))
	if err := p.confirmed(ctx, question); err != nil {
		return err
	}
	served, err := servedShare(ctx, of, what)
	if err != nil {
		return err
	}
	if err := do(ctx); err != nil {
		return ofFlags(err)
	}
	after, err := settingOf(ctx, of, what)
	if err != nil {
		return err
	}
	c := changed{Throttle: of.th.Name(), Scope: of.scope, Key: of.key, What: what, Before: settingNow(what, before),
		After: settingNow(what, after), Until: after.Until, Why: after.Why, WhyBefore: before.Why}
	if what == "pause" && c.After != "" {
		u, err := of.th.Usage(ctx, of.scope, of.key)
		if err != nil {
			return err
		}
		c.mode = u.Mode
	}
	if !before.IsAs(after) {
		c.Undo = undo(of, what, before, after)
	}
	if after.At.IsZero() {
		c.ServedBefore = served
	}
	return p.print(c, func(g *page) { writeChange(g, of, c) })
}

// servedShare returns the served share that a reset of limits sets to 1; zero if it is 1, or if the change is not one
// of a scope key's limits.
func servedShare(ctx context.Context, of target, what string) (float64, error) {
	if what != "limits" || of.key == "" && of.scope != throttle.Global {
		return 0, nil
	}
	u, err := of.th.Usage(ctx, of.scope, of.key)
	if err != nil || u.Served == 1 {
		return 0, err
	}
	return u.Served, nil
}

// settingOf returns the current setting of a kind.
func settingOf(ctx context.Context, of target, what string) (inspect.Setting, error) {
	set, err := of.th.SettingsOf(ctx, of.scope, of.key)
	return view.Find(set, what), err
}

// settingsOf returns the settings of a scope key and of its scope.
func settingsOf(ctx context.Context, of target) ([]inspect.Setting, error) {
	set := []inspect.Setting{}
	own, err := of.th.SettingsOf(ctx, of.scope, of.key)
	if err != nil {
		return nil, err
	}
	set = append(set, own...)
	if of.key != "" {
		whole, err := of.th.SettingsOf(ctx, of.scope, "")
		if err != nil {
			return nil, err
		}
		set = append(set, whole...)
	}
	return set, nil
}

// settingNow formats a setting, with its end.
func settingNow(what string, s inspect.Setting) string {
	switch {
	case s.At.IsZero():
		return ""
	case what == "mode":
		return untilText(s.Mode, s.Until)
	case what == "limits":
		return untilText(limitsText(s.Limits), s.Until)
	}
	return untilText("", s.Until)
}

// untilText adds the end of a setting to its text, if it has an end.
func untilText(text string, until time.Time) string {
	if until.IsZero() {
		return text
	}
	return strings.TrimPrefix(text+" until "+until.Local().Format(time.RFC3339), " ")
}

// undo returns the command that restores the setting before.
func undo(of target, what string, before, after inspect.Setting) string {
	had, has := !before.At.IsZero(), !after.At.IsZero()
	command, terms := "asynq-throttle ", ""
	if had && !before.Until.IsZero() {
		terms += " --until " + before.Until.Local().Format(time.RFC3339Nano)
	}
	if had && before.Why != "" {
		terms += " --why " + quoted(before.Why)
	}
	args := of.args()
	switch {
	case what == "mode" && !had:
		return command + "mode" + args + " reset"
	case what == "mode":
		return command + "mode" + terms + args + " " + before.Mode
	case what == "limits" && !had:
		return command + "limits reset" + args
	case what == "limits":
		return command + "limits set" + terms + args + " " + quoted(view.LimitTexts(before.Limits))
	case !had:
		return command + "resume" + args
	case has: // a new pause does not shorten the one in force
		return command + "resume" + args + " && asynq-throttle pause" + terms + args
	}
	return command + "pause" + terms + args
}

// settingWord formats a setting for people.
func settingWord(what, text string) string {
	switch {
	case what == "pause" && text == "":
		return "not paused"
	case what == "pause":
		return text
	}
	return cmp.Or(text, "not set")
}

func writeChange(g *page, of target, c changed) {
	before, now := settingWord(c.What, c.Before), settingWord(c.What, c.After)
	if c.ServedBefore > 0 {
		g.line("served share of %s: %s; before: %s", of, g.good(view.ShareText(1)), view.ShareText(c.ServedBefore))
		if c.Undo == "" {
			return
		}
	}
	if c.Undo == "" {
		g.line("%s of %s: nothing has changed, it is %s", c.What, of, view.WithReason(now, c.Why))
		if c.What == "pause" && c.After != "" {
			g.line("a second pause does not shorten the first: end the first with asynq-throttle resume%s", of.args())
		}
		return
	}
	if c.After == "" && c.What != "pause" {
		now += ", the configuration is in force"
	}
	g.line("%s of %s: %s; before: %s", c.What, of, g.good(view.WithReason(now, c.Why)),
		view.WithReason(before, c.WhyBefore))
	switch {
	case c.What != "pause" || c.After == "":
	case c.mode != throttle.Enforce:
		g.line("%s until the mode is enforce", view.DelaysNothing(c.mode))
	default:
		g.line("until then, only jobs that were granted before start under it; its other jobs stay in line")
	}
	g.line("undo: %s", c.Undo)
}
