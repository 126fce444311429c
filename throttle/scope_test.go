package throttle_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestF53_Scopes: duplicates and too many are refused when the throttle is made.
func TestF53_Scopes(t *testing.T) {
	t.Parallel()
	client := miniClient(t)
	perWindow := func(n int) []throttle.Limit {
		limits := make([]throttle.Limit, n)
		for i := range limits {
			limits[i] = throttle.Per(1000, time.Duration(i+1)*time.Second)
		}
		return limits
	}
	many := make([]throttle.Scope, 1000)
	for i := range many {
		many[i] = throttle.Scope{Name: fmt.Sprintf("s%d", i), Limits: perWindow(1)}
	}
	tests := map[string]struct {
		scopes []throttle.Scope
		field  string
	}{
		"no scope":      {nil, "scopes"},
		"a scope twice": {append(globalScope(), globalScope(throttle.PerHour(1))...), "Scope.Name"},
		"a window twice": {globalScope(throttle.PerHour(1), throttle.PerMinute(1), throttle.Per(2, time.Hour)),
			"Scope.Limits"},
		"65 limits": {globalScope(perWindow(65)...), "Scope.Limits"},
		"65 in two scopes": {append(globalScope(perWindow(32)...),
			throttle.Scope{Name: "t", Limits: perWindow(33)}), "Scope.Limits"},
		"1,000 scopes": {many, "Scope.Limits"},
	}
	for name, test := range tests {
		if _, err := throttle.New("n", client, test.scopes, nil); !isOptionError(err, test.field) {
			t.Errorf("%s: got %v, want an *OptionError for %s", name, err, test.field)
		}
	}
}

// TestF53_MostLimits: 64 limits in several scopes are decided in one call, on
// bounded keys.
func TestF53_MostLimits(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		var scopes []throttle.Scope
		keys := make(map[string]string)
		for s := range 4 {
			scope := throttle.Scope{Name: fmt.Sprintf("scope%d", s)}
			for i := range 16 {
				scope.Limits = append(scope.Limits, throttle.Per(int64(1000-s*16-i), time.Duration(i+1)*time.Minute))
			}
			scopes, keys[scope.Name] = append(scopes, scope), strings.Repeat("long:", 100)
		}
		th := newThrottle(t, client, scopes, nil)
		if got := reserve(t, th, throttle.Job{ID: "1", Weight: 937, Keys: keys}); got.Outcome != throttle.Granted {
			t.Errorf("937 of at least 937: got %+v, want granted", got)
		}
		got := reserve(t, th, throttle.Job{ID: "2", Weight: 64, Keys: keys})
		if got.Outcome != throttle.Booked || got.Hold == nil || got.Hold.Limit.Units >= 1000 {
			t.Errorf("64 more: got %+v, want booked because of a limit below 1,000", got)
		}
		// The booking, its timer, the control key and the last answer.
		if n := len(keyNames(t, client, th)); n != 4+4 {
			t.Errorf("%d keys, want %d", n, 4+4)
		}
	})
}
