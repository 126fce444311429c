package main

import "context"

// sizing measures what sizes a Redis: campaigns of many jobs, many processes, and several nodes.
func sizing(ctx context.Context, b *bench) error {
	for _, part := range []func(context.Context, *bench) error{campaigns, crowds, nodes} {
		if err := part(ctx, b); err != nil {
			return err
		}
	}
	return nil
}
