package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// target is what is changed: a scope key, all keys of a scope, or all scopes.
type target struct {
	th         *throttle.Throttle
	scope, key string
}

// String names it for people.
func (of target) String() string {
	switch {
	case of.scope == "":
		return "all scopes"
	case of.key == "" && of.scope != throttle.Global:
		return "all keys of " + of.scope
	}
	return scopeKey(of.scope, of.key)
}

// args are it on the command line.
func (of target) args() string {
	if of.scope == "" {
		return quoted(of.th.Name()) + " --all"
	}
	text := quoted(of.th.Name()) + " " + quoted(of.scope)
	if of.key != "" {
		text += " " + quoted(of.key)
	}
	return text
}

// target opens the throttle and checks the names of a scope and perhaps a key.
func (p *program) target(ctx context.Context, name string, args []string) (target, error) {
	th, err := p.attach(ctx, name)
	if err != nil {
		return target{}, err
	}
	of := target{th, nth(args, 0), nth(args, 1)}
	return of, p.scopeKey(ctx, th, of.scope, of.key)
}

// sure gives a verb that changes something the flag for no questions.
func (p *program) sure(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&p.yes, "yes", "y", false, "do not ask")
}

// changed is what a verb says that changed something.
type changed struct {
	Throttle string `json:"throttle"`
	Scope    string `json:"scope,omitempty"`
	Key      string `json:"key,omitempty"`
	What     string `json:"what"` // limits, pause or mode
	Before   string `json:"before,omitempty"`
	After    string `json:"after,omitempty"`
	Undo     string `json:"undo,omitempty"` // a command; empty where nothing has changed
}

// change changes something, and says what it was before and how to undo it.
func (p *program) change(ctx context.Context, of target, what, wanted string, do func(ctx context.Context) error) error {
	before, err := settingOf(ctx, of, what)
	if err != nil {
		return err
	}
	question := fmt.Sprintf("%s of %s: now %s; make it %s?", what, of, settingWord(what, before), settingWord(what, wanted))
	if err := p.confirmed(question); err != nil {
		return err
	}
	if err := do(ctx); err != nil {
		return err
	}
	after, err := settingOf(ctx, of, what)
	if err != nil {
		return err
	}
	c := changed{of.th.Name(), of.scope, of.key, what, before, after, ""}
	if before != after {
		c.Undo = undo(of, what, before, after)
	}
	return p.print(c, func(g *page) { writeChange(g, of, c) })
}

// settingOf is what is set now, as text that the command line takes.
func settingOf(ctx context.Context, of target, what string) (string, error) {
	s, err := of.th.SettingOf(ctx, of.scope, of.key)
	switch {
	case err != nil:
		return "", err
	case what == "mode":
		return s.Mode, nil
	case what == "limits" && s.Limits != nil:
		return limitsText(s.Limits), nil
	case what == "pause" && !s.Paused.IsZero():
		return s.Paused.Local().Format(time.RFC3339), nil
	}
	return "", nil
}

// undo is the command that brings back what was set before.
func undo(of target, what, before, after string) string {
	command := map[string][2]string{ // with something before, with nothing
		"limits": {"limits set", "limits reset"}, "mode": {"mode", "mode"}, "pause": {"pause", "resume"},
	}[what]
	switch {
	case what == "mode":
		return "asynq-throttle mode " + of.args() + " " + orElse(before, "reset")
	case before == "":
		return "asynq-throttle " + command[1] + " " + of.args()
	case what == "pause" && after == "":
		return "asynq-throttle pause " + of.args() + " --until " + before
	case what == "pause": // none is shortened by another
		return "asynq-throttle resume " + of.args() + " && asynq-throttle pause " + of.args() + " --until " + before
	}
	return "asynq-throttle " + command[0] + " " + of.args() + " " + quoted(before)
}

// settingWord is what is set, for people.
func settingWord(what, text string) string {
	switch {
	case what == "pause" && text == "":
		return "not paused"
	case what == "pause":
		return "until " + text
	}
	return orElse(text, "not set")
}

func writeChange(g *page, of target, c changed) {
	if c.Undo == "" {
		g.line("%s of %s: nothing has changed, it is %s", c.What, of, settingWord(c.What, c.After))
		return
	}
	now := settingWord(c.What, c.After)
	if c.After == "" && c.What != "pause" {
		now += ", the configuration is in force"
	}
	g.line("%s of %s: %s; before: %s", c.What, of, g.good(now), settingWord(c.What, c.Before))
	if c.What == "pause" && c.After != "" {
		g.line("nobody starts under it until then who has not been granted before; its jobs stay in line")
	}
	g.line("undo: %s", c.Undo)
}
