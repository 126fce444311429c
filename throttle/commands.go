package throttle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// This file has the plain commands that are sent to Redis beside the scripts: for the Inspector, and
// for what processes publish about themselves. No decision needs any of them.

// errScriptsOnly is the error of a client that runs scripts and no other commands.
var errScriptsOnly = errors.New("throttle: the client takes no plain commands, as go-redis' do")

// commands is the client of the server that has the throttle's keys.
func (c *caller) commands(ctx context.Context) (redis.Cmdable, error) {
	if cluster, is := c.client.(router); is {
		node, err := cluster.MasterForKey(ctx, c.keys.control)
		if err != nil {
			return nil, err
		}
		return node, nil
	}
	if client, is := c.client.(redis.Cmdable); is {
		return client, nil
	}
	return nil, errScriptsOnly
}

// command sends commands to the server that has the throttle's keys, within Options.Timeout.
func command[T any](ctx context.Context, c *caller,
	ask func(ctx context.Context, client redis.Cmdable) (T, error)) (T, error) {
	began := time.Now()
	reply, err := c.within(ctx, func(ctx context.Context) (any, error) {
		client, err := c.commands(ctx)
		if err != nil {
			return nil, err
		}
		return ask(ctx, client)
	})
	if err != nil {
		var none T
		return none, c.classify(ctx, began, err)
	}
	return reply.(T), nil //nolint:errcheck // it is what ask returned
}

// fields are the fields of a hash, and Redis' time.
type fields struct {
	now time.Time
	of  map[string]string
}

func (c *caller) fields(ctx context.Context, key string) (fields, error) {
	return command(ctx, c, func(ctx context.Context, client redis.Cmdable) (fields, error) {
		var now *redis.TimeCmd
		var all *redis.MapStringStringCmd
		_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			now, all = p.Time(ctx), p.HGetAll(ctx, key)
			return nil
		})
		if err != nil {
			return fields{}, err
		}
		return fields{now.Val(), all.Val()}, nil
	})
}

// setField sets one field of a hash, removes others, and sets the hash's expiry.
func (c *caller) setField(ctx context.Context, key, field, value string, lives time.Duration, remove []string) error {
	_, err := command(ctx, c, func(ctx context.Context, client redis.Cmdable) (bool, error) {
		_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.HSet(ctx, key, field, value)
			p.PExpire(ctx, key, lives)
			if len(remove) > 0 {
				p.HDel(ctx, key, remove...)
			}
			return nil
		})
		return true, err
	})
	return err
}

// field is one field of a hash, empty if it is not there.
func (c *caller) field(ctx context.Context, key, field string) (string, error) {
	return command(ctx, c, func(ctx context.Context, client redis.Cmdable) (string, error) {
		value, err := client.HGet(ctx, key, field).Result()
		if errors.Is(err, redis.Nil) {
			return "", nil
		}
		return value, err
	})
}

// pushed adds an element at the front of a list, cuts the list to so many, and sets its expiry.
func (c *caller) pushed(ctx context.Context, key, element string, most int64, lives time.Duration) error {
	_, err := command(ctx, c, func(ctx context.Context, client redis.Cmdable) (bool, error) {
		_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.LPush(ctx, key, element)
			p.LTrim(ctx, key, 0, most-1)
			p.PExpire(ctx, key, lives)
			return nil
		})
		return true, err
	})
	return err
}

// taken sets a key with an expiry if it is not set. It returns whether it did, and Redis' time.
func (c *caller) taken(ctx context.Context, key string, lives time.Duration) (now time.Time, is bool, err error) {
	type reply struct {
		now time.Time
		is  bool
	}
	r, err := command(ctx, c, func(ctx context.Context, client redis.Cmdable) (reply, error) {
		var set *redis.BoolCmd
		var now *redis.TimeCmd
		_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			set, now = p.SetNX(ctx, key, 1, lives), p.Time(ctx)
			return nil
		})
		return reply{now.Val(), set.Val()}, err
	})
	return r.now, r.is, err
}

// lives sets a key's expiry.
func (c *caller) lives(ctx context.Context, key string, lives time.Duration) error {
	_, err := command(ctx, c, func(ctx context.Context, client redis.Cmdable) (bool, error) {
		return client.PExpire(ctx, key, lives).Result()
	})
	return err
}

// list returns the elements of a list, from one index to another.
func (c *caller) list(ctx context.Context, key string, from, to int64) ([]string, error) {
	return command(ctx, c, func(ctx context.Context, client redis.Cmdable) ([]string, error) {
		return client.LRange(ctx, key, from, to).Result()
	})
}

// scores returns the scores of a sorted set, by member.
func (c *caller) scores(ctx context.Context, key string) (map[string]float64, error) {
	return command(ctx, c, func(ctx context.Context, client redis.Cmdable) (map[string]float64, error) {
		members, err := client.ZRangeWithScores(ctx, key, 0, -1).Result()
		scores := make(map[string]float64, len(members))
		for _, m := range members {
			scores[fmt.Sprint(m.Member)] = m.Score
		}
		return scores, err
	})
}

// value returns the value of a key, empty if there is none.
func (c *caller) value(ctx context.Context, key string) (string, error) {
	return command(ctx, c, func(ctx context.Context, client redis.Cmdable) (string, error) {
		value, err := client.Get(ctx, key).Result()
		if errors.Is(err, redis.Nil) {
			return "", nil
		}
		return value, err
	})
}

// beginnings returns the first bytes of each value, empty where there is none.
func (c *caller) beginnings(ctx context.Context, keys []string, bytes int64) ([]string, error) {
	return command(ctx, c, func(ctx context.Context, client redis.Cmdable) ([]string, error) {
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

// scan lists the keys of one server that match a pattern, in order, each once. It goes through
// every key that the server has.
func scan(ctx context.Context, client redis.Cmdable, pattern string) ([]string, error) {
	var found []string
	for cursor := uint64(0); ; {
		some, next, err := client.Scan(ctx, cursor, pattern, scanAtOnce).Result()
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
		if cursor = next; cursor == 0 {
			slices.Sort(found)
			return slices.Compact(found), nil
		}
	}
}

// scanned lists the throttle's keys with a prefix.
func (c *caller) scanned(ctx context.Context, prefix string) ([]string, error) {
	client, err := c.commands(ctx)
	if err == nil {
		var found []string
		if found, err = scan(ctx, client, globEscaper.Replace(prefix)+"*"); err == nil {
			return found, nil
		}
	}
	return nil, c.classify(ctx, time.Now(), err)
}

// globEscaper escapes the characters of a key that have a meaning in a pattern.
var globEscaper = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`)

// List returns the names of the throttles that processes have published in this Redis within a
// day, in order. It goes through every key that Redis has, some ten thousand in one call, on each
// primary of a Cluster; ctx bounds it.
func List(ctx context.Context, client redis.UniversalClient) ([]string, error) {
	names := make(map[string]bool)
	collect := func(ctx context.Context, server redis.Cmdable) ([]string, error) {
		return scan(ctx, server, wire.ProcessesKey("*"))
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

// Attach returns an Inspector of the throttle called name, made from the configuration that its
// processes have published in Redis.
//
// If processes are configured differently, as during a deployment, Attach takes the configuration of
// the newest live process, the first of Processes. The Inspector does not follow what is published
// later: attach again from time to time. Shares that come from Options.Share are known only for the
// flows that wait now. The Inspector writes no log.
//
// The error is an *AttachError if no process has published what this version can read, an
// *OptionError for the name or the client, or else as of Usage. It blocks for two round trips.
func Attach(ctx context.Context, name string, client redis.Scripter) (*Inspector, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	if !wire.IsName(name) {
		return nil, &OptionError{Field: "name", Value: name, Reason: "want 1 to 64 of A-Z a-z 0-9 _ . -"}
	}
	if isNil(client) {
		return nil, &OptionError{Field: "client", Value: nil, Reason: "is nil"}
	}
	options, err := (&Options{Timeout: attachedTimeout, BreakAfter: -1, Logger: zap.NewNop()}).withDefaults()
	if err != nil {
		return nil, err
	}
	c := newCaller(name, client, options)
	all, err := c.processes(ctx)
	if err != nil {
		return nil, err
	}
	p, err := newest(name, all)
	if err != nil {
		return nil, err
	}
	return c.attached(ctx, name, p)
}
