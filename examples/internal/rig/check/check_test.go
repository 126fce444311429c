package check

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
		events []Event
		limit  int64
		worst  int64
		over   int
	}{
		{"nothing", nil, 1, 0, 0},
		{"one event", []Event{{At: 5, Units: 3}}, 3, 3, 0},
		{"one event over", []Event{{At: 5, Units: 4}}, 3, 4, 1},
		{"exactly one window apart is out", []Event{{At: 0, Units: 3}, {At: window, Units: 3}}, 3, 3, 0},
		{"one microsecond less is in", []Event{{At: 1, Units: 3}, {At: window, Units: 3}}, 3, 6, 1},
		{"same instant", []Event{{At: 7, Units: 2}, {At: 7, Units: 2}}, 3, 4, 1},
		{"same instant ends one window", []Event{{At: 7, Units: 4}, {At: 7, Units: 4}}, 3, 8, 1},
		{"sliding", []Event{{At: 0, Units: 1}, {At: 600, Units: 1}, {At: 1000, Units: 1}, {At: 1599, Units: 1},
			{At: 1600, Units: 1}}, 2, 3, 2},
		{"unlimited", []Event{{At: 5, Units: 4}}, throttle.Unlimited, 4, 0},
		{"nothing allowed", []Event{{At: 5, Units: 1}}, 0, 1, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			worst, over := FullestWindow(row.events, row.limit, window, always)
			if worst != row.worst || over != row.over {
				t.Errorf("got worst %d, %d over; want %d, %d", worst, over, row.worst, row.over)
			}
		})
	}
}

func always(int64) bool { return true }

// keys are what an event is counted under, by scope.
type keys map[string]string

func (k keys) Key(scope string) string { return k[scope] }

// The same by adding every window up from scratch.
func TestFullestWindowAgainstAddingUp(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var events []Event
		for range random.IntN(40) {
			events = append(events, Event{At: random.Int64N(300), Units: 1 + random.Int64N(5)})
		}
		slices.SortFunc(events, func(a, b Event) int { return int(a.At - b.At) })
		window, limit := 1+random.Int64N(100), random.Int64N(20)
		var want int64
		over := make(map[int64]bool)
		for _, end := range events {
			var sum int64
			for _, e := range events {
				if end.At-window < e.At && e.At <= end.At {
					sum += e.Units
				}
			}
			want = max(want, sum)
			if sum > limit {
				over[end.At] = true
			}
		}
		if worst, n := FullestWindow(events, limit, window, always); worst != want || n != len(over) {
			t.Fatalf("%v, window %d, limit %d: got worst %d, %d over; want %d, %d", events, window, limit, worst, n,
				want, len(over))
		}
	}
}

func TestCheckLimitsCountsEachKeyByItself(t *testing.T) {
	t.Parallel()
	acme, globex := keys{"tenant": "acme", "domain": "hill.example"}, keys{"tenant": "globex", "domain": "hill.example"}
	events := []Event{{At: 900, Units: 2, Of: globex}, {At: 0, Units: 2, Of: acme}, {At: 500, Units: 1, Of: acme}}
	scopes := []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(4, time.Millisecond)}},
		{Name: "tenant", Limits: []throttle.Limit{throttle.Per(3, time.Millisecond), throttle.Per(1, 400*time.Microsecond)}},
	}
	uses := Limits(events, Law{Scopes: scopes}, 0)
	if len(uses) != 3 {
		t.Fatalf("%d limits were checked, want 3", len(uses))
	}
	for i, want := range []Use{
		{Scope: throttle.Global, Worst: 5, Over: 1, Window: time.Millisecond},
		{Scope: "tenant", Key: "acme", Worst: 3, Over: 0, Window: time.Millisecond},
		{Scope: "tenant", Key: "acme", Worst: 2, Over: 2, Window: 400 * time.Microsecond},
	} {
		got := uses[i]
		if got.Scope != want.Scope || got.Key != want.Key || got.Worst != want.Worst || got.Over != want.Over ||
			got.Window != want.Window {
			t.Errorf("limit %d: got %+v, want %+v", i, got, want)
		}
	}
	if over := WindowsOver(uses); over != 3 {
		t.Errorf("%d windows over, want 3", over)
	}
}

func TestCheckLimitsShortensWindows(t *testing.T) {
	t.Parallel()
	m := keys{}
	events := []Event{{At: 0, Units: 1, Of: m}, {At: 900, Units: 1, Of: m}}
	scopes := []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(1, time.Millisecond)}}}
	if over := WindowsOver(Limits(events, Law{Scopes: scopes}, 99*time.Microsecond)); over != 1 {
		t.Errorf("shorter by 99 us: %d over, want 1", over)
	}
	if over := WindowsOver(Limits(events, Law{Scopes: scopes}, 100*time.Microsecond)); over != 0 {
		t.Errorf("shorter by 100 us: %d over, want 0", over)
	}
	if uses := Limits(events, Law{Scopes: scopes}, time.Millisecond); uses[0].Window != 0 || uses[0].Over != 0 {
		t.Errorf("shorter by all of it: got %+v, want it unchecked", uses[0])
	}
}

// Each window is held against the limits in force at its end.
func TestCheckLimitsThatGrow(t *testing.T) {
	t.Parallel()
	acme, globex := keys{"tenant": "acme"}, keys{"tenant": "globex"}
	configured, first, second := throttle.Per(10, time.Millisecond), throttle.Per(2, time.Millisecond),
		throttle.Per(4, time.Millisecond)
	l := Law{
		Scopes: []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{configured}}},
		Changes: []Change{
			{At: time.UnixMicro(0), Scope: "tenant", Key: "acme", Limits: []throttle.Limit{first}},
			{At: time.UnixMicro(5000), Scope: "tenant", Key: "acme", Limits: []throttle.Limit{second}},
			{At: time.UnixMicro(9000), Scope: "tenant", Key: "acme"},
		},
	}
	events := []Event{
		{At: 100, Units: 2, Of: acme}, {At: 100, Units: 10, Of: globex},
		{At: 4500, Units: 2, Of: acme}, {At: 5000, Units: 2, Of: acme}, // the second limit applies
		{At: 8500, Units: 4, Of: acme}, {At: 9000, Units: 6, Of: acme}, // the configured limit applies
	}
	uses := Limits(events, l, 0)
	want := []Use{
		{Scope: "tenant", Limit: configured, Window: time.Millisecond, Key: "acme", Worst: 10},
		{Scope: "tenant", Limit: first, Window: time.Millisecond, Key: "acme", Worst: 2},
		{Scope: "tenant", Limit: second, Window: time.Millisecond, Key: "acme", Worst: 4},
	}
	if !slices.Equal(uses, want) {
		t.Errorf("got %+v, want %+v", uses, want)
	}
	for _, row := range []struct {
		at   int64
		over int // by one unit then
	}{{4999, 1}, {5000, 1}, {8999, 1}, {9000, 1}, {8600, 1}, {6500, 0}, {20000, 0}} {
		if over := WindowsOver(Limits(append(slices.Clone(events), Event{At: row.at, Units: 1, Of: acme}), l,
			0)); over < row.over || row.over == 0 && over > 0 {
			t.Errorf("one more unit at %d: %d windows over", row.at, over)
		}
	}
	if got := Optimum(events, l); got != 0 {
		t.Errorf("the optimum is %s, want 0 without the tenant whose limit has changed", got)
	}
}

func TestOptimum(t *testing.T) {
	t.Parallel()
	acme, globex := keys{"tenant": "acme"}, keys{"tenant": "globex"}
	events := []Event{{Units: 60, Of: acme}, {Units: 40, Of: globex}}
	for _, row := range []struct {
		name   string
		scopes []throttle.Scope
		want   time.Duration
	}{
		{"no limits", []throttle.Scope{{Name: throttle.Global}}, 0},
		{"all in one window",
			[]throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerMinute(500)}}}, 0},
		{"global binds", []throttle.Scope{
			{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerSecond(10)}},
			{Name: "tenant", Limits: []throttle.Limit{throttle.PerSecond(10)}},
		}, 9 * time.Second},
		{"the largest tenant binds", []throttle.Scope{
			{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerSecond(10)}},
			{Name: "tenant", Limits: []throttle.Limit{throttle.PerSecond(5)}},
		}, 11 * time.Second},
		{"the longer window binds", []throttle.Scope{
			{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerSecond(10), throttle.Per(20, 10*time.Second)}},
		}, 40 * time.Second},
		{"unlimited and blocked do not count", []throttle.Scope{
			{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerSecond(throttle.Unlimited), throttle.PerMinute(0)}},
		}, 0},
	} {
		if got := Optimum(events, Law{Scopes: row.scopes}); got != row.want {
			t.Errorf("%s: got %s, want %s", row.name, got, row.want)
		}
	}
}
