package main

import (
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

func TestDefaultLimitsHold(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"-seeds", "file.csv"}} {
		o, err := parseOptions(args, new(strings.Builder))
		if err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		if len(limitsOf(o.requests, throttle.Global)) == 0 || len(limitsOf(o.requests, scopeHost)) == 0 {
			t.Errorf("%q: requests %v", args, o.requests)
		}
		for _, scope := range o.kilobytes {
			if len(scope.Limits) == 0 {
				t.Errorf("%q: no limit in kilobytes for %s", args, scope.Name)
			}
		}
	}
}

func TestParseLimitsRefuses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ text, want string }{
		{"host", "is not scope=units/window"},
		{"tenant=1/1s", `no scope "tenant"; there are global, host`},
		{"host=1/1s;host=2/2s", "scope host is there twice"},
		{"host=fast", "scope host: throttle: limit"},
	} {
		if _, err := parseLimits(row.text, requestScopes()); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%q: got %v, want %q", row.text, err, row.want)
		}
	}
}

func TestHoldsRefusesWhatNoPageFits(t *testing.T) {
	t.Parallel()
	scopes, err := parseLimits("global=unlimited/1s;host=100/1s", kilobyteScopes())
	if err != nil {
		t.Fatal(err)
	}
	if err := holds(scopes, 100); err != nil {
		t.Error(err)
	}
	if err := holds(scopes, 101); err == nil || !strings.Contains(err.Error(), "the host limit 100/1s is less than the 101 KB") {
		t.Errorf("got %v", err)
	}
}

func TestWithDelay(t *testing.T) {
	t.Parallel()
	limits := withDelay([]throttle.Limit{throttle.PerSecond(5), throttle.PerMinute(60)}, time.Second)
	if len(limits) != 2 || limits[0] != throttle.PerSecond(1) || limits[1] != throttle.PerMinute(60) {
		t.Errorf("got %v: one limit for a window, the host's own delay", limits)
	}
}
