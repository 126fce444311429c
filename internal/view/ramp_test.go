package view_test

import (
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestUseText: a ramp stands beside its use with the units in force, and is cut if it has many steps.
func TestUseText(t *testing.T) {
	t.Parallel()
	short := throttle.Ramp("50/day x2 max 20000 from 2026-12-01 @UTC")
	for _, c := range []struct {
		limit throttle.Limit
		units int64
		want  string
	}{
		{throttle.PerMinute(9), 9, "9/1m"},
		{short, 400, short.String() + ", now 400"},
		{short, 0, short.String() + ", not begun"},
		{throttle.Ramp("50/day +50 max 5000 from 2026-12-01 held 2026-12-09 @UTC"), 450,
			"ramp 50 100 150 200 … 5000/day from 2026-12-01 held 2026-12-09 @UTC, now 450"},
	} {
		if got := view.UseText(inspect.LimitUsage{Limit: c.limit, Units: c.units}); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	now := time.Now()
	held := inspect.Usage{Now: now, Limits: []inspect.LimitUsage{{Limit: short.Held(now.AddDate(-9, 0, 0))}}}
	if why, until := view.Why(held); !strings.HasPrefix(why, "closed by ramp 50 100 ") || !until.IsZero() {
		t.Errorf("got %q until %s", why, until)
	}
}
