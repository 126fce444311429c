package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
)

// completeThrottle completes the name of a throttle.
func (p *program) completeThrottle(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Second)
	defer cancel()
	if p.open(ctx) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names, err := inspect.List(ctx, p.client)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return printable(names), cobra.ShellCompDirectiveNoFileComp
}

// completeScope completes the names of a throttle and of its scopes.
func (p *program) completeScope(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return p.completeThrottle(cmd, args, typed)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Second)
	defer cancel()
	th, err := p.attach(ctx, args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names, err := scopesOf(ctx, th)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return printable(names), cobra.ShellCompDirectiveNoFileComp
}

// printable returns the names in a form that a shell may show.
func printable(names []string) []string {
	for i, name := range names {
		names[i] = view.Printable(name)
	}
	return names
}

// scopesOf returns the names of the newest process' scopes.
func scopesOf(ctx context.Context, th *inspect.Inspector) ([]string, error) {
	processes, err := th.Processes(ctx)
	var names []string
	if len(processes) > 0 {
		for _, s := range processes[0].Scopes {
			names = append(names, s.Name)
		}
	}
	return names, err
}
