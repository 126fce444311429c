package throttle

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file has the plain commands that are sent to Redis beside the scripts: for the Inspector, and
// to publish the configurations of processes. No decision needs any of these commands.

// errScriptsOnly is the error of a client that runs scripts and no other commands.
var errScriptsOnly = errors.New("throttle: the client takes no plain commands; go-redis' clients do")

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

// Client returns the client that the throttle uses: the one that was passed to New, or a copy of it with
// the throttle's timeout.
func (i Inside) Client() redis.Scripter { return i.t.redis.client }

// Ask sends plain commands to the server that has the throttle's keys. It blocks for
// Options.Timeout at most and fails as Reserve does, without fallback.
func (i Inside) Ask(ctx context.Context,
	ask func(ctx context.Context, client redis.Cmdable) (any, error)) (any, error) {
	return command(ctx, i.t.redis, ask)
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

// setField sets one field of a hash, removes others, and sets the hash's expiry, all or nothing: a
// connection that breaks between the commands would leave the hash without an expiry.
func (c *caller) setField(ctx context.Context, key, field, value string, lives time.Duration, remove []string) error {
	_, err := command(ctx, c, func(ctx context.Context, client redis.Cmdable) (bool, error) {
		_, err := client.TxPipelined(ctx, func(p redis.Pipeliner) error {
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

// Push adds an element at the front of a list, which is cut to its bound and expires. It fails as Ask does.
func (i Inside) Push(ctx context.Context, key, element string, most int64, lives time.Duration) error {
	return i.t.redis.pushed(ctx, key, element, most, lives)
}

// pushed adds an element at the front of a list, cuts the list to its bound, and sets its expiry, all or nothing.
func (c *caller) pushed(ctx context.Context, key, element string, most int64, lives time.Duration) error {
	_, err := command(ctx, c, func(ctx context.Context, client redis.Cmdable) (bool, error) {
		_, err := client.TxPipelined(ctx, func(p redis.Pipeliner) error {
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
