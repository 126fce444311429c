package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// List returns the names of the throttles that processes have published in this Redis within a
// day, sorted. It goes through every key that Redis has, some ten thousand in one call, on each
// primary of a Cluster; ctx bounds it.
func List(ctx context.Context, client redis.UniversalClient) ([]string, error) {
	names := make(map[string]bool)
	collect := func(ctx context.Context, server redis.Cmdable) ([]string, error) {
		return scan(func(cursor uint64) ([]string, uint64, error) {
			return server.Scan(ctx, cursor, wire.ProcessesKey("*"), scanAtOnce).Result()
		})
	}
	var keys []string
	var err error
	if cluster, is := client.(*redis.ClusterClient); is {
		keys, err = onPrimaries(ctx, cluster, collect)
	} else {
		keys, err = collect(ctx, client)
	}
	if err != nil {
		return nil, fmt.Errorf("throttle: the throttles cannot be listed: %w", err)
	}
	before, after, _ := strings.Cut(wire.ProcessesKey("\x00"), "\x00")
	var list []string
	for _, key := range keys {
		name := strings.TrimSuffix(strings.TrimPrefix(key, before), after)
		if wire.IsName(name) && !names[name] {
			names[name] = true
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list, nil
}

// onPrimaries collects from each primary of a Cluster.
func onPrimaries(ctx context.Context, cluster *redis.ClusterClient,
	collect func(context.Context, redis.Cmdable) ([]string, error)) ([]string, error) {
	found := make(chan []string)
	done := make(chan error, 1)
	go func() {
		done <- cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			some, err := collect(ctx, node)
			found <- some
			return err
		})
		close(found)
	}()
	var all []string
	for some := range found {
		all = append(all, some...)
	}
	return all, <-done
}
