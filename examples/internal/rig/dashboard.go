package rig

import (
	"context"
	"fmt"

	"github.com/asynq-throttle/asynq-throttle/dashboard"
	"github.com/asynq-throttle/asynq-throttle/internal/loopback"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// ServeDashboard serves the pages about a throttle at the address of -dashboard until Close, and prints their address.
// The pages allow changes.
func (p *Program) ServeDashboard(ctx context.Context, name string, stats func() worker.Stats) error {
	if p.Dashboard == "" {
		return nil
	}
	pages, err := dashboard.New(name, p.Client, &dashboard.Options{AllowChanges: true, Stats: stats, Logger: p.Log})
	if err != nil {
		return err
	}
	listener, err := loopback.Listen(ctx, p.Dashboard)
	if err != nil {
		return fmt.Errorf("-dashboard: %w", err)
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := loopback.Serve(serving, listener, pages); err != nil {
			fmt.Fprintf(p.Stderr, "dashboard: %v\n", err)
		}
	}()
	p.AtClose(func() { cancel(); <-served })
	fmt.Fprintf(p.Stderr, "dashboard at http://%s/\n", listener.Addr())
	return nil
}
