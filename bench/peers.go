package main

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

// tenants is over how many tenants the decisions go, in turn.
const tenants = 1000

// The limits of all rows in which there is room: the same for each limiter.
const (
	tenantUnits = 1_000
	globalUnits = 10_000_000
)

// rows lists the table: first what others do, then this project.
func rows(waiting int) []row {
	return slices.Concat(peers(), ours(), lineRows(waiting))
}

func peers() []row {
	return []row{
		{`EVALSHA "return 1"`, inTurn(returnOne)},
		{"redis_rate, one limit", inTurn(redisRateOnce)},
		{yardstick, inTurn(redisRateTwice)},
		{"sub-window hash, three limits, two keys (Carlson)", inTurn(subWindowHash)},
		{"sorted-set log, tenant and global, weight 10", inTurn(sortedSetLog)},
	}
}

// inTurn makes a row of decisions over all tenants in turn. Each tenant has
// been decided on once before measuring, so that its keys and the scripts are
// there.
func inTurn(start func(m *meter) func(ctx context.Context, i int, tenant string) error) func(context.Context, *meter, int) error {
	return func(ctx context.Context, m *meter, calls int) error {
		decide := start(m)
		names := make([]string, tenants)
		for i := range names {
			names[i] = "tenant-" + strconv.Itoa(i)
			if err := decide(ctx, i, names[i]); err != nil {
				return err
			}
		}
		return m.measure(ctx, calls, func(i int) error { return decide(ctx, tenants+i, names[i%tenants]) })
	}
}

func returnOne(m *meter) func(ctx context.Context, i int, tenant string) error {
	script := redis.NewScript("return 1")
	return func(ctx context.Context, _ int, tenant string) error {
		return script.Run(ctx, m.client, []string{tenant}).Err()
	}
}

func redisRateOnce(m *meter) func(ctx context.Context, i int, tenant string) error {
	limiter := redis_rate.NewLimiter(m.client)
	return func(ctx context.Context, _ int, tenant string) error {
		return allow(ctx, limiter, tenant, tenantUnits)
	}
}

func redisRateTwice(m *meter) func(ctx context.Context, i int, tenant string) error {
	limiter := redis_rate.NewLimiter(m.client)
	return func(ctx context.Context, _ int, tenant string) error {
		if err := allow(ctx, limiter, tenant, tenantUnits); err != nil {
			return err
		}
		return allow(ctx, limiter, "global", globalUnits)
	}
}

func allow(ctx context.Context, limiter *redis_rate.Limiter, key string, units int) error {
	result, err := limiter.Allow(ctx, key, redis_rate.PerMinute(units))
	if err == nil && result.Allowed != 1 {
		err = fmt.Errorf("redis_rate refused %s, which had room", key)
	}
	return err
}

//go:embed subwindows.lua
var subWindowsText string

// subWindowHash is the scheme that Josiah Carlson described in 2014.
func subWindowHash(m *meter) func(ctx context.Context, i int, tenant string) error {
	script := redis.NewScript(subWindowsText)
	limits := func(units int) string {
		return fmt.Sprintf("[[%d,60000000,600000],[%d,3600000000,36000000],[%d,86400000000,864000000]]", units, 20*units, 100*units)
	}
	tenantLimits, globalLimits := limits(tenantUnits), limits(globalUnits)
	return func(ctx context.Context, _ int, tenant string) error {
		return allowed(script.Run(ctx, m.client, []string{"{sub}:" + tenant, "{sub}:global"}, 1, tenantLimits, globalLimits))
	}
}

//go:embed log.lua
var logText string

// sortedSetLog is the sliding log that keeps one member per unit.
func sortedSetLog(m *meter) func(ctx context.Context, i int, tenant string) error {
	script := redis.NewScript(logText)
	return func(ctx context.Context, i int, tenant string) error {
		return allowed(script.Run(ctx, m.client, []string{"{log}:" + tenant, "{log}:global"},
			i, 10, time.Minute.Microseconds(), tenantUnits, globalUnits))
	}
}

// allowed is an error if a peer's script did not answer 1.
func allowed(reply *redis.Cmd) error {
	answer, err := reply.Int()
	if err == nil && answer != 1 {
		err = fmt.Errorf("refused where there was room: %d", answer)
	}
	return err
}
