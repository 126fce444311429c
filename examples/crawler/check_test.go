package main

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

func TestFullestWindow(t *testing.T) {
	t.Parallel()
	const window = 1000
	for _, row := range []struct {
		name   string
		events []event
		limit  int64
		worst  int64
		over   int
	}{
		{"nothing", nil, 1, 0, 0},
		{"one event", []event{{at: 5, units: 3}}, 3, 3, 0},
		{"one event over", []event{{at: 5, units: 4}}, 3, 4, 1},
		{"exactly one window apart is out", []event{{at: 0, units: 3}, {at: window, units: 3}}, 3, 3, 0},
		{"one microsecond less is in", []event{{at: 1, units: 3}, {at: window, units: 3}}, 3, 6, 1},
		{"same instant ends one window", []event{{at: 7, units: 4}, {at: 7, units: 4}}, 3, 8, 1},
		{"sliding", []event{{at: 0, units: 1}, {at: 600, units: 1}, {at: 1000, units: 1}, {at: 1599, units: 1}, {at: 1600, units: 1}}, 2, 3, 2},
		{"unlimited", []event{{at: 5, units: 4}}, throttle.Unlimited, 4, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			worst, over := fullestWindow(row.events, row.limit, window)
			if worst != row.worst || over != row.over {
				t.Errorf("got worst %d, %d over; want %d, %d", worst, over, row.worst, row.over)
			}
		})
	}
}

// The same by adding every window up from scratch.
func TestFullestWindowAgainstAddingUp(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var events []event
		for range random.IntN(40) {
			events = append(events, event{at: random.Int64N(300), units: 1 + random.Int64N(5)})
		}
		slices.SortFunc(events, func(a, b event) int { return int(a.at - b.at) })
		window, limit := 1+random.Int64N(100), random.Int64N(20)
		var want int64
		over := make(map[int64]bool)
		for _, end := range events {
			var sum int64
			for _, e := range events {
				if end.at-window < e.at && e.at <= end.at {
					sum += e.units
				}
			}
			want = max(want, sum)
			if sum > limit {
				over[end.at] = true
			}
		}
		if worst, n := fullestWindow(events, limit, window); worst != want || n != len(over) {
			t.Fatalf("%v, window %d, limit %d: got worst %d, %d over; want %d, %d", events, window, limit, worst, n, want, len(over))
		}
	}
}

// F68: what two names on one address do counts together under the address.
func TestCheckLimitsCountsEachKeyByItself(t *testing.T) {
	t.Parallel()
	birch, cedar := keys{host: "birch", ip: "127.0.0.4"}, keys{host: "cedar", ip: "127.0.0.4"}
	events := []event{{at: 900, units: 2, keys: cedar}, {at: 0, units: 2, keys: birch}, {at: 500, units: 1, keys: birch}}
	uses := checkLimits(events, []throttle.Scope{
		{Name: scopeIP, Limits: []throttle.Limit{throttle.Per(4, time.Millisecond)}},
		{Name: scopeHost, Limits: []throttle.Limit{throttle.Per(3, time.Millisecond), throttle.Per(1, 400*time.Microsecond)}},
	}, 0)
	if len(uses) != 3 {
		t.Fatalf("%d limits were checked, want 3", len(uses))
	}
	for i, want := range []use{
		{scope: scopeIP, key: "127.0.0.4", worst: 5, over: 1, window: time.Millisecond},
		{scope: scopeHost, key: "birch", worst: 3, over: 0, window: time.Millisecond},
		{scope: scopeHost, key: "birch", worst: 2, over: 2, window: 400 * time.Microsecond},
	} {
		got := uses[i]
		if got.scope != want.scope || got.key != want.key || got.worst != want.worst || got.over != want.over || got.window != want.window {
			t.Errorf("limit %d: got %+v, want %+v", i, got, want)
		}
	}
	if over := windowsOver(uses); over != 3 {
		t.Errorf("%d windows over, want 3", over)
	}
}

func TestCheckLimitsShortensWindows(t *testing.T) {
	t.Parallel()
	events := []event{{at: 0, units: 1}, {at: 900, units: 1}}
	scopes := []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(1, time.Millisecond)}}}
	if over := windowsOver(checkLimits(events, scopes, 99*time.Microsecond)); over != 1 {
		t.Errorf("shorter by 99 us: %d over, want 1", over)
	}
	if over := windowsOver(checkLimits(events, scopes, 100*time.Microsecond)); over != 0 {
		t.Errorf("shorter by 100 us: %d over, want 0", over)
	}
	if uses := checkLimits(events, scopes, time.Millisecond); uses[0].window != 0 || uses[0].over != 0 {
		t.Errorf("shorter by all of it: got %+v, want it unchecked", uses[0])
	}
}

// A Crawl-delay holds from the robots.txt on that has it.
func TestCheckDelays(t *testing.T) {
	t.Parallel()
	slow, other := keys{host: "slow"}, keys{host: "other"}
	delays := map[string]time.Duration{"slow": time.Millisecond}
	events := []event{
		{at: 0, units: 1, keys: slow, rules: true}, {at: 100, units: 1, keys: slow, rules: true},
		{at: 200, units: 1, keys: slow}, {at: 300, units: 1, keys: other}, {at: 400, units: 1, keys: other}, {at: 1200, units: 1, keys: slow},
	}
	if uses := checkDelays(events, delays, 0); len(uses) != 1 || uses[0].over != 0 || uses[0].worst != 1 || uses[0].key != "slow" {
		t.Errorf("got %+v", uses)
	}
	events[5].at = 1199
	if uses := checkDelays(events, delays, 0); uses[0].over != 1 {
		t.Errorf("a microsecond too early: got %+v", uses)
	}
}
