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

// TestNobodyPulls: jobs at which no worker has looked for long wait for a worker, and not for room.
func TestNobodyPulls(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	full := inspect.Usage{Now: now, Served: 1, Limits: []inspect.LimitUsage{
		{Limit: throttle.PerHour(1), Units: 1, Used: 1, Free: now.Add(time.Hour)}}}
	room := "1/1h, 1 used, 0 booked"
	for looked, want := range map[time.Duration]string{
		time.Hour: room, 0: room, -30 * time.Second: room, -10 * time.Minute: "no worker has looked at the line for 10m",
	} {
		lanes := []inspect.Lane{{Flow: "acme", Jobs: 1, Scope: "tenant", Key: "acme", Looked: now.Add(looked)}}
		row := view.Rows(lanes, view.ByFlow, view.Filter{}, 1).Rows[0]
		if why, until := row.Waits(full, now); why != want || until.IsZero() != (want != room) {
			t.Errorf("looked at %s from now: %q until %s, want %q", looked, why, until, want)
		}
	}
	if why, _ := (view.Row{}).Waits(full, now); why != room {
		t.Errorf("at an unknown time: %q", why)
	}
}

// TestWhatIsUnlimitedHoldsNothingBack: a limit that is lifted and hours that are open are no reason to wait.
func TestWhatIsUnlimitedHoldsNothingBack(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	open := inspect.LimitUsage{Limit: throttle.OpenHours("Mon-Sun 09:00-17:00 @UTC"), Units: throttle.Unlimited, Free: now,
		Anew: now.Add(time.Hour)}
	lifted := inspect.LimitUsage{Limit: throttle.PerHour(throttle.Unlimited), Units: throttle.Unlimited, Free: now}
	free := inspect.LimitUsage{Limit: throttle.PerHour(2), Units: 2, Used: 1, Free: now}
	u := inspect.Usage{Now: now, Served: 1, Limits: []inspect.LimitUsage{open, lifted}}
	if why, until := view.Why(u); why != "" || !until.IsZero() {
		t.Errorf("%q until %s, want no reason", why, until)
	}
	u.Limits = append(u.Limits, free)
	if why, _ := view.Why(u); why != "2/1h, 1 used, 0 booked" {
		t.Errorf("%q, want the limit that counts", why)
	}
}

// TestRowsCountOtherScopeKeys: a row of jobs that wait for several scope keys says for how many.
func TestRowsCountOtherScopeKeys(t *testing.T) {
	t.Parallel()
	lanes := []inspect.Lane{{Name: "1", Flow: "acme", Scope: "domain", Key: "a", Jobs: 1},
		{Name: "2", Flow: "acme", Scope: "domain", Key: "b", Jobs: 5}, {Name: "3", Flow: "acme", Scope: "domain", Key: "b"},
		{Name: "4", Flow: "other", Scope: "domain", Key: "b", Jobs: 2}}
	for by, others := range map[view.By][]int{view.ByFlow: {1, 0}, view.ByKey: {0, 0}, view.ByLane: {0, 0, 0, 0}} {
		for i, row := range view.Rows(lanes, by, view.Filter{}, 9).Rows {
			if row.Others != others[i] {
				t.Errorf("by %s: row %d waits for %d others, want %d", by, i, row.Others, others[i])
			}
		}
	}
}
