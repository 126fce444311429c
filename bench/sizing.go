package main

import "context"

// sizing measures what a Redis needs for campaigns of many jobs, for many processes, and on several nodes.
func sizing(ctx context.Context, b *bench) error {
	for _, part := range []func(context.Context, *bench) error{campaigns, crowds, nodes} {
		if err := part(ctx, b); err != nil {
			return err
		}
	}
	return nil
}
