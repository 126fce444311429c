package frontier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/robots"
)

// HostNotes is what a crawl has learned about a host.
type HostNotes struct {
	Largest int64         `json:"largest,omitempty"` // kilobytes of its largest page so far
	Delay   time.Duration `json:"delay,omitempty"`   // its Crawl-delay
}

// Notes returns what is known about a host. Only the host's turn changes it.
func (f *Frontier) Notes(ctx context.Context, host string) (HostNotes, error) {
	var notes HostNotes
	text, err := f.rdb.HGet(ctx, f.Key("hosts"), host).Bytes()
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

// setNotes keeps what is known about a host.
func (f *Frontier) setNotes(ctx context.Context, host string, notes HostNotes) error {
	text, err := json.Marshal(notes)
	if err != nil {
		return fmt.Errorf("crawler: notes of %s: %w", host, err)
	}
	return f.rdb.HSet(ctx, f.Key("hosts"), host, text).Err()
}

// Delays returns the Crawl-delay of each host that has one.
func (f *Frontier) Delays(ctx context.Context) (map[string]time.Duration, error) {
	texts, err := f.rdb.HGetAll(ctx, f.Key("hosts")).Result()
	if err != nil {
		return nil, err
	}
	delays := make(map[string]time.Duration)
	for host, text := range texts {
		var notes HostNotes
		if err := json.Unmarshal([]byte(text), &notes); err != nil {
			return nil, fmt.Errorf("crawler: notes of %s: %w", host, err)
		}
		if notes.Delay > 0 {
			delays[host] = notes.Delay
		}
	}
	return delays, nil
}

// robots returns the robots.txt of an origin, and false if it is not known or too old.
func (f *Frontier) robots(ctx context.Context, origin string) (string, bool, error) {
	text, err := f.rdb.Get(ctx, f.Key("robots:"+origin)).Result()
	if errors.Is(err, redis.Nil) {
		return "", false, nil
	}
	return text, err == nil, err
}

// setRobots keeps the robots.txt of an origin for a day.
func (f *Frontier) setRobots(ctx context.Context, origin, text string) error {
	return f.rdb.Set(ctx, f.Key("robots:"+origin), text, robots.RobotsKept).Err()
}
