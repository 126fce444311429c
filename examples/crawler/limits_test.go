package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

func TestDefaultLimitsHold(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"-seeds", "file.csv"}} {
		o, err := parseOptions(rig.New("crawler", io.Discard, io.Discard), args)
		if err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		if len(rig.LimitsOf(o.requests, throttle.Global)) == 0 || len(rig.LimitsOf(o.requests, scopeHost)) == 0 {
			t.Errorf("%q: requests %v", args, o.requests)
		}
		for _, scope := range o.kilobytes {
			if len(scope.Limits) == 0 {
				t.Errorf("%q: no limit in kilobytes for %s", args, scope.Name)
			}
		}
	}
}

func TestHoldsRefusesWhatNoPageFits(t *testing.T) {
	t.Parallel()
	scopes, err := rig.ParseLimits("global=unlimited/1s;host=100/1s", kilobyteScopes...)
	if err != nil {
		t.Fatal(err)
	}
	if err := holds(scopes, 100); err != nil {
		t.Error(err)
	}
	if err := holds(scopes, 101); err == nil ||
		!strings.Contains(err.Error(), "the host limit 100/1s is less than the 101 KB") {
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
