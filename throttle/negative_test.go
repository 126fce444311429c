package throttle_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestNegativeLimits: a negative number of units is no limit, in New and in SetLimits,
// but for the one that Unlimited is; as text that one is none either.
func TestNegativeLimits(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := nearly(t, client, globalScope(throttle.PerHour(5)), throttle.Options{})
		for _, units := range []int64{-2, -5, -100} {
			limits := []throttle.Limit{throttle.PerHour(units)}
			var wrong *throttle.LimitError
			if _, err := throttle.New("t", client, globalScope(limits...), nil); !errors.As(err, &wrong) {
				t.Errorf("New with %d: got %v, want a *LimitError", units, err)
			}
			if err := s.SetLimits(dawn, throttle.Global, "", limits, time.Time{}); !errors.As(err, &wrong) {
				t.Errorf("SetLimits to %d: got %v, want a *LimitError", units, err)
			}
		}
		if _, err := throttle.ParseLimit("-1/1h"); err == nil {
			t.Error("-1/1h is a limit")
		}
		if err := s.SetLimits(dawn, throttle.Global, "", []throttle.Limit{throttle.PerHour(throttle.Unlimited)},
			time.Time{}); err != nil {
			t.Error(err)
		}
		comes(t, s, time.Second, throttle.Job{ID: "many", Weight: 1_000_000}, throttle.Granted)
	})
}
