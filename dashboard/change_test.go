package dashboard_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/asynq-throttle/asynq-throttle/dashboard"
)

// TestChange: each button does what it says, is logged with who, and the page shows it at
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
		r := form(t.Context(), "do", c.do, "scope", "tenant", "key", hostile, c.field, c.value)
		r.SetBasicAuth("ann", "secret")
		got := ask(h, r)
		if got.header.Get("Location") != "key?key="+url.QueryEscape(hostile)+"&scope=tenant" || got.status != http.StatusSeeOther {
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
	changes, err := w.throttle.Changes(t.Context())
	if err != nil || len(changes) != 5 { // one of the world's
		t.Errorf("%d changes, %v", len(changes), err)
	}
}

// TestChangeRefused: what comes from elsewhere, or from who may not, changes nothing.
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
		"read-only":      {dashboard.Options{}, func(*http.Request) {}, "AllowChanges"},
		"another site":   {dashboard.Options{AllowChanges: true}, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, "cross-origin"},
		"another host":   {dashboard.Options{AllowChanges: true}, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, "cross-origin"},
		"another origin": {dashboard.Options{AllowChanges: true}, func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "https://evil.example") }, "cross-origin"},
		"Authorize":      {dashboard.Options{AllowChanges: true, Authorize: func(*http.Request) error { return forbidden }}, func(*http.Request) {}, "on holiday"},
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
	u, err := w.throttle.Usage(t.Context(), "tenant", "acme")
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
		"no such verb":   {[]string{"do", "purge", "scope", "tenant", "key", "acme"}, 400, "nothing is called"},
		"no duration":    {[]string{"do", "pause", "scope", "tenant", "key", "acme", "for", "soon"}, 400, `value="soon"`},
		"too long":       {[]string{"do", "pause", "scope", "tenant", "key", "acme", "for", "401d"}, 400, "up to 400 days"},
		"no limit":       {[]string{"do", "limits", "scope", "tenant", "key", "acme", "limits", "<b>"}, 400, `value="&lt;b&gt;"`},
		"no such scope":  {[]string{"do", "pause", "scope", "host", "key", "acme", "for", "1h"}, 404, "no such scope"},
		"no key":         {[]string{"do", "pause", "scope", "tenant", "key", "", "for", "1h"}, 404, "Name a key"},
		"a key of all":   {[]string{"do", "pause", "scope", "global", "key", "x", "for", "1h"}, 404, "has no keys"},
		"more than text": {[]string{"do", "pause", "scope", "tenant", "key", strings.Repeat("x", 1<<15), "for", "1h"}, 400, "no form"},
	} {
		if got := post(t.Context(), h, c.fields...); got.status != c.status || !strings.Contains(got.text, c.has) {
			t.Errorf("%s: status %d, want %d with %q\n%s", name, got.status, c.status, c.has, got.text)
		}
	}
	w.server.SetError("READONLY You can't write against a read only replica.")
	if got := post(t.Context(), h, "do", "resume", "scope", "tenant", "key", "acme"); got.status != http.StatusServiceUnavailable || !strings.Contains(got.text, `role="alert"`) {
		t.Errorf("status %d\n%s", got.status, got.text)
	}
	if got := ask(h, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/key", http.NoBody)); got.status == http.StatusSeeOther {
		t.Errorf("status %d", got.status)
	}
}
