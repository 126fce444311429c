package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

var start = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// filled is a board of a throttle with the scopes global, tenant and domain.
func filled() *board {
	return &board{now: start, throttle: new(throttle.Throttle), keys: make(map[scopeKey]*standing), drawn: new(drawn), process: processes{all: []throttle.Process{{
		Alive: true, FairScope: "tenant", Scopes: []throttle.Scope{{Name: throttle.Global}, {Name: "tenant"}, {Name: "domain"}},
	}}}}
}

// TestRowsAreBounded: however many wait and are paused, the overview shows some of each, and
// what is in use stays until others take its place.
func TestRowsAreBounded(t *testing.T) {
	t.Parallel()
	b := filled()
	for i := range 100 {
		b.process.changes = append(b.process.changes, throttle.Change{
			What: "pause", Scope: "domain", Key: fmt.Sprint("d", i), After: start.Add(time.Hour).Format(time.RFC3339),
		})
	}
	lanes := make([]throttle.Lane, 10_000)
	for i := range lanes {
		lanes[i] = throttle.Lane{Name: fmt.Sprint(i), Flow: fmt.Sprint("t", i), Scope: "tenant", Key: fmt.Sprint("t", i), Jobs: int64(i), Since: start.Add(-time.Duration(i) * time.Second)}
	}
	b.line.under = make(map[scopeKey]view.Row)
	b.line.put(lanes)
	rows := b.choose(nil)
	for _, want := range []scopeKey{{Scope: throttle.Global}, {"domain", "d0"}, {"tenant", "t9999"}} {
		if !slices.Contains(rows, want) {
			t.Errorf("%v is not among %v", want, rows)
		}
	}
	if len(rows) != mostRows {
		t.Errorf("%d rows, want %d", len(rows), mostRows)
	}

	b = filled()
	b.rows = []scopeKey{{"tenant", "idle"}, {"tenant", "used"}, {"tenant", "paused"}, {"tenant", "served less"}, {"tenant", "served"}}
	rows = b.choose(map[scopeKey]*standing{
		{"tenant", "idle"}:   {usage: throttle.Usage{Now: start, Limits: []throttle.LimitUsage{{}}}},
		{"tenant", "used"}:   {usage: throttle.Usage{Now: start, Limits: []throttle.LimitUsage{{Used: 1}}}},
		{"tenant", "paused"}: {usage: throttle.Usage{Now: start, Paused: start.Add(time.Second)}},

		{"tenant", "served less"}: {usage: throttle.Usage{Now: start, Served: 0.9}},
		{"tenant", "served"}:      {usage: throttle.Usage{Now: start, Served: 1}},
	})
	if want := []scopeKey{{throttle.Global, ""}, {"tenant", "paused"}, {"tenant", "served less"}, {"tenant", "used"}}; !slices.Equal(rows, want) {
		t.Errorf("rows %v, want %v", rows, want)
	}
}

// TestInForce: of each kind of change the last counts, and only while it holds.
func TestInForce(t *testing.T) {
	t.Parallel()
	later, past := start.Add(time.Hour).Format(time.RFC3339), start.Add(-time.Second).Format(time.RFC3339)
	changes := []throttle.Change{
		{What: "pause", Scope: "domain", Key: "a", After: ""},
		{What: "pause", Scope: "domain", Key: "a", After: later},
		{What: "pause", Scope: "domain", Key: "b", After: later},
		{What: "pause", Scope: "domain", Key: "c", After: past},
		{What: "limits", Scope: "domain", Key: "a", After: "1/1s"},
		{What: "limits", Scope: "domain", Key: "a", After: "2/1s"},
		{What: "mode", After: "off"},
	}
	want := []throttle.Change{changes[2], changes[4], changes[6]}
	if got := inForce(changes, start); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestStartedSince: what started per second is known of a short window by what it holds, of
// others by what is spent more.
func TestStartedSince(t *testing.T) {
	t.Parallel()
	use := func(limit throttle.Limit, used int64) throttle.LimitUsage {
		return throttle.LimitUsage{Limit: limit, Used: used}
	}
	long, short, none := throttle.PerHour(100_000), throttle.Per(100, 500*time.Millisecond), throttle.Limit{Units: throttle.Unlimited, Window: time.Hour}
	for name, c := range map[string]struct {
		was, is []throttle.LimitUsage
		took    time.Duration
		want    float64
		known   bool
	}{
		"a short window":        {nil, []throttle.LimitUsage{use(short, 40), use(long, 9)}, time.Second, 80, true},
		"growth":                {[]throttle.LimitUsage{use(long, 100)}, []throttle.LimitUsage{use(long, 160)}, 2 * time.Second, 30, true},
		"what left is no start": {[]throttle.LimitUsage{use(long, 100)}, []throttle.LimitUsage{use(long, 60)}, time.Second, 0, true},
		"unlimited":             {[]throttle.LimitUsage{use(none, 0)}, []throttle.LimitUsage{use(none, 0)}, time.Second, 0, false},
		"what runs":             {[]throttle.LimitUsage{use(throttle.Running(2), 1)}, []throttle.LimitUsage{use(throttle.Running(2), 2)}, time.Second, 0, false},
		"another window":        {[]throttle.LimitUsage{use(throttle.PerDay(100_000), 1)}, []throttle.LimitUsage{use(long, 9)}, time.Second, 0, false},
		"no time has passed":    {nil, []throttle.LimitUsage{use(short, 40)}, 0, 0, false},
	} {
		b := filled()
		got, known := b.startedSince(t.Context(), throttle.Usage{Now: start, Limits: c.was}, throttle.Usage{Now: start.Add(c.took), Limits: c.is})
		if got != c.want || known != c.known {
			t.Errorf("%s: %v, %v, want %v, %v", name, got, known, c.want, c.known)
		}
	}
}

// TestOpenKeysAreWatched: a scope key is read as long as a browser has it open.
func TestOpenKeysAreWatched(t *testing.T) {
	t.Parallel()
	h := newHub("smtp", nil)
	a, b := scopeKey{"tenant", "a"}, scopeKey{"tenant", "b"}
	endA, endAgain, endB := h.watch(&a), h.watch(&a), h.watch(&b)
	h.watch(nil)()
	for _, c := range []struct {
		end  func()
		want []scopeKey
	}{{func() {}, []scopeKey{a, b}}, {endA, []scopeKey{a, b}}, {endAgain, []scopeKey{b}}, {endB, nil}} {
		c.end()
		if got := h.opened(nil); !slices.Equal(got, c.want) {
			t.Errorf("open are %v, want %v", got, c.want)
		}
	}
	if got := h.opened(&b); !slices.Equal(got, []scopeKey{b}) {
		t.Errorf("asked for is %v", got)
	}
}

// TestTooManyToTell: where more waits than is read, the overview says so, and shows under
// which scope keys.
func TestTooManyToTell(t *testing.T) {
	t.Parallel()
	key := scopeKey{"tenant", "acme"}
	b := filled()
	b.line = waiting{many: true, under: map[scopeKey]view.Row{key: {Scope: key.Scope, Key: key.Key, Flows: 30_000}}, most: []scopeKey{key}}
	b.rows = b.choose(nil)
	b.keys[key] = &standing{usage: throttle.Usage{Scope: key.Scope, Key: key.Key, Now: start, Limits: []throttle.LimitUsage{{Limit: throttle.PerHour(2), Used: 2}}}}
	h, _ := counting(t)
	h.hub.read = func(context.Context, look) *board { return b }
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
	for _, want := range []string{"more than is read", "2 of 2 used", "Too many wait to be told one by one"} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %q in\n%s", want, w.Body.String())
		}
	}
}
