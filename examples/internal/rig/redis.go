package rig

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/asynq-throttle/asynq-throttle/connect"
)

// CheckTimeout bounds the first request to a server.
const CheckTimeout = 5 * time.Second

// expireEvery is how often the Redis inside looks for keys to expire.
const expireEvery = 100 * time.Millisecond

// Inside reports whether Redis is inside the process. Its data ends with the process.
func (p *Program) Inside() bool { return p.Redis == "" }

// OpenRedis opens a client of the Redis that -redis names, or of one inside the process,
// and checks that it answers. Close closes both.
func (p *Program) OpenRedis(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, CheckTimeout)
	defer cancel()
	url := p.Redis
	if p.Inside() {
		inside := miniredis.NewMiniRedis()
		if err := inside.Start(); err != nil {
			return fmt.Errorf("redis: %w", err)
		}
		p.AtClose(inside.Close)
		p.AtClose(letExpire(inside))
		url = inside.Addr()
	}
	client, err := connect.Open(url)
	if err != nil {
		return fmt.Errorf("-redis: %w", err)
	}
	p.Client = client
	p.AtClose(func() { _ = client.Close() })
	before := time.Now()
	theirs, err := client.Time(ctx).Result()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("redis: no answer within %s: %w", CheckTimeout, err)
	case err != nil:
		return fmt.Errorf("redis: %w", err)
	}
	if !p.Inside() {
		p.Offset = theirs.Sub(before.Add(time.Since(before) / 2))
	}
	return nil
}

// letExpire makes keys expire as time passes, up to a tenth of a second early or late.
// (ClockTTL would be exact, but goes through all keys with every command.) stop ends it.
func letExpire(inside *miniredis.Miniredis) (stop func()) {
	ended := make(chan struct{})
	go func() {
		tick := time.NewTicker(expireEvery)
		defer tick.Stop()
		last := time.Now()
		for {
			select {
			case <-ended:
				return
			case now := <-tick.C:
				inside.FastForward(now.Sub(last))
				last = now
			}
		}
	}()
	return func() { close(ended) }
}
