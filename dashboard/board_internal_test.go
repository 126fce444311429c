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

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

var start = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// filled is a board of a throttle with the scopes global, tenant and domain.
func filled() *board {
	return &board{now: start, throttle: new(inspect.Inspector), keys: make(map[scopeKey]*standing),
		drawn: new(drawn), process: processes{all: []throttle.Process{{
			Alive: true, FairScope: "tenant", Scopes: []throttle.Scope{{Name: throttle.Global}, {Name: "tenant"},
				{Name: "domain"}},
		}}}}
}

// TestRowsAreBounded: however many jobs wait and keys are paused, the overview shows some of each,
// and keeps the keys in use until others take their place.
func TestRowsAreBounded(t *testing.T) {
	t.Parallel()
	b := filled()
	for i := range 100 {
		b.process.sets.All = append(b.process.sets.All,
			inspect.Setting{Scope: "domain", Key: fmt.Sprint("d", i), What: "pause", Until: start.Add(time.Hour)})
	}
	lanes := make([]inspect.Lane, 10_000)
	for i := range lanes {
		lanes[i] = inspect.Lane{Name: fmt.Sprint(i), Flow: fmt.Sprint("t", i), Scope: "tenant",
			Key: fmt.Sprint("t", i), Jobs: int64(i), Since: start.Add(-time.Duration(i) * time.Second)}
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
	b.rows = []scopeKey{{"tenant", "idle"}, {"tenant", "used"}, {"tenant", "paused"}, {"tenant", "served less"},
		{"tenant", "served"}}
	rows = b.choose(map[scopeKey]*standing{
		{"tenant", "idle"}:   {usage: inspect.Usage{Now: start, Limits: []inspect.LimitUsage{{}}}},
		{"tenant", "used"}:   {usage: inspect.Usage{Now: start, Limits: []inspect.LimitUsage{{Used: 1}}}},
		{"tenant", "paused"}: {usage: inspect.Usage{Now: start, Paused: start.Add(time.Second)}},

		{"tenant", "served less"}: {usage: inspect.Usage{Now: start, Served: 0.9}},
		{"tenant", "served"}:      {usage: inspect.Usage{Now: start, Served: 1}},
	})
	if want := []scopeKey{{throttle.Global, ""}, {"tenant", "paused"}, {"tenant", "served less"},
		{"tenant", "used"}}; !slices.Equal(rows, want) {
		t.Errorf("rows %v, want %v", rows, want)
	}
}

// TestStartedSince: the starts per second are counted under a short window, and are the growth of
// the used units under others.
func TestStartedSince(t *testing.T) {
	t.Parallel()
	use := func(limit throttle.Limit, used int64) inspect.LimitUsage {
		return inspect.LimitUsage{Limit: limit, Used: used}
	}
	long, short, none := throttle.PerHour(100_000), throttle.Per(100, 500*time.Millisecond),
		throttle.Limit{Units: throttle.Unlimited, Window: time.Hour}
	for name, c := range map[string]struct {
		was, is []inspect.LimitUsage
		took    time.Duration
		want    float64
		known   bool
	}{
		"a short window": {nil, []inspect.LimitUsage{use(short, 40), use(long, 9)}, time.Second, 80, true},
		"growth": {[]inspect.LimitUsage{use(long, 100)}, []inspect.LimitUsage{use(long, 160)},
			2 * time.Second, 30, true},
		"what left is no start": {[]inspect.LimitUsage{use(long, 100)}, []inspect.LimitUsage{use(long, 60)},
			time.Second, 0, true},
		"unlimited": {[]inspect.LimitUsage{use(none, 0)}, []inspect.LimitUsage{use(none, 0)},
			time.Second, 0, false},
		"what runs": {[]inspect.LimitUsage{use(throttle.Running(2), 1)},
			[]inspect.LimitUsage{use(throttle.Running(2), 2)}, time.Second, 0, false},
		"another window": {[]inspect.LimitUsage{use(throttle.PerDay(100_000), 1)},
			[]inspect.LimitUsage{use(long, 9)}, time.Second, 0, false},
		"no time has passed": {nil, []inspect.LimitUsage{use(short, 40)}, 0, 0, false},
	} {
		b := filled()
		got, known := b.startedSince(t.Context(), inspect.Usage{Now: start, Limits: c.was},
			inspect.Usage{Now: start.Add(c.took), Limits: c.is})
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
		if l, _ := h.due(); !slices.Equal(l.open, c.want) {
			t.Errorf("open are %v, want %v", l.open, c.want)
		}
	}
}

// TestTooManyToTell: if more jobs wait than are read, the overview says so, and shows the scope
// keys under which they wait.
func TestTooManyToTell(t *testing.T) {
	t.Parallel()
	key := scopeKey{"tenant", "acme"}
	b := filled()
	b.line = waiting{many: true, under: map[scopeKey]view.Row{key: {Scope: key.Scope, Key: key.Key, Flows: 30_000}},
		most: []scopeKey{key}}
	b.rows = b.choose(nil)
	b.keys[key] = &standing{usage: inspect.Usage{Scope: key.Scope, Key: key.Key, Now: start,
		Limits: []inspect.LimitUsage{{Limit: throttle.PerHour(2), Units: 2, Used: 2}}}}
	h, _ := counting(t)
	h.hub.read = func(context.Context, order) *board { return b }
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
	for _, want := range []string{"2 of 2 used", "Too many jobs wait to be listed one by one"} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %q in\n%s", want, w.Body.String())
		}
	}
}

// TestEqualRowsAreGrouped: of rows with the same text, the overview shows some and the number of
// the others; paused rows come first, then blocked ones; idle rows are folded.
func TestEqualRowsAreGrouped(t *testing.T) {
	t.Parallel()
	b := filled()
	full := inspect.Usage{Now: start,
		Limits: []inspect.LimitUsage{{Limit: throttle.PerHour(2), Used: 2, Free: start.Add(time.Hour)}}}
	put := func(scope, key string, u inspect.Usage, jobs int64) {
		u.Scope, u.Key = scope, key
		b.rows = append(b.rows, scopeKey{scope, key})
		b.keys[scopeKey{scope, key}] = &standing{usage: u}
		if jobs > 0 {
			b.line.lanes = append(b.line.lanes, inspect.Lane{Name: scope + key, Flow: key, Scope: scope, Key: key, Jobs: jobs})
		}
	}
	put(throttle.Global, "", inspect.Usage{Now: start, Limits: []inspect.LimitUsage{{Limit: throttle.PerHour(100)}}}, 0)
	for i := range 8 {
		put("tenant", fmt.Sprint("t", i), full, 10)
	}
	put("tenant", "idle", inspect.Usage{Now: start, Limits: []inspect.LimitUsage{{Limit: throttle.PerHour(2)}}}, 0)
	put("domain", "stopped", inspect.Usage{Now: start, Paused: start.Add(time.Hour)}, 0)
	b.line.under = make(map[scopeKey]view.Row)
	lanes := b.line.lanes
	b.line.put(lanes)
	o := overviewOf(b, false)
	var shown []string
	for _, row := range o.Rows {
		shown = append(shown, row.Scope+" "+row.Key)
	}
	if want := []string{"domain stopped", "tenant t0", "tenant t1", "tenant t2", "global "}; !slices.Equal(shown, want) {
		t.Errorf("shown are %q, want %q", shown, want)
	}
	if len(o.Folded) != 6 || o.FoldedText != "5 more like these, 1 idle" {
		t.Errorf("%d folded: %q", len(o.Folded), o.FoldedText)
	}
	if len(o.Flows) != 4 || o.Flows[3].Same != 5 || o.Flows[3].Jobs != 50 || o.Flows[3].For != (scopeKey{}) {
		t.Errorf("flows are %+v", o.Flows)
	}
	for i := range 8 {
		if i != 1 { // of the others it is not known why they wait
			delete(b.keys, scopeKey{"tenant", fmt.Sprint("t", i)})
		}
	}
	if o = overviewOf(b, false); len(o.Flows) != 4 || o.Flows[0].Flow.Key == "" {
		t.Errorf("of flows of which one is known %+v is told", o.Flows)
	}
}

// TestFlowsPageSaysWhatItsJobsWaitFor: the page of a tenant whose jobs wait for another scope key says so, and
// names its own limit, which keeps the last of them back.
func TestFlowsPageSaysWhatItsJobsWaitFor(t *testing.T) {
	t.Parallel()
	b := filled()
	acme := scopeKey{"tenant", "acme"}
	b.keys[acme] = &standing{usage: inspect.Usage{Scope: acme.Scope, Key: acme.Key, Now: start, Served: 1,
		Limits: []inspect.LimitUsage{{Limit: throttle.PerMinute(30), Units: 30, Used: 30, Free: start.Add(time.Second)}}}}
	all := scopeKey{Scope: throttle.Global}
	b.keys[all] = &standing{usage: inspect.Usage{Scope: all.Scope, Now: start, Served: 1,
		Limits: []inspect.LimitUsage{{Limit: throttle.PerSecond(3), Units: 3, Used: 3, Free: start.Add(time.Second)}}}}
	b.line.under = make(map[scopeKey]view.Row)
	b.line.put([]inspect.Lane{{Name: "acme", Flow: acme.Key, Scope: throttle.Global, Jobs: 381,
		Costs: map[string]int64{"tenant": 1, throttle.Global: 1}, Since: start.Add(-time.Minute)}})
	var page strings.Builder
	if err := pages["key"].ExecuteTemplate(&page, "live", frame{Now: start, Body: keyPageOf(b, acme)}); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	for _, want := range []string{"381 jobs of acme are in line, the next for global; under its own 30/1m the last of " +
		"them cannot start before 12m from now. A higher limit of its own would help",
		"<dt>Its own jobs in line</dt><dd><b>381</b>", "<h2>What its own jobs wait for</h2>"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q\n%s", want, text)
		}
	}
	for _, wrong := range []string{"Waiting for it", "Nobody", "Nothing waits"} {
		if strings.Contains(text, wrong) {
			t.Errorf("the page says %q\n%s", wrong, text)
		}
	}
	b.keys[all].usage.Paused = start.Add(time.Hour)
	const both = "Resume global to let its jobs start sooner. A higher limit of its own would help the last of them."
	if help := keyPageOf(b, acme).(*keyPage).Help; help != both {
		t.Errorf("where global is paused: %q, want %q", help, both)
	}
}

// TestPageSaysWhatHelps: a higher limit helps neither a paused key nor outside of hours, and a larger share only where
// others wait too.
func TestPageSaysWhatHelps(t *testing.T) {
	t.Parallel()
	acme, gate := scopeKey{"tenant", "acme"}, scopeKey{"domain", "gate"}
	later := start.Add(time.Hour)
	hours := []inspect.LimitUsage{{Limit: throttle.PerHour(9), Units: 9, Free: start},
		{Limit: throttle.OpenHours("Mon-Sun 09:00-17:00 @UTC"), Free: later, Anew: later}}
	full := []inspect.LimitUsage{{Limit: throttle.PerHour(9), Units: 9, Used: 9, Free: later}}
	lifted := throttle.PerHour(throttle.Unlimited)
	for name, c := range map[string]struct {
		usage      inspect.Usage
		flows      []string
		here, flow string // the help on the page of the scope key, and on that of the flow
	}{
		"paused": {inspect.Usage{Paused: later, Limits: full}, []string{"acme"},
			"Resume it to let its jobs start sooner.", "Resume domain gate to let its jobs start sooner."},
		"hours": {inspect.Usage{Limits: hours}, []string{"acme", "other"},
			"Other hours would let its jobs start sooner.", "Other hours would let its jobs start sooner."},
		"alone": {inspect.Usage{Limits: full}, []string{"acme"},
			"A higher limit of it would help.", "A higher limit of domain gate would help."},
		"several": {inspect.Usage{Limits: full}, []string{"acme", "other"},
			"A higher limit of it would help.", "A higher limit of domain gate would help, and so would a larger share."},
		"shadow":   {inspect.Usage{Mode: throttle.Shadow, Limits: full}, []string{"acme"}, "", ""},
		"no limit": {inspect.Usage{}, []string{"acme", "other"}, "", ""},
		"unlimited": {inspect.Usage{Limits: []inspect.LimitUsage{{Limit: lifted, Units: throttle.Unlimited, Free: start}}},
			[]string{"acme", "other"}, "", ""},
	} {
		b := filled()
		c.usage.Scope, c.usage.Key, c.usage.Now, c.usage.Served = gate.Scope, gate.Key, start, 1
		b.keys[gate] = &standing{usage: c.usage}
		b.keys[acme] = &standing{usage: inspect.Usage{Scope: acme.Scope, Key: acme.Key, Now: start, Served: 1}}
		b.line.under = make(map[scopeKey]view.Row)
		var lanes []inspect.Lane
		for _, flow := range c.flows {
			lanes = append(lanes, inspect.Lane{Name: flow, Flow: flow, Scope: gate.Scope, Key: gate.Key, Jobs: 1})
		}
		b.line.put(lanes)
		here, flow := keyPageOf(b, gate).(*keyPage).Help, keyPageOf(b, acme).(*keyPage).Help
		if here != c.here || flow != c.flow {
			t.Errorf("%s: %q and %q, want %q and %q", name, here, flow, c.here, c.flow)
		}
	}
}

// TestFlowThatWaitsForMany: the page of a flow whose jobs wait for more scope keys than it lists counts them all.
func TestFlowThatWaitsForMany(t *testing.T) {
	t.Parallel()
	b, acme := filled(), scopeKey{"tenant", "acme"}
	b.keys[acme] = &standing{usage: inspect.Usage{Scope: acme.Scope, Key: acme.Key, Now: start, Served: 1}}
	b.line.under = make(map[scopeKey]view.Row)
	var lanes []inspect.Lane
	for i := range 3 * mostFlows {
		lanes = append(lanes, inspect.Lane{Name: fmt.Sprint(i), Flow: acme.Key, Scope: "domain", Key: fmt.Sprint(i), Jobs: 1})
	}
	b.line.put(lanes)
	var page strings.Builder
	if err := pages["key"].ExecuteTemplate(&page, "live", frame{Now: start, Body: keyPageOf(b, acme)}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"and 59 others", "… and 40 more."} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q\n%s", want, page.String())
		}
	}
}

// TestPageSaysWhatHelpsWithSeveral: where the jobs of a flow wait for several scope keys, its page says what would help
// with each kind of them, and nothing of those of which it does not know what holds jobs back.
func TestPageSaysWhatHelpsWithSeveral(t *testing.T) {
	t.Parallel()
	acme, later := scopeKey{"tenant", "acme"}, start.Add(time.Hour)
	full := []inspect.LimitUsage{{Limit: throttle.PerHour(9), Units: 9, Used: 9, Free: later}}
	hours := []inspect.LimitUsage{{Limit: throttle.OpenHours("Mon-Sun 09:00-17:00 @UTC"), Units: throttle.Unlimited,
		Free: later, Anew: later}}
	states := map[string]inspect.Usage{
		"paused": {Paused: later, Limits: full}, "closed": {Limits: hours}, "full": {Limits: full},
		"shared": {Limits: full}, "shadow": {Mode: throttle.Shadow, Paused: later, Limits: full},
	}
	for name, c := range map[string]struct {
		keys []string // each named by its state, with a number
		help string
	}{
		"paused":    {[]string{"paused 1", "paused 2"}, "Resume these keys to let their jobs start sooner."},
		"closed":    {[]string{"closed 1", "closed 2"}, "Other hours of these keys would let their jobs start sooner."},
		"full":      {[]string{"full 1", "full 2"}, "Higher limits of these keys would help."},
		"shared":    {[]string{"full 1", "shared 2"}, "Higher limits of these keys would help, and so would a larger share."},
		"shadow":    {[]string{"shadow 1", "shadow 2"}, ""},
		"not known": {[]string{"far 1", "far 2"}, ""},
		"paused by a setting": {[]string{"far 1", "stopped 2"},
			"Resume the paused keys to let their jobs start sooner."},
		"some of each": {[]string{"paused 1", "closed 2", "shared 3"},
			"Resume the paused keys to let their jobs start sooner. " +
				"Other hours of the closed keys would let their jobs start sooner. " +
				"Higher limits of the full keys would help, and so would a larger share."},
	} {
		b := filled()
		b.keys[acme] = &standing{usage: inspect.Usage{Scope: acme.Scope, Key: acme.Key, Now: start, Served: 1}}
		b.process.sets.All = []inspect.Setting{{Scope: "domain", Key: "stopped 2", What: "pause", Until: later}}
		b.line.under = make(map[scopeKey]view.Row)
		var lanes []inspect.Lane
		for _, key := range c.keys {
			state, _, _ := strings.Cut(key, " ")
			if u, known := states[state]; known {
				u.Scope, u.Key, u.Now, u.Served = "domain", key, start, 1
				b.keys[scopeKey{"domain", key}] = &standing{usage: u}
			}
			flows := []string{"acme"}
			if state == "shared" {
				flows = append(flows, "other")
			}
			for _, flow := range flows {
				lanes = append(lanes, inspect.Lane{Name: key + flow, Flow: flow, Scope: "domain", Key: key, Jobs: 1})
			}
		}
		b.line.put(lanes)
		if help := keyPageOf(b, acme).(*keyPage).Help; help != c.help {
			t.Errorf("%s: %q, want %q", name, help, c.help)
		}
	}
}

// TestOverviewOfManyKeys: with 10,000 keys that wait, 10,000 that are paused and long names the overview
// stays a page of some rows.
func TestOverviewOfManyKeys(t *testing.T) {
	t.Parallel()
	b := filled()
	b.process.sets.Known = true
	lanes := make([]inspect.Lane, 10_000)
	for i := range lanes {
		key := fmt.Sprintf("%s-%05d", strings.Repeat("long", 20), i)
		b.process.sets.All = append(b.process.sets.All,
			inspect.Setting{Scope: "domain", Key: key, What: "pause", Until: start.Add(time.Hour)})
		lanes[i] = inspect.Lane{Name: key, Flow: key, Scope: "tenant", Key: key, Jobs: 1, Since: start.Add(-time.Minute)}
	}
	b.line.under = make(map[scopeKey]view.Row)
	b.line.put(lanes)
	b.rows = b.choose(nil)
	for _, key := range b.rows {
		b.keys[key] = &standing{usage: inspect.Usage{Scope: key.Scope, Key: key.Key, Now: start,
			Limits: []inspect.LimitUsage{{Limit: throttle.PerHour(2), Used: 2, Free: start.Add(time.Hour)}}}}
	}
	var page strings.Builder
	if err := pages[""].ExecuteTemplate(&page, "live", frame{Now: start, Body: overviewOf(b, false)}); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	if rows := strings.Count(text, "<tr"); rows < 10 || rows > 80 || len(text) > 100_000 {
		t.Errorf("%d rows, %d bytes", rows, len(text))
	}
	for _, want := range []string{"<b>10000</b> jobs of 10000 flows", "9980 more"} {
		if !strings.Contains(text, want) {
			t.Errorf("the overview lacks %q\n%.3000s", want, text)
		}
	}
}

// TestKeyOfALongLine: where the line is too long to be read, or was read before the flows came, the page of a scope key
// still says how many flows wait for it, and for what.
func TestKeyOfALongLine(t *testing.T) {
	t.Parallel()
	key := scopeKey{"tenant", "acme"}
	for name, line := range map[string]waiting{
		"too long":    {many: true, under: map[scopeKey]view.Row{key: {Scope: key.Scope, Key: key.Key, Flows: 9}}},
		"read before": {},
	} {
		b := filled()
		b.line = line
		u := inspect.Usage{Scope: "tenant", Key: "acme", Now: start, Waiting: 30_000, Limits: []inspect.LimitUsage{
			{Limit: throttle.PerHour(2), Units: 2, Used: 2, Free: start.Add(time.Hour)}}}
		b.keys[key] = &standing{usage: u}
		h, _ := counting(t)
		h.hub.read = func(context.Context, order) *board { return b }
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/key?scope=tenant&key=acme", http.NoBody))
		page := w.Body.String()
		for _, want := range []string{"30000 flows wait for it (2/1h, 2 used, 0 booked), until ",
			"A higher limit of it would help.", "<dd><b>30000</b> flows</dd>"} {
			if !strings.Contains(page, want) {
				t.Errorf("%s: no %q in\n%s", name, want, page)
			}
		}
		if own := strings.Contains(page, "Its own jobs in line"); own == line.many {
			t.Errorf("%s: the jobs of the flow are on the page: %t", name, own)
		}
	}
}

// TestUntilOfAClosedLimit: under a running limit of 0 that does not end there is no time by which a place is free.
func TestUntilOfAClosedLimit(t *testing.T) {
	t.Parallel()
	b := filled()
	u := inspect.Usage{Scope: "tenant", Key: "acme", Now: start,
		Limits: []inspect.LimitUsage{{Limit: throttle.Running(0)}}}
	b.keys[scopeKey{"tenant", "acme"}] = &standing{usage: u}
	b.line.under = make(map[scopeKey]view.Row)
	b.line.put([]inspect.Lane{{Name: "l", Flow: "acme", Scope: "tenant", Key: "acme", Jobs: 3, Since: start}})
	h, _ := counting(t)
	h.hub.read = func(context.Context, order) *board { return b }
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
	if page := w.Body.String(); !strings.Contains(page, `closed by 0/running</td><td data-label="until">–</td>`) {
		t.Error(page)
	}
}
