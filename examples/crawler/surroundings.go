package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/connect"
)

// checkTimeout bounds the first look at a server.
const checkTimeout = 5 * time.Second

// expireEvery is how often the Redis inside looks for keys to expire.
const expireEvery = 100 * time.Millisecond

// surroundings is the Redis and the web of a run: real ones where the flags name
// them, else ones inside the process.
type surroundings struct {
	redis       redis.UniversalClient
	redisInside bool
	offset      time.Duration // Redis' clock ahead of ours
	resolver    *resolver
	fetcher     *fetcher
	web         *web       // nil for the real one
	accesses    *accessLog // what was requested
	serversLog  bool       // the servers keep it

	closers []func()
}

// openSurroundings starts or reaches Redis and the web. Close it in the end.
func openSurroundings(ctx context.Context, o options) (*surroundings, error) {
	s := &surroundings{accesses: new(accessLog), resolver: newResolver()}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := s.openRedis(ctx, o.redis); err != nil {
		s.Close()
		return nil, err
	}
	if o.bundled() {
		if err := s.openWeb(); err != nil {
			s.Close()
			return nil, err
		}
	}
	s.fetcher = newFetcher(s.resolver, o.agent, o.timeout)
	s.closers = append(s.closers, s.fetcher.Close)
	return s, nil
}

func (s *surroundings) openWeb() error {
	inside, err := startWeb(bundledWeb(), s.accesses)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, inside.Close)
	s.web, s.serversLog, s.resolver = inside, true, inside.resolver()
	return nil
}

// openRedis opens a client for the URL, or host:port, and looks whether Redis answers.
func (s *surroundings) openRedis(ctx context.Context, url string) error {
	if url == "" {
		s.redisInside = true
		inside := miniredis.NewMiniRedis()
		if err := inside.Start(); err != nil {
			return fmt.Errorf("redis: %w", err)
		}
		s.closers = append(s.closers, inside.Close, letExpire(inside))
		url = inside.Addr()
	}
	client, err := connect.Open(url)
	if err != nil {
		return fmt.Errorf("-redis: %w", err)
	}
	s.redis = client
	s.closers = append(s.closers, func() { _ = client.Close() })
	before := time.Now()
	theirs, err := client.Time(ctx).Result()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("redis: no answer within %s: %w", checkTimeout, err)
	case err != nil:
		return fmt.Errorf("redis: %w", err)
	}
	if !s.redisInside {
		s.offset = theirs.Sub(before.Add(time.Since(before) / 2))
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

// Close ends what was opened, the latest first.
func (s *surroundings) Close() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
}
