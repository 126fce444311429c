package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// hostNotes is what a crawl has learned about a host.
type hostNotes struct {
	Largest int64         `json:"largest,omitempty"` // kilobytes of its largest page so far
	Delay   time.Duration `json:"delay,omitempty"`   // its Crawl-delay
}

// notes is what is known about a host. Only its turn changes it.
func (f *frontier) notes(ctx context.Context, host string) (hostNotes, error) {
	var notes hostNotes
	text, err := f.rdb.HGet(ctx, f.key("hosts"), host).Bytes()
	if errors.Is(err, redis.Nil) {
		return notes, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &notes)
	}
	if err != nil {
		return notes, fmt.Errorf("crawler: notes of %s: %w", host, err)
	}
	return notes, nil
}

func (f *frontier) setNotes(ctx context.Context, host string, notes hostNotes) error {
	text, err := json.Marshal(notes)
	if err != nil {
		return fmt.Errorf("crawler: notes of %s: %w", host, err)
	}
	return f.rdb.HSet(ctx, f.key("hosts"), host, text).Err()
}

// delays is the Crawl-delay of each host that has one.
func (f *frontier) delays(ctx context.Context) (map[string]time.Duration, error) {
	texts, err := f.rdb.HGetAll(ctx, f.key("hosts")).Result()
	if err != nil {
		return nil, err
	}
	delays := make(map[string]time.Duration)
	for host, text := range texts {
		var notes hostNotes
		if err := json.Unmarshal([]byte(text), &notes); err != nil {
			return nil, fmt.Errorf("crawler: notes of %s: %w", host, err)
		}
		if notes.Delay > 0 {
			delays[host] = notes.Delay
		}
	}
	return delays, nil
}

// robots is the robots.txt of an origin; false if it is not known, or too old.
func (f *frontier) robots(ctx context.Context, origin string) (string, bool, error) {
	text, err := f.rdb.Get(ctx, f.key("robots:"+origin)).Result()
	if errors.Is(err, redis.Nil) {
		return "", false, nil
	}
	return text, err == nil, err
}

func (f *frontier) setRobots(ctx context.Context, origin, text string) error {
	return f.rdb.Set(ctx, f.key("robots:"+origin), text, robotsKept).Err()
}
