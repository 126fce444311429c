package dashboard_test

import (
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/asynq-throttle/asynq-throttle/dashboard"
	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestChange: each button makes its change, the log has the user, and the page shows the change at
// once.
func TestChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	core, logs := observer.New(zap.InfoLevel)
	h := w.pages(&dashboard.Options{AllowChanges: true, Logger: zap.New(core)})
	target := "/key?" + url.Values{"scope": {"tenant"}, "key": {hostile}}.Encode()
	if got := get(t.Context(), h, target); !strings.Contains(got.text, `method="post"`) {
		t.Fatalf("there are no buttons\n%s", got.text)
	}
	for _, c := range []struct{ do, field, value, shows, logged string }{
		{"pause", "for", "2h", "<strong>paused</strong> until", "paused until"},
		{"resume", "for", "", "<dd>open</dd>", "resumed"},
		{"limits", "limits", "7/1h, 100/1d", "7/1h", "limits 7/1h, 100/24h"},
		{"reset", "limits", "7/1h", "as configured", "limits as configured"},
	} {
		send := func(more ...string) answer {
			r := form(t.Context(), append([]string{"do", c.do, "scope", "tenant", "key", hostile, c.field, c.value}, more...)...)
			r.SetBasicAuth("ann", "secret")
			return ask(h, r)
		}
		got := send()
		if before, asks := asked(got.text); asks {
			got = send("sure", before)
		}
		if got.header.Get("Location") != "key?key="+url.QueryEscape(hostile)+"&scope=tenant" ||
			got.status != http.StatusSeeOther {
			t.Fatalf("%s: status %d\n%s", c.do, got.status, got.text)
		}
		if page := get(t.Context(), h, target); !strings.Contains(page.text, c.shows) {
			t.Errorf("%s: the page lacks %q\n%s", c.do, c.shows, page.text)
		}
		entries := logs.TakeAll()
		if len(entries) != 1 {
			t.Fatalf("%s: logged %v", c.do, entries)
		}
		fields := entries[0].ContextMap()
		if fields["who"] != "ann" || fields["scope"] != "tenant" || fields["key"] != hostile || fields["throttle"] != "smtp" {
			t.Errorf("%s: logged %v", c.do, fields)
		}
		if what, is := fields["what"].(string); !is || !strings.HasPrefix(what, c.logged) {
			t.Errorf("%s: logged %v", c.do, fields["what"])
		}
	}
	changes, err := inspect.New(w.throttle).Changes(t.Context())
	if err != nil || len(changes) != 5 { // one of the world's
		t.Errorf("%d changes, %v", len(changes), err)
	}
}

// asked returns the limits that a page with a question says are in force, and whether it asks.
func asked(page string) (before string, is bool) {
	_, rest, is := strings.Cut(page, `name="sure" value="`)
	before, _, _ = strings.Cut(rest, `"`)
	return html.UnescapeString(before), is
}

// TestChangeAsks: limits, and a pause of all jobs, change only after a page has shown the settings
// in force, the new ones, the lifted ones and the way back; and only if these still hold.
func TestChangeAsks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.pages(&dashboard.Options{AllowChanges: true})
	set := func(scope, key string, limits ...throttle.Limit) {
		if err := inspect.New(w.throttle).SetLimits(t.Context(), scope, key, limits); err != nil {
			t.Fatal(err)
		}
	}
	limits := func() string {
		s, err := inspect.New(w.throttle).SettingsOf(t.Context(), "tenant", "acme")
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(view.Find(s, "limits").Limits)
	}
	set("tenant", "acme", throttle.Per(10, time.Minute), throttle.PerDay(5000))
	was := limits()
	send := func(sure string) answer {
		return post(t.Context(), h, "do", "limits", "scope", "tenant", "key", "acme", "limits", "20/1m", "sure", sure)
	}
	got := send("")
	if limits() != was || got.status != http.StatusOK {
		t.Errorf("status %d, limits %s, want %s as before", got.status, limits(), was)
	}
	for _, want := range []string{"Now: <b>10/1m, 5000/24h, set at run time for the key</b>",
		"Make it: <b>20/1m</b>", "No longer in force: 5000/24h.", "To undo it: Set 10/1m, 5000/24h."} {
		if !strings.Contains(got.text, want) {
			t.Errorf("the question lacks %q\n%s", want, got.text)
		}
	}
	before, _ := asked(got.text)
	set("tenant", "acme", throttle.Per(11, time.Minute))
	if got = send(before); !strings.Contains(got.text, "Now: <b>11/1m,") {
		t.Errorf("somebody has set others meanwhile, and it does not ask again\n%s", got.text)
	}
	before, _ = asked(got.text)
	if got = send(before); got.status != http.StatusSeeOther || limits() != "[20/1m]" {
		t.Errorf("status %d, limits %s", got.status, limits())
	}
	if got = get(t.Context(), h, "/key?scope=tenant&key=acme&limits=7/1h"); !strings.Contains(got.text,
		"No longer in force: 20/1m.") {
		t.Errorf("Try does not say what it would lift\n%s", got.text)
	}
	if got = post(t.Context(), h, "do", "reset", "scope", "tenant", "key", "acme"); !strings.Contains(got.text,
		"To undo it: Set 20/1m.") {
		t.Errorf("Reset does not ask\n%s", got.text)
	}

	pause := func(sure string) answer {
		return post(t.Context(), h, "do", "pause", "scope", "global", "key", "", "for", "1h", "sure", sure)
	}
	if got = pause(""); got.status != http.StatusOK || !strings.Contains(got.text, "no job of any key starts for 1h") {
		t.Errorf("status %d\n%s", got.status, got.text)
	}
	if got = pause("not paused"); got.status != http.StatusSeeOther {
		t.Errorf("status %d\n%s", got.status, got.text)
	}
}

// TestChangeRefused: a request from another origin, or from a client without permission, changes
// nothing.
func TestChangeRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pause := func() *http.Request {
		return form(t.Context(), "do", "pause", "scope", "tenant", "key", "acme", "for", "1h")
	}
	forbidden := errors.New("ann is on holiday")
	for name, c := range map[string]struct {
		options dashboard.Options
		mark    func(r *http.Request)
		logged  string
	}{
		"read-only": {dashboard.Options{}, func(*http.Request) {}, "AllowChanges"},
		"another site": {dashboard.Options{AllowChanges: true},
			func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, "cross-origin"},
		"another host": {dashboard.Options{AllowChanges: true},
			func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, "cross-origin"},
		"another origin": {dashboard.Options{AllowChanges: true},
			func(r *http.Request) {
				r.Header.Del("Sec-Fetch-Site")
				r.Header.Set("Origin",
					"https://evil.example")
			}, "cross-origin"},
		"Authorize": {dashboard.Options{AllowChanges: true,
			Authorize: func(*http.Request) error { return forbidden }}, func(*http.Request) {}, "on holiday"},
	} {
		core, logs := observer.New(zap.InfoLevel)
		c.options.Logger = zap.New(core)
		c.options.Who = func(*http.Request) string { return "ann" }
		h := w.pages(&c.options)
		r := pause()
		c.mark(r)
		got := ask(h, r)
		if got.status != http.StatusForbidden || strings.Contains(got.text, "holiday") {
			t.Errorf("%s: status %d, %s", name, got.status, got.text)
		}
		entries := logs.All()
		if len(entries) != 1 || entries[0].Level != zap.WarnLevel || entries[0].ContextMap()["who"] != "ann" {
			t.Fatalf("%s: logged %v", name, entries)
		}
		if why, is := entries[0].ContextMap()["error"].(string); !is || !strings.Contains(why, c.logged) {
			t.Errorf("%s: logged %v", name, entries[0].ContextMap())
		}
	}
	u, err := inspect.New(w.throttle).Usage(t.Context(), "tenant", "acme")
	if err != nil || !u.Paused.IsZero() {
		t.Errorf("paused until %s, %v", u.Paused, err)
	}
}

// TestChangeWrong: a form that makes no sense says so, and keeps what was typed.
func TestChangeWrong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.pages(&dashboard.Options{AllowChanges: true})
	for name, c := range map[string]struct {
		fields []string
		status int
		has    string
	}{
		"no such verb": {[]string{"do", "purge", "scope", "tenant", "key", "acme"}, 400, "nothing is called"},
		"no duration":  {[]string{"do", "pause", "scope", "tenant", "key", "acme", "for", "soon"}, 400, `value="soon"`},
		"too long":     {[]string{"do", "pause", "scope", "tenant", "key", "acme", "for", "401d"}, 400, "up to 400 days"},
		"no end":       {[]string{"do", "pause", "scope", "tenant", "key", "acme", "for", ""}, 400, "a pause has an end"},
		"far": {[]string{"do", "pause", "scope", "tenant", "key", "acme", "for", "2999-01-01 18:00"}, 400,
			"is more than 9600h away"},
		"a long reason": {[]string{"do", "pause", "scope", "tenant", "key", "acme", "for", "1h", "why",
			strings.Repeat("é", 101)}, 400, "more than 200"},
		"past": {[]string{"do", "limits", "scope", "tenant", "key", "acme", "limits", "5/1h", "lasts",
			"2020-01-01 18:00"}, 400, "is past"},
		"no limit": {[]string{"do", "limits", "scope", "tenant", "key", "acme", "limits", "<b>"}, 400,
			`value="&lt;b&gt;"`},
		"two of a kind": {[]string{"do", "limits", "scope", "tenant", "key", "acme", "limits", "2/1h, 3/1h"}, 400,
			"two limits of this kind"},
		"a short lease": {[]string{"do", "limits", "scope", "tenant", "key", "acme", "limits", "2/running@1s"}, 400,
			"shorter than twice the Lookahead"},
		"no such scope": {[]string{"do", "pause", "scope", "host", "key", "acme", "for", "1h"}, 404, "no such scope"},
		"no key":        {[]string{"do", "pause", "scope", "tenant", "key", "", "for", "1h"}, 404, "Name a key"},
		"a key of all":  {[]string{"do", "pause", "scope", "global", "key", "x", "for", "1h"}, 404, "has no keys"},
		"more than text": {[]string{"do", "pause", "scope", "tenant", "key", strings.Repeat("x", 1<<15), "for",
			"1h"}, 400, "no form"},
	} {
		if got := post(t.Context(), h, c.fields...); got.status != c.status || !strings.Contains(got.text, c.has) {
			t.Errorf("%s: status %d, want %d with %q\n%s", name, got.status, c.status, c.has, got.text)
		}
	}
	w.server.SetError("READONLY You can't write against a read only replica.")
	if got := post(t.Context(), h, "do", "resume", "scope", "tenant", "key", "acme"); got.status !=
		http.StatusServiceUnavailable || !strings.Contains(got.text, `role="alert"`) {
		t.Errorf("status %d\n%s", got.status, got.text)
	}
	if got := ask(h, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/key",
		http.NoBody)); got.status == http.StatusSeeOther {
		t.Errorf("status %d", got.status)
	}
}

// TestTryWrong: Try refuses what Set would refuse, and keeps what was typed.
func TestTryWrong(t *testing.T) {
	t.Parallel()
	h := newWorld(t).pages(&dashboard.Options{AllowChanges: true})
	for _, c := range []struct{ limits, lasts, why, has, keeps string }{
		{"<b>", "", "", "want units/window", "&lt;b&gt;"}, {"2/1h, 3/1h", "", "", "two limits of this kind", "2/1h, 3/1h"},
		{"5/1h", "soon", "", "neither for how long", "soon"},
		{"5/1h", "2020-01-01 18:00", "", "is past", "2020-01-01 18:00"},
		{"5/1h", "2999-01-01 18:00", "", "is more than 9600h away", "2999-01-01 18:00"},
		{"5/1h", "4h", strings.Repeat("é", 101), "more than 200", "éé"},
	} {
		query := url.Values{"scope": {"tenant"}, "key": {"acme"}, "limits": {c.limits}, "lasts": {c.lasts}, "why": {c.why}}
		got := get(t.Context(), h, "/key?"+query.Encode())
		if got.status != http.StatusBadRequest || !strings.Contains(got.text, c.has) ||
			!strings.Contains(got.text, `value="`+c.keeps) || strings.Contains(got.text, "kept back</strong>") {
			t.Errorf("%+v: status %d\n%s", c, got.status, got.text)
		}
	}
}

// TestAuthorizeIsAskedForAll: a client that Authorize refuses gets no page and no events.
func TestAuthorizeIsAskedForAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	core, logs := observer.New(zap.InfoLevel)
	h := w.pages(&dashboard.Options{Logger: zap.New(core), Authorize: func(r *http.Request) error {
		if user, _, _ := r.BasicAuth(); user != "ann" {
			return errors.New("only ann")
		}
		return nil
	}})
	for _, page := range []string{"/", "/key?scope=tenant&key=acme", "/job?id=mail-4-4", "/changes?all=1",
		"/processes", "/events?page="} {
		got := get(t.Context(), h, page)
		if got.status != http.StatusForbidden || strings.Contains(got.text, "acme") {
			t.Errorf("%s: status %d\n%s", page, got.status, got.text)
		}
		if entries := logs.TakeAll(); len(entries) != 1 || entries[0].ContextMap()["error"] != "only ann" {
			t.Errorf("%s: logged %v", page, entries)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	r.SetBasicAuth("ann", "secret")
	if got := ask(h, r); got.status != http.StatusOK {
		t.Errorf("ann: status %d", got.status)
	}
}

// TestChangeByItsFullPath: a path that only ends like the path of a change makes no change.
func TestChangeByItsFullPath(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.pages(&dashboard.Options{AllowChanges: true})
	mux := http.NewServeMux()
	mux.Handle("/admin/throttle/", h)
	mux.Handle("/stripped/", http.StripPrefix("/stripped", h))
	for path, want := range map[string]int{
		"/admin/throttle/x/key": http.StatusMethodNotAllowed, "/admin/throttle/x%2Fkey": http.StatusMethodNotAllowed,
		"/stripped/x/key": http.StatusMethodNotAllowed, "/stripped/key": http.StatusSeeOther,
		"/admin/throttle/key": http.StatusSeeOther,
	} {
		r := form(t.Context(), "do", "pause", "scope", "tenant", "key", path, "for", "1h")
		to, err := url.Parse(path)
		if err != nil {
			t.Fatal(err)
		}
		r.URL = to
		if got := ask(mux, r); got.status != want {
			t.Errorf("%s: status %d, want %d", path, got.status, want)
		}
		u, err := inspect.New(w.throttle).Usage(t.Context(), "tenant", path)
		if err != nil || u.Paused.IsZero() == (want == http.StatusSeeOther) {
			t.Errorf("%s: paused until %s, %v", path, u.Paused, err)
		}
	}
}

// TestChangeUntil: a pause and limits end at a time of day in the reader's zone. The answer to a question sets
// the instant that the question has named.
func TestChangeUntil(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.pages(&dashboard.Options{AllowChanges: true})
	later := time.Now().UTC().AddDate(0, 0, 3).Format(time.DateOnly)
	for _, c := range []struct{ entered, zone, want string }{
		{"18:00", "Asia/Kolkata", "18:00 IST"}, {"18:00", "nowhere", "18:00 UTC"}, {"18:00", "", "18:00 UTC"},
		{later + " 07:30", "Asia/Tokyo", later + " 07:30 JST"}, {later + "T07:30:00Z", "Asia/Tokyo", later + " 16:30 JST"},
	} {
		ends := func(what string) string {
			t.Helper()
			set, err := inspect.New(w.throttle).SettingsOf(t.Context(), "tenant", "acme")
			if err != nil {
				t.Fatal(err)
			}
			zone, err := time.LoadLocation(c.zone)
			if err != nil {
				zone = time.UTC
			}
			end := view.Find(set, what).Until
			if away := time.Until(end); away < 0 || away > 4*24*time.Hour {
				t.Errorf("%s %s: %s ends at %s", c.entered, c.zone, what, end)
			}
			return end.In(zone).Round(time.Minute).Format("2006-01-02 15:04 MST")
		}
		limits := []string{"do", "limits", "scope", "tenant", "key", "acme", "limits", "20/1m"}
		question := post(t.Context(), h, append(limits, "lasts", c.entered, "zone", c.zone)...).text
		if !strings.Contains(question, "20/1m until ") || !strings.Contains(question, c.want+"</b>") {
			t.Errorf("%s %s: the question is\n%s", c.entered, c.zone, question)
		}
		before, _ := asked(question)
		_, rest, _ := strings.Cut(question, `name="lasts" value="`)
		instant, _, _ := strings.Cut(rest, `"`)
		if _, err := time.Parse(time.RFC3339, html.UnescapeString(instant)); err != nil {
			t.Errorf("%s %s: the answer would be %q", c.entered, c.zone, instant)
		}
		got := post(t.Context(), h, append(limits, "lasts", html.UnescapeString(instant), "sure", before)...)
		if end := ends("limits"); got.status != http.StatusSeeOther || !strings.HasSuffix(end, c.want) {
			t.Errorf("%s %s: status %d, limits until %s, want %s", c.entered, c.zone, got.status, end, c.want)
		}
		got = post(t.Context(), h, "do", "pause", "scope", "tenant", "key", "acme", "for", c.entered, "zone", c.zone)
		if end := ends("pause"); got.status != http.StatusSeeOther || !strings.HasSuffix(end, c.want) {
			t.Errorf("%s %s: status %d, paused until %s, want %s", c.entered, c.zone, got.status, end, c.want)
		}
		post(t.Context(), h, "do", "resume", "scope", "tenant", "key", "acme")
	}
	reset := post(t.Context(), h, "do", "reset", "scope", "tenant", "key", "acme").text
	if undo := "To undo it: Set 20/1m until " + later + "T07:"; !strings.Contains(reset, undo) {
		t.Errorf("the question lacks %q\n%s", undo, reset)
	}
}

// TestUndoIsExact: the way back names the whole end and the reason of the limits that are set, and entered again it is
// the same instant. Others who give another reason meanwhile are noticed.
func TestUndoIsExact(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.pages(&dashboard.Options{AllowChanges: true})
	in := inspect.New(w.throttle)
	five := []throttle.Limit{throttle.PerMinute(5)}
	end := time.Now().Add(time.Hour).Truncate(time.Second).Add(123456 * time.Microsecond)
	if err := in.SetLimits(t.Context(), "tenant", "acme", five, inspect.Until(end), inspect.Why("spring")); err != nil {
		t.Fatal(err)
	}
	set, err := in.SettingsOf(t.Context(), "tenant", "acme")
	if err != nil {
		t.Fatal(err)
	}
	was := set[0].Until.UTC().Format(time.RFC3339Nano)
	limits := []string{"do", "limits", "scope", "tenant", "key", "acme", "limits", "20/1m"}
	question := post(t.Context(), h, append(limits, "lasts", was)...).text
	for _, want := range []string{"To undo it: Set 5/1m until " + was + ", why: spring.",
		`<input type="hidden" name="lasts" value="` + was + `"`, ", why: spring</b>. Make it: <b>20/1m until "} {
		if !strings.Contains(question, want) {
			t.Errorf("the question lacks %q\n%s", want, question)
		}
	}
	if err := in.SetLimits(t.Context(), "tenant", "acme", five, inspect.Until(end), inspect.Why("summer")); err != nil {
		t.Fatal(err)
	}
	before, _ := asked(question)
	if again := post(t.Context(), h, append(limits, "why", "autumn", "sure", before)...).text; !strings.Contains(again,
		", why: summer</b>. Make it: <b>20/1m, why: autumn</b>") {
		t.Errorf("somebody has given another reason meanwhile, and it does not ask again\n%s", again)
	}
	paused, err := in.Pause(t.Context(), throttle.Global, "", end, inspect.Why("a flood"))
	if err != nil {
		t.Fatal(err)
	}
	undo := "To undo it: Resume, then Pause until " + paused.UTC().Format(time.RFC3339Nano) + ", why: a flood."
	all := post(t.Context(), h, "do", "pause", "scope", "global", "key", "", "for", "3h").text
	if !strings.Contains(all, undo) {
		t.Errorf("the question lacks %q\n%s", undo, all)
	}
}

// TestEndsAreOnRedisClock: where the clock of this machine differs, an end is entered, asked about and set on Redis'
// clock, as pages show it.
func TestEndsAreOnRedisClock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now().Add(10 * time.Minute).UTC()
	w.server.SetTime(now)
	h, in := w.pages(&dashboard.Options{AllowChanges: true}), inspect.New(w.throttle)
	later := now.Add(2 * time.Hour)
	entered := later.Format(time.RFC3339Nano)
	limits := []string{"do", "limits", "scope", "tenant", "key", "acme", "limits", "20/1m", "lasts", entered}
	question := post(t.Context(), h, limits...).text
	if want := "20/1m until " + later.Format("2006-01-02 15:04") + " UTC</b>"; !strings.Contains(question, want) {
		t.Errorf("the question lacks %q\n%s", want, question)
	}
	before, _ := asked(question)
	for what, form := range map[string][]string{
		"limits": append(limits, "sure", before),
		"pause":  {"do", "pause", "scope", "tenant", "key", "acme", "for", "2h"},
	} {
		got := post(t.Context(), h, form...)
		set, err := in.SettingsOf(t.Context(), "tenant", "acme")
		if end := view.Find(set, what).Until; err != nil || got.status != http.StatusSeeOther ||
			end.Sub(later).Abs() > time.Minute {
			t.Errorf("%s: status %d, until %s, %v, want %s", what, got.status, end, err, later)
		}
	}
	past := url.Values{"scope": {"tenant"}, "key": {"acme"}, "limits": {"5/1h"},
		"lasts": {now.Add(-time.Minute).Format(time.RFC3339)}}
	if got := get(t.Context(), h, "/key?"+past.Encode()); got.status != http.StatusBadRequest ||
		!strings.Contains(got.text, "is past") {
		t.Errorf("an end that is past by Redis' clock: status %d\n%s", got.status, got.text)
	}
}

// deadlines is a writer that notes the deadline for reading the body.
type deadlines struct {
	http.ResponseWriter
	read []time.Time
}

func (d *deadlines) SetReadDeadline(until time.Time) error {
	d.read = append(d.read, until)
	return nil
}

// TestBodyMayNotTakeForEver: reading a body has a time-out on any server; requests without a body
// have none.
func TestBodyMayNotTakeForEver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.pages(nil)
	for _, c := range []struct {
		r    *http.Request
		want int
	}{
		{form(t.Context(), "do", "resume"), 1},
		{httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody), 0},
		{httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", strings.NewReader("slow")), 1},
	} {
		d := &deadlines{ResponseWriter: httptest.NewRecorder()}
		h.ServeHTTP(d, c.r)
		if len(d.read) != c.want {
			t.Errorf("%s: %d deadlines, want %d", c.r.Method, len(d.read), c.want)
		}
	}
}

// TestChangeSaysWhoWhyUntilWhen: what was set on a page is shown everywhere with its end, the reason and
// the person, on the overview, among the changes and on the page of the scope key.
func TestChangeSaysWhoWhyUntilWhen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.pages(&dashboard.Options{AllowChanges: true})
	send := func(sure string) answer {
		r := form(t.Context(), "do", "limits", "scope", "tenant", "key", "acme", "limits", "182/1h", "lasts", "4h",
			"why", "spring", "sure", sure)
		r.SetBasicAuth("ann", "secret")
		return ask(h, r)
	}
	before, _ := asked(send("").text)
	if got := send(before); got.status != http.StatusSeeOther {
		t.Fatalf("status %d\n%s", got.status, got.text)
	}
	set, err := inspect.New(w.throttle).SettingsOf(t.Context(), "tenant", "acme")
	if err != nil {
		t.Fatal(err)
	}
	until := view.Clock(view.Find(set, "limits").Until)
	for target, want := range map[string][]string{
		"/": {"182/1h", "ann, ", "spring", until}, "/changes": {"182/1h", "ann, ", "spring", until},
		"/key?scope=tenant&key=acme": {"set at run time for the key until " + until + ", by ann, ", ": spring"},
	} {
		page := get(t.Context(), h, target).text
		for _, text := range want {
			if !strings.Contains(page, text) {
				t.Errorf("%s lacks %q\n%s", target, text, page)
			}
		}
		if strings.Contains(page, "@1µs") {
			t.Errorf("%s shows the precision that 182/1h has anyway", target)
		}
	}
}
