package rig

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/asynq-throttle/asynq-throttle/connect"
)

// CheckTimeout bounds the first look at a server.
const CheckTimeout = 5 * time.Second

// expireEvery is how often the Redis inside looks for keys to expire.
const expireEvery = 100 * time.Millisecond

// Inside reports whether Redis is inside the process: what is left is gone with it.
func (p *Program) Inside() bool { return p.Redis == "" }

// OpenRedis opens a client for what -redis names, or for a Redis inside the process,
// and looks whether it answers. Close ends both.
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

// letExpire lets the keys' time to live follow the clock, by which a key expires
// up to a tenth of a second early or late. (ClockTTL would make it exact, by
// going through all keys with every command.) Call what it returns to end it.
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
