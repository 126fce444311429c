package main

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// tenants is the number of tenants. Decisions take the tenants in turn.
const tenants = 10_000

// The limits per minute of the rows whose jobs all have room. They are the same for each limiter.
const (
	tenantUnits = 1_000
	globalUnits = 10_000_000
)

// limiter decides for the i-th job, whose tenant is tenantOf(i).
type limiter struct {
	name   string
	decide func(ctx context.Context, i int) error
}

func tenantOf(i int) string { return "tenant-" + strconv.Itoa(i%tenants) }

// yardstick is the row that the others are compared with.
const yardstick = "redis_rate, asked twice"

func redisRateTwice(client *redis.Client) limiter {
	rate := redis_rate.NewLimiter(client)
	allow := func(ctx context.Context, key string, units int) error {
		result, err := rate.Allow(ctx, key, redis_rate.PerMinute(units))
		if err == nil && result.Allowed != 1 {
			err = fmt.Errorf("redis_rate refused %s, which had room", key)
		}
		return err
	}
	return limiter{yardstick, func(ctx context.Context, i int) error {
		if err := allow(ctx, tenantOf(i), tenantUnits); err != nil {
			return err
		}
		return allow(ctx, "global", globalUnits)
	}}
}

//go:embed log.lua
var logText string

// sortedSetLog returns a limiter with a sliding log that keeps one member per unit.
func sortedSetLog(client *redis.Client) limiter {
	script := redis.NewScript(logText)
	return limiter{"sorted-set log", func(ctx context.Context, i int) error {
		answer, err := script.Run(ctx, client, []string{"{log}:" + tenantOf(i), "{log}:global"},
			i, 1, time.Minute.Microseconds(), tenantUnits, globalUnits).Int()
		if err == nil && answer != 1 {
			err = fmt.Errorf("the log refused where there was room: %d", answer)
		}
		return err
	}}
}

type limits = []throttle.Limit

// The rows of this project.
const (
	rowReserve   = "Reserve, one limit each"
	rowTwoLimits = "Reserve, two limits each"
)

// reserve decides for new jobs that may all start at once.
func reserve(client *redis.Client, row string, tenant, global limits) (limiter, error) {
	th, err := open(client, row, tenant, global, nil)
	return limiter{row, func(ctx context.Context, i int) error {
		return ask(ctx, th, job("job-"+strconv.Itoa(i), tenantOf(i)))
	}}, err
}

// open returns a throttle with limits for each tenant and for all of them together. Its timeout is
// long enough for a disturbed machine.
func open(client redis.UniversalClient, name string, tenant, global limits,
	opts *throttle.Options) (*throttle.Throttle, error) {
	if opts == nil {
		opts = &throttle.Options{}
	}
	opts.Timeout = 20 * time.Second
	return throttle.New(nameOf(name), client, []throttle.Scope{
		{Name: "tenant", Limits: tenant},
		{Name: throttle.Global, Limits: global},
	}, opts)
}

// nameOf returns a throttle's name made from any text.
func nameOf(text string) string {
	name := []byte(text)
	for i, c := range name {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			name[i] = '-'
		}
	}
	return string(name)
}

func job(id, tenant string) throttle.Job {
	return throttle.Job{ID: id, Weight: 1, Keys: map[string]string{"tenant": tenant}}
}

// ask reserves for a job, and returns an error if it has no room.
func ask(ctx context.Context, th *throttle.Throttle, job throttle.Job) error {
	got, err := th.Reserve(ctx, job)
	if err == nil && got.Outcome != throttle.Granted {
		err = fmt.Errorf("job %s was %s at %s, want it granted", job.ID, got.Outcome, got.Start)
	}
	return err
}
