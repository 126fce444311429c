package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// memory prints how many bytes and keys each kind of state takes, by the server's memory before and after.
func memory(ctx context.Context, b *bench) error {
	return withServer(ctx, func(s *server) error {
		client := s.client()
		defer client.Close() //nolint:errcheck // nothing is lost with it
		if err := b.waitingMemory(ctx, s, client); err != nil {
			return err
		}
		minute := limits{throttle.PerMinute(1000)}
		two := limits{throttle.PerMinute(1000), throttle.PerDay(50_000)}
		for _, row := range []struct {
			name       string
			tenant     limits
			units      int
			bytes, own float64 // goals: bytes, keys; 0 is none
		}{
			{"a tenant that has used one unit of 1000/1m", minute, 1, 250, 1},
			{"a tenant that has used one unit of 1000/1m and 50000/24h", two, 1, 350, 1},
			{"a tenant that has used all of 100/1m (exact)", limits{throttle.PerMinute(100)}, 100, 0, 0},
		} {
			bytes, keys, err := tenantMemory(ctx, s, client, row.tenant, row.units)
			if err != nil {
				return err
			}
			b.say("%s takes %.0f bytes in %.3g keys", row.name, bytes, keys)
			if row.bytes > 0 {
				b.most("bytes of a quiet tenant", bytes, row.bytes)
				b.most("keys of a quiet tenant", keys, row.own)
			}
		}
		return nil
	})
}

func (b *bench) waitingMemory(ctx context.Context, s *server, client *redis.Client) error {
	for _, tenants := range []int{50, 10_000} {
		th, err := open(client, fmt.Sprintf("memory-%d", tenants), nil, limits{{Units: 1, Window: time.Hour}}, nil)
		if err != nil {
			return err
		}
		l := &line{throttle: th, tenants: tenants}
		bytes, _, err := used(ctx, s, func() error { return l.fill(ctx, b.waiting) })
		if err != nil {
			return err
		}
		each := bytes / float64(b.waiting)
		b.say("a waiting job takes %.0f bytes, of %d that wait, of %d tenants, IDs of %d bytes", each, b.waiting,
			tenants, len(l.id(0)))
		if tenants < b.waiting/100 {
			b.most("bytes of a waiting job", each, 200)
		}
	}
	return nil
}

// tenantMemory lets each of many tenants use a number of units.
func tenantMemory(ctx context.Context, s *server, client *redis.Client, tenant limits,
	units int) (bytes, keys float64, err error) {
	const many = 1000
	th, err := open(client, fmt.Sprintf("tenants-%d-%d", len(tenant), units), tenant, nil, nil)
	if err != nil {
		return 0, 0, err
	}
	if err := ask(ctx, th, job("first", "another")); err != nil { // the throttle has keys of its own
		return 0, 0, err
	}
	bytes, keys, err = used(ctx, s, func() error {
		for unit := range units {
			jobs := make([]throttle.Job, many)
			for i := range jobs {
				jobs[i] = job(fmt.Sprintf("%d-%d", i, unit), "tenant-"+strconv.Itoa(i))
			}
			for _, answer := range th.ReserveAll(ctx, jobs) {
				if answer.Err != nil {
					return answer.Err
				}
			}
		}
		return nil
	})
	// Keys are rounded to a hundredth: the key with what the process publishes about itself may appear meanwhile.
	return bytes / many, math.Round(100*keys/many) / 100, err
}

// memory returns a figure of the server about its memory, in bytes.
func (s *server) memory(ctx context.Context, name string) (float64, error) {
	info, err := s.control.Info(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	return number(info, name)
}

// used returns how many bytes and keys f adds.
func used(ctx context.Context, s *server, f func() error) (bytes, keys float64, err error) {
	ask := func() (bytes, keys float64, err error) {
		if bytes, err = s.memory(ctx, "used_memory:"); err != nil {
			return 0, 0, err
		}
		size, err := s.control.DBSize(ctx).Result()
		return bytes, float64(size), err
	}
	before, had, err := ask()
	if err != nil {
		return 0, 0, err
	}
	if err := f(); err != nil {
		return 0, 0, err
	}
	after, has, err := ask()
	return after - before, has - had, err
}
