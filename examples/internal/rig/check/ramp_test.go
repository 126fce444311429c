package check

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/wallclock"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

func TestStepsAgreeWithTheClock(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 8))
	for _, zone := range zones {
		for _, text := range []string{
			"5 9 20/day from 2025-03-28", "5/day+3h +2 max 200 every 4d from 2024-10-20",
			"5/week+6d x1.5 max 900 from 2024-05-01",
			"5/month+30d x2 max 900 every 2mo from 2024-01-31", "5/day x1.1 max 70 from 2025-03-01 held 2025-03-30",
		} {
			ramp := throttle.Ramp(text + " @" + zone)
			known := steps(ramp)
			for _, at := range instants(random, zone) {
				got, want := stepAt(ramp, at), wallclock.UnitsAt(ramp.Ramp, at)
				if got.Units != want || ramp.UnitsAt(at) != want || !slices.Contains(known, got) {
					t.Errorf("%s at %s: %s, want %d units", ramp, at, got, want)
				}
			}
		}
	}
}

// onDays returns one event for each day, from 1 December on, at noon in Paris.
func onDays(t *testing.T, units ...int64) []Event {
	t.Helper()
	var events []Event
	for i, n := range units {
		events = append(events, Event{At: paris(t, fmt.Sprintf("2026-12-%02d 12:00:00", i+1)), Units: n, Of: keys{}})
	}
	return events
}

// A ramp is checked as quotas: each step on the days that it lasts, and a held step from the day on which it was held.
func TestCheckRamp(t *testing.T) {
	t.Parallel()
	ramp := throttle.Ramp("5 10 20/day from 2026-12-02 @Europe/Paris")
	noon := time.UnixMicro(paris(t, "2026-12-03 12:00:00"))
	held := Change{At: noon, Scope: throttle.Global, Limits: []throttle.Limit{ramp.Held(noon)}}
	for _, row := range []struct {
		name    string
		events  []Event
		changes []Change
		worst   []int64 // the fullest day of each step; the first step has no units
		over    []int
	}{
		{"within each step", onDays(t, 0, 5, 10, 20, 20), nil, []int64{0, 5, 10, 20}, []int{0, 0, 0, 0}},
		{"before it begins", onDays(t, 1), nil, []int64{1, 0, 0, 0}, []int{1, 0, 0, 0}},
		{"over each step", onDays(t, 0, 6, 11, 21, 22), nil, []int64{0, 6, 11, 22}, []int{0, 1, 1, 2}},
		{"held", onDays(t, 0, 5, 10, 10, 10), []Change{held}, []int64{0, 5, 10, 0}, []int{0, 0, 0, 0}},
		{"over what is held", onDays(t, 0, 5, 10, 20, 10), []Change{held}, []int64{0, 5, 20, 0}, []int{0, 0, 1, 0}},
		{"over it with what came before", append(onDays(t, 0, 0, 1),
			Event{At: noon.Add(-time.Hour).UnixMicro(), Units: 10, Of: keys{}}), []Change{held},
			[]int64{0, 0, 11, 0}, []int{0, 0, 1, 0}},
	} {
		events := slices.DeleteFunc(row.events, func(e Event) bool { return e.Units == 0 })
		law := Law{Scopes: []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{ramp}}}, Changes: row.changes}
		var worst []int64
		var over []int
		for _, use := range Limits(events, law, 0) {
			worst, over = append(worst, use.Worst), append(over, use.Over)
		}
		if !slices.Equal(worst, row.worst) || !slices.Equal(over, row.over) {
			t.Errorf("%s: %d in the fullest days, %d over; want %d, %d", row.name, worst, over, row.worst, row.over)
		}
	}
}

// The last of some units starts, at best, in the first period by which the steps so far have room for all units.
func TestOptimumOfRamp(t *testing.T) {
	t.Parallel()
	ramp := throttle.Scope{Name: throttle.Global,
		Limits: []throttle.Limit{throttle.Ramp("5 10 20/day from 2026-12-02 @Europe/Paris")}}
	for units, want := range map[int64]time.Duration{
		1: 12 * time.Hour, 5: 12 * time.Hour, 6: 36 * time.Hour, 15: 36 * time.Hour, 35: 60 * time.Hour, 36: 84 * time.Hour,
	} {
		if got := Optimum(onDays(t, units), Law{Scopes: []throttle.Scope{ramp}}); got != want {
			t.Errorf("%d units from the day before the ramp begins: got %s, want %s", units, got, want)
		}
	}
}
