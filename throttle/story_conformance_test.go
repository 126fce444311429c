package throttle_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestConformance holds the model, miniredis and a real Redis to the same
// timelines.
func TestConformance(t *testing.T) {
	t.Parallel()
	on := func(client *redis.Client) func(t *testing.T, scopes []throttle.Scope,
		options throttle.Options) throttletest.Subject {
		return func(t *testing.T, scopes []throttle.Scope, options throttle.Options) throttletest.Subject {
			return newScripted(newThrottle(t, client, scopes, &options))
		}
	}
	t.Run("model", func(t *testing.T) {
		t.Parallel()
		throttletest.Run(t, func(_ *testing.T, scopes []throttle.Scope, options throttle.Options) throttletest.Subject {
			return throttletest.NewModel(scopes, options)
		})
	})
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		throttletest.Run(t, on(miniClient(t)))
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		throttletest.Run(t, on(redistest.Shared(t).Client(t)))
	})
}
