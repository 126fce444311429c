package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/connect"
)

// checkTimeout bounds the first look at a server.
const checkTimeout = 5 * time.Second

// expireEvery is how often the Redis inside looks for keys to expire.
const expireEvery = 100 * time.Millisecond

// surroundings is the Redis and the SMTP server of a run: real ones where the
// flags name them, else ones inside the process.
type surroundings struct {
	redis       redis.UniversalClient
	redisInside bool
	offset      time.Duration // Redis' clock ahead of ours
	mailer      *mailer
	smtpInside  bool
	record      *record // what the SMTP server received
	recordOf    string  // who keeps the record

	closers []func()
}

// openSurroundings starts or reaches both servers. Close it in the end.
func openSurroundings(ctx context.Context, o options, logger *zap.Logger) (*surroundings, error) {
	s := &surroundings{record: new(record)}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := s.openRedis(ctx, o.redis); err != nil {
		s.Close()
		return nil, err
	}
	if err := s.openSMTP(ctx, o.smtp, o.workers, logger); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
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

func (s *surroundings) openSMTP(ctx context.Context, addr string, connections int, logger *zap.Logger) error {
	s.recordOf = "client's acknowledgements"
	if addr == "" {
		s.smtpInside = true
		s.recordOf = "SMTP server"
		inside, err := startSMTPServer(s.record, logger)
		if err != nil {
			return err
		}
		s.closers = append(s.closers, func() { _ = inside.Close() })
		addr = inside.addr
	}
	var err error
	if s.mailer, err = newMailer(addr, connections); err != nil {
		return err
	}
	s.closers = append(s.closers, s.mailer.Close)
	return s.mailer.check(ctx)
}

// Close ends what was opened, the latest first.
func (s *surroundings) Close() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
}
