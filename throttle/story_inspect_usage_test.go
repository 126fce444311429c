package throttle_test

import (
	"errors"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestUsageAndCountRefuse: Usage and Count refuse a wrong scope, key or interval with an error that names it.
func TestUsageAndCountRefuse(t *testing.T) {
	t.Parallel()
	scopes := append(tenantAndGlobal(throttle.PerMinute(5), throttle.PerHour(5)),
		throttle.Scope{Name: "free", Limits: []throttle.Limit{throttle.PerDay(throttle.Unlimited)}})
	th := newThrottle(t, miniClient(t), scopes, nil)
	for _, test := range []struct{ scope, key, field string }{
		{"host", "x", "scope"}, {"", "", "scope"}, {"tenant", "", "key"}, {throttle.Global, "x", "key"},
	} {
		_, usageErr := inspect.New(th).Usage(t.Context(), test.scope, test.key)
		_, countErr := inspect.New(th).Count(t.Context(), test.scope, test.key, time.Second, 0)
		for _, err := range []error{usageErr, countErr} {
			var wrong *throttle.ArgumentError
			if !errors.As(err, &wrong) || wrong.Argument != test.field {
				t.Errorf("scope %q, key %q: got %v, want an *ArgumentError for %s", test.scope, test.key, err, test.field)
			}
		}
	}
	for _, test := range []struct {
		scope, key string
		from, to   time.Duration
	}{
		{"tenant", "a", time.Minute + 1, 0}, {throttle.Global, "", 24 * time.Hour, 0},
		{"tenant", "a", time.Second, 2 * time.Second},
		{"tenant", "a", time.Second, -1}, {"tenant", "a", -1, 0}, {"free", "a", time.Second, 0},
	} {
		var wrong *throttle.ArgumentError
		if _, err := inspect.New(th).Count(t.Context(), test.scope, test.key, test.from,
			test.to); !errors.As(err, &wrong) || wrong.Argument != "interval" {
			t.Errorf("Count %q from %s to %s ago: got %v, want an *ArgumentError for interval", test.scope,
				test.from, test.to, err)
		}
	}
}
