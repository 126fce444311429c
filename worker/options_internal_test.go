package worker

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestLoggerOfTheThrottle: a shaper without a logger of its own writes to the throttle's.
func TestLoggerOfTheThrottle(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = client.Close() })
	ofThrottle, first := observer.New(zapcore.WarnLevel)
	own, second := observer.New(zapcore.WarnLevel)
	th, err := throttle.New("t", client,
		[]throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(1, time.Second)}}},
		&throttle.Options{Logger: zap.New(ofThrottle)})
	if err != nil {
		t.Fatal(err)
	}
	job := func(context.Context, *asynq.Task) (throttle.Job, error) { return throttle.Job{}, nil }
	for _, opts := range []*Options{nil, {}, {Logger: zap.New(own)}} {
		s, err := New(th, client, job, opts)
		if err != nil {
			t.Fatal(err)
		}
		s.complain()
	}
	if first.Len() != 2 || second.Len() != 1 {
		t.Errorf("the throttle's logger had %d lines and the own one %d, want 2 and 1", first.Len(), second.Len())
	}
}
