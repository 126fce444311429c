package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// This file has the plain commands that an Inspector sends to Redis beside the scripts.

// command sends commands to the server that has the throttle's keys, within throttle.Options.Timeout.
func command[T any](ctx context.Context, t *Inspector,
	ask func(ctx context.Context, client redis.Cmdable) (T, error)) (T, error) {
	reply, err := t.in.Ask(ctx, func(ctx context.Context, client redis.Cmdable) (any, error) { return ask(ctx, client) })
	if err != nil {
		var none T
		return none, err
	}
	return reply.(T), nil //nolint:errcheck // it is what ask returned
}

// field returns one field of a hash, empty if the hash does not have it.
func (t *Inspector) field(ctx context.Context, key, field string) (string, error) {
	return command(ctx, t, func(ctx context.Context, client redis.Cmdable) (string, error) {
		value, err := client.HGet(ctx, key, field).Result()
		if errors.Is(err, redis.Nil) {
			return "", nil
		}
		return value, err
	})
}

// list returns the elements of a list, from one index to another.
func (t *Inspector) list(ctx context.Context, key string, from, to int64) ([]string, error) {
	return command(ctx, t, func(ctx context.Context, client redis.Cmdable) ([]string, error) {
		return client.LRange(ctx, key, from, to).Result()
	})
}

// scores returns the scores of a sorted set, by member.
func (t *Inspector) scores(ctx context.Context, key string) (map[string]float64, error) {
	return command(ctx, t, func(ctx context.Context, client redis.Cmdable) (map[string]float64, error) {
		members, err := client.ZRangeWithScores(ctx, key, 0, -1).Result()
		scores := make(map[string]float64, len(members))
		for _, m := range members {
			scores[fmt.Sprint(m.Member)] = m.Score
		}
		return scores, err
	})
}

// value returns the value of a key, empty if the key does not exist.
func (t *Inspector) value(ctx context.Context, key string) (string, error) {
	return command(ctx, t, func(ctx context.Context, client redis.Cmdable) (string, error) {
		value, err := client.Get(ctx, key).Result()
		if errors.Is(err, redis.Nil) {
			return "", nil
		}
		return value, err
	})
}

// beginnings returns the first bytes of each value, empty for a key that does not exist.
func (t *Inspector) beginnings(ctx context.Context, keys []string, bytes int64) ([]string, error) {
	return command(ctx, t, func(ctx context.Context, client redis.Cmdable) ([]string, error) {
		values := make([]*redis.StringCmd, len(keys))
		_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, key := range keys {
				values[i] = p.GetRange(ctx, key, 0, bytes-1)
			}
			return nil
		})
		texts := make([]string, len(keys))
		for i := range values {
			texts[i] = values[i].Val()
		}
		return texts, err
	})
}

// scanAtOnce is about how many keys one call of SCAN goes through: a few milliseconds of Redis.
const scanAtOnce = 10_000

// scan lists the keys of one server, in order, each once. next reads some of the keys from a
// cursor on, and returns the following cursor. All calls together go through every key that the server
// has.
func scan(next func(cursor uint64) (keys []string, following uint64, err error)) ([]string, error) {
	var found []string
	for cursor := uint64(0); ; {
		some, following, err := next(cursor)
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
		if cursor = following; cursor == 0 {
			slices.Sort(found)
			return slices.Compact(found), nil
		}
	}
}

// scanned lists the throttle's keys with a prefix. Each call of SCAN may take throttle.Options.Timeout.
func (t *Inspector) scanned(ctx context.Context, prefix string) ([]string, error) {
	type page struct {
		keys []string
		next uint64
	}
	return scan(func(cursor uint64) ([]string, uint64, error) {
		p, err := command(ctx, t, func(ctx context.Context, client redis.Cmdable) (page, error) {
			keys, next, err := client.Scan(ctx, cursor, globEscaper.Replace(prefix)+"*", scanAtOnce).Result()
			return page{keys, next}, err
		})
		return p.keys, p.next, err
	})
}

// globEscaper escapes the characters of a key that have a meaning in a pattern.
var globEscaper = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`)
