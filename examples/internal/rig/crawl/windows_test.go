package crawl

import (
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/check"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// at returns a request that is counted under keys.
func at(instant, units int64, of Keys, rules bool) Event {
	return Event{check.Event{At: instant, Units: units, Of: of}, rules}
}

// F68: the requests to two names on one address count together under the address.
func TestCheckLimitsCountsEachKeyByItself(t *testing.T) {
	t.Parallel()
	birch, cedar := Keys{Host: "birch", IP: "127.0.0.4"}, Keys{Host: "cedar", IP: "127.0.0.4"}
	events := []Event{at(900, 2, cedar, false), at(0, 2, birch, false), at(500, 1, birch, false)}
	uses := CheckLimits(events, []throttle.Scope{
		{Name: ScopeIP, Limits: []throttle.Limit{throttle.Per(4, time.Millisecond)}},
		{Name: ScopeHost, Limits: []throttle.Limit{throttle.Per(3, time.Millisecond), throttle.Per(1, 400*time.Microsecond)}},
	}, 0)
	if len(uses) != 3 {
		t.Fatalf("%d limits were checked, want 3", len(uses))
	}
	for i, want := range []check.Use{
		{Scope: ScopeIP, Key: "127.0.0.4", Worst: 5, Over: 1, Window: time.Millisecond},
		{Scope: ScopeHost, Key: "birch", Worst: 3, Over: 0, Window: time.Millisecond},
		{Scope: ScopeHost, Key: "birch", Worst: 2, Over: 2, Window: 400 * time.Microsecond},
	} {
		got := uses[i]
		if got.Scope != want.Scope || got.Key != want.Key || got.Worst != want.Worst || got.Over != want.Over ||
			got.Window != want.Window {
			t.Errorf("limit %d: got %+v, want %+v", i, got, want)
		}
	}
	if over := check.WindowsOver(uses); over != 3 {
		t.Errorf("%d windows over, want 3", over)
	}
}

// A Crawl-delay applies from the request for the robots.txt that contains it.
func TestCheckDelays(t *testing.T) {
	t.Parallel()
	slow, other := Keys{Host: "slow"}, Keys{Host: "other"}
	delays := map[string]time.Duration{"slow": time.Millisecond}
	events := []Event{
		at(0, 1, slow, true), at(100, 1, slow, true),
		at(200, 1, slow, false), at(300, 1, other, false), at(400, 1, other, false), at(1200, 1, slow, false),
	}
	if uses := checkDelays(events, delays, 0, 0); len(uses) != 1 || uses[0].Over != 0 || uses[0].Worst != 1 ||
		uses[0].Key != "slow" {
		t.Errorf("got %+v", uses)
	}
	events[5].At = 1199
	if uses := checkDelays(events, delays, 0, 0); uses[0].Over != 1 {
		t.Errorf("a microsecond too early: got %+v", uses)
	}
	if uses := checkDelays(events, delays, time.Microsecond, 2*time.Microsecond); uses[0].Over != 0 {
		t.Errorf("two shorter, one for the margin: got %+v", uses)
	}
	events[5].At = 1200
	if uses := checkDelays(events, delays, time.Microsecond, 0); uses[0].Over != 1 {
		t.Errorf("a microsecond too early for the margin: got %+v", uses)
	}
}
