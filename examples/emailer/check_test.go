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
		{"same instant", []event{{at: 7, units: 2}, {at: 7, units: 2}}, 3, 4, 1},
		{"same instant ends one window", []event{{at: 7, units: 4}, {at: 7, units: 4}}, 3, 8, 1},
		{"sliding", []event{{at: 0, units: 1}, {at: 600, units: 1}, {at: 1000, units: 1}, {at: 1599, units: 1}, {at: 1600, units: 1}}, 2, 3, 2},
		{"unlimited", []event{{at: 5, units: 4}}, throttle.Unlimited, 4, 0},
		{"nothing allowed", []event{{at: 5, units: 1}}, 0, 1, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			worst, over := fullestWindow(row.events, row.limit, window, always)
			if worst != row.worst || over != row.over {
				t.Errorf("got worst %d, %d over; want %d, %d", worst, over, row.worst, row.over)
			}
		})
	}
}

func always(int64) bool { return true }

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
		if worst, n := fullestWindow(events, limit, window, always); worst != want || n != len(over) {
			t.Fatalf("%v, window %d, limit %d: got worst %d, %d over; want %d, %d", events, window, limit, worst, n, want, len(over))
		}
	}
}

func TestCheckLimitsCountsEachKeyByItself(t *testing.T) {
	t.Parallel()
	acme, globex := &mail{tenant: "acme", domain: "hill.example"}, &mail{tenant: "globex", domain: "hill.example"}
	events := []event{{at: 900, units: 2, mail: globex}, {at: 0, units: 2, mail: acme}, {at: 500, units: 1, mail: acme}}
	scopes := []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(4, time.Millisecond)}},
		{Name: scopeTenant, Limits: []throttle.Limit{throttle.Per(3, time.Millisecond), throttle.Per(1, 400*time.Microsecond)}},
	}
	uses := checkLimits(events, law{scopes: scopes}, 0)
	if len(uses) != 3 {
		t.Fatalf("%d limits were checked, want 3", len(uses))
	}
	for i, want := range []use{
		{scope: throttle.Global, worst: 5, over: 1, window: time.Millisecond},
		{scope: scopeTenant, key: "acme", worst: 3, over: 0, window: time.Millisecond},
		{scope: scopeTenant, key: "acme", worst: 2, over: 2, window: 400 * time.Microsecond},
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
	m := &mail{}
	events := []event{{at: 0, units: 1, mail: m}, {at: 900, units: 1, mail: m}}
	scopes := []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(1, time.Millisecond)}}}
	if over := windowsOver(checkLimits(events, law{scopes: scopes}, 99*time.Microsecond)); over != 1 {
		t.Errorf("shorter by 99 us: %d over, want 1", over)
	}
	if over := windowsOver(checkLimits(events, law{scopes: scopes}, 100*time.Microsecond)); over != 0 {
		t.Errorf("shorter by 100 us: %d over, want 0", over)
	}
	if uses := checkLimits(events, law{scopes: scopes}, time.Millisecond); uses[0].window != 0 || uses[0].over != 0 {
		t.Errorf("shorter by all of it: got %+v, want it unchecked", uses[0])
	}
}

// Each window is held against the limits in force at its end.
func TestCheckLimitsThatGrow(t *testing.T) {
	t.Parallel()
	acme, globex := &mail{tenant: "acme"}, &mail{tenant: "globex"}
	configured, first, second := throttle.Per(10, time.Millisecond), throttle.Per(2, time.Millisecond), throttle.Per(4, time.Millisecond)
	l := law{
		scopes: []throttle.Scope{{Name: scopeTenant, Limits: []throttle.Limit{configured}}},
		changes: []change{
			{at: time.UnixMicro(0), scope: scopeTenant, key: "acme", limits: []throttle.Limit{first}},
			{at: time.UnixMicro(5000), scope: scopeTenant, key: "acme", limits: []throttle.Limit{second}},
			{at: time.UnixMicro(9000), scope: scopeTenant, key: "acme"},
		},
	}
	events := []event{
		{at: 100, units: 2, mail: acme}, {at: 100, units: 10, mail: globex},
		{at: 4500, units: 2, mail: acme}, {at: 5000, units: 2, mail: acme}, // under the second limit
		{at: 8500, units: 4, mail: acme}, {at: 9000, units: 6, mail: acme}, // under the configured one
	}
	uses := checkLimits(events, l, 0)
	want := []use{
		{scope: scopeTenant, limit: configured, window: time.Millisecond, key: "acme", worst: 10},
		{scope: scopeTenant, limit: first, window: time.Millisecond, key: "acme", worst: 2},
		{scope: scopeTenant, limit: second, window: time.Millisecond, key: "acme", worst: 4},
	}
	if !slices.Equal(uses, want) {
		t.Errorf("got %+v, want %+v", uses, want)
	}
	for _, row := range []struct {
		at   int64
		over int // by one unit then
	}{{4999, 1}, {5000, 1}, {8999, 1}, {9000, 1}, {8600, 1}, {6500, 0}, {20000, 0}} {
		if over := windowsOver(checkLimits(append(slices.Clone(events), event{at: row.at, units: 1, mail: acme}), l, 0)); over < row.over || row.over == 0 && over > 0 {
			t.Errorf("one more unit at %d: %d windows over", row.at, over)
		}
	}
	if got := optimum(events, l); got != 0 {
		t.Errorf("the optimum is %s, want 0 without the tenant whose limit has changed", got)
	}
}

func TestOptimum(t *testing.T) {
	t.Parallel()
	acme, globex := &mail{tenant: "acme"}, &mail{tenant: "globex"}
	events := []event{{units: 60, mail: acme}, {units: 40, mail: globex}}
	for _, row := range []struct {
		name   string
		scopes []throttle.Scope
		want   time.Duration
	}{
		{"no limits", []throttle.Scope{{Name: throttle.Global}}, 0},
		{"all in one window", []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerMinute(500)}}}, 0},
		{"global binds", []throttle.Scope{
			{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerSecond(10)}},
			{Name: scopeTenant, Limits: []throttle.Limit{throttle.PerSecond(10)}},
		}, 9 * time.Second},
		{"the largest tenant binds", []throttle.Scope{
			{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerSecond(10)}},
			{Name: scopeTenant, Limits: []throttle.Limit{throttle.PerSecond(5)}},
		}, 11 * time.Second},
		{"the longer window binds", []throttle.Scope{
			{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerSecond(10), throttle.Per(20, 10*time.Second)}},
		}, 40 * time.Second},
		{"unlimited and blocked do not count", []throttle.Scope{
			{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerSecond(throttle.Unlimited), throttle.PerMinute(0)}},
		}, 0},
	} {
		if got := optimum(events, law{scopes: row.scopes}); got != row.want {
			t.Errorf("%s: got %s, want %s", row.name, got, row.want)
		}
	}
}
