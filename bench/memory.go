package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// printMemory prints what the throttle keeps in Redis, by MEMORY USAGE.
func printMemory(ctx context.Context, out io.Writer, addr string) (err error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { err = errors.Join(err, client.Close()) }()
	fmt.Fprintln(out)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "memory\tbytes\t")
	for _, row := range []struct {
		name  string
		limit throttle.Limit
		spend func(ctx context.Context, t *throttle.Throttle, limit throttle.Limit) (keys string, per int, err error)
	}{
		{"a tenant that has used one unit of 100/1m", throttle.PerMinute(100), spendOne},
		{"a tenant that has used all of 100/1m (exact)", throttle.PerMinute(100), spendAll},
		{"a tenant that has used all of 1000/1s (sub-windows)", throttle.PerSecond(1000), spendAll},
		{"a booked job, of 1,000 under 100/1m", throttle.PerMinute(100), bookMany},
	} {
		if err := client.FlushAll(ctx).Err(); err != nil {
			return err
		}
		t, err := throttle.New("m", client, []throttle.Scope{{Name: "tenant", Limits: limits{row.limit}}}, &throttle.Options{Lookahead: throttle.MaxWindow})
		if err != nil {
			return err
		}
		keys, per, err := row.spend(ctx, t, row.limit)
		if err != nil {
			return err
		}
		used, err := memoryOf(ctx, client, keys)
		if err != nil {
			return err
		}
		fmt.Fprintf(table, "%s\t%d\t\n", row.name, used/int64(per))
	}
	return table.Flush()
}

// ofTenants are the keys that stay for a tenant, whatever jobs it has.
const ofTenants = "thr:{m}:3:[kl]e*"

func spendOne(ctx context.Context, t *throttle.Throttle, _ throttle.Limit) (string, int, error) {
	return ofTenants, 1, ask(ctx, t, job("job", "acme", 1), throttle.Granted)
}

// spendAll starts jobs of one unit evenly over a window, or, where that would
// take long, at once: an exact ledger has an entry for each either way.
func spendAll(ctx context.Context, t *throttle.Throttle, limit throttle.Limit) (string, int, error) {
	pause := time.Duration(0)
	if limit.Window <= time.Second {
		pause = limit.Window / time.Duration(limit.Units)
	}
	began := time.Now()
	for n := range limit.Units {
		time.Sleep(time.Until(began.Add(time.Duration(n) * pause)))
		if _, err := t.Reserve(ctx, job("job-"+strconv.FormatInt(n, 10), "acme", 1)); err != nil {
			return "", 0, err
		}
	}
	return ofTenants, 1, nil
}

func bookMany(ctx context.Context, t *throttle.Throttle, limit throttle.Limit) (string, int, error) {
	const jobs = 1000
	for n := range limit.Units + jobs {
		// As the worker names them: queue, task ID, retry count.
		id := fmt.Sprintf("default/00000000-0000-7000-8000-%012d/0", n)
		if _, err := t.Reserve(ctx, job(id, "acme", 1)); err != nil {
			return "", 0, err
		}
	}
	return "thr:*", jobs, nil
}

// memoryOf adds up the keys that match, but for the grants', which go by themselves.
func memoryOf(ctx context.Context, client *redis.Client, pattern string) (int64, error) {
	var total int64
	keys := client.Scan(ctx, 0, pattern, 1000).Iterator()
	for keys.Next(ctx) {
		if strings.Contains(keys.Val(), ":job:") {
			continue
		}
		used, err := client.MemoryUsage(ctx, keys.Val()).Result()
		if err != nil {
			return 0, err
		}
		total += used
	}
	return total, keys.Err()
}
