package throttle_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestShadowIsLogged: the log says what a limit in shadow would have done: the scope, the limit,
// and for how long. A job with room is not logged.
func TestShadowIsLogged(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		core, logs := observer.New(zapcore.DebugLevel)
		scopes := tenantAndGlobal(throttle.PerHour(1), throttle.PerHour(100))
		for i := range scopes {
			scopes[i].Mode = throttle.Shadow
		}
		th := newThrottle(t, client, scopes, &throttle.Options{Logger: zap.New(core)})
		reserve(t, th, throttle.Job{ID: "a", Weight: 1, Keys: of("acme")})
		if logs.Len() != 0 {
			t.Fatalf("logged for a job with room: %v", logs.All())
		}
		reserve(t, th, throttle.Job{ID: "b", Weight: 1, Keys: of("acme")})
		lines := logs.All()
		if len(lines) != 1 || lines[0].Level != zapcore.InfoLevel ||
			lines[0].Message != "throttle: a limit in shadow would have delayed a job" {
			t.Fatalf("got %v, want one line", lines)
		}
		fields := lines[0].ContextMap()
		if fields["throttle"] != th.Name() || fields["scope"] != "tenant" || fields["limit"] != "1/1h" ||
			fields["not_logged"] != int64(0) {
			t.Errorf("got %v, want tenant's limit 1/1h of %s", fields, th.Name())
		}
		if delay, _ := fields["delay"].(time.Duration); delay <= 59*time.Minute || delay > time.Hour {
			t.Errorf("got a delay of %v, want what is left of the hour", fields["delay"])
		}
	})
}
