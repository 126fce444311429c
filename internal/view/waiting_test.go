package view_test

import (
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestClosedByALimitThatEnds: a limit of 0 that ends by itself closes a scope key until then.
func TestClosedByALimitThatEnds(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	u := inspect.Usage{Now: now, Served: 1, SetFor: "key", Limits: []inspect.LimitUsage{{Limit: throttle.PerHour(0)}}}
	if why, until := view.Why(u); why != "closed by 0/1h, set for the key" || !until.IsZero() {
		t.Errorf("without an end: %q until %s", why, until)
	}
	u.Ends = now.Add(time.Hour)
	if why, until := view.Why(u); why != "closed by 0/1h, set for the key until 2026-11-22 13:00:00 UTC" ||
		!until.Equal(u.Ends) {
		t.Errorf("with an end: %q until %s", why, until)
	}
}
