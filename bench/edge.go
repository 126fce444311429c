package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// openingHours makes many jobs of a thousand tenants wait for a scope that is closed, and pulls them from a second
// before it opens. Hours are of whole minutes, so this takes up to two minutes.
func openingHours(ctx context.Context, b *bench, client *redis.Client) error {
	opens := time.Now().UTC().Truncate(time.Minute).Add(2 * time.Minute)
	const clock = "15:04"
	hours := throttle.OpenHours(opens.Format(clock) + "-" + opens.Add(12*time.Hour).Format(clock) + " @UTC")
	th, err := open(client, "opens", limits{throttle.PerSecond(100)}, limits{throttle.PerSecond(5000), hours}, nil)
	if err != nil {
		return err
	}
	l := &line{throttle: th, driver: th.Driver(), tenants: 1000}
	if err := l.fill(ctx, b.waiting); err != nil {
		return err
	}
	if err := sleep(ctx, time.Until(opens.Add(-time.Second))); err != nil {
		return err
	}
	return errors.Join(drive(ctx, th, 4*time.Second), look(ctx, th, throttle.Global, "", time.Second))
}
