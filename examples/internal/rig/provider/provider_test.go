package provider_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/chat"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/provider"
)

// prompt returns a request of a number of tokens, four of which are its message's own.
func prompt(tokens, most int64) chat.Request {
	text := strings.Repeat("abcd", int(tokens-4))
	return chat.Request{Model: "small", Messages: []chat.Message{{Role: "user", Content: text}}, MaxTokens: most,
		User: "acme"}
}

// ask asks a provider, without a network.
func ask(ctx context.Context, p *provider.Provider, id string, r chat.Request) *httptest.ResponseRecorder {
	body, _ := json.Marshal(r)
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions", bytes.NewReader(body))
	request.Header.Set(chat.HeaderID, id)
	w := httptest.NewRecorder()
	p.ServeHTTP(w, request)
	return w
}

// told returns what the headers of an answer say: limit, remaining and reset of the requests, then of the tokens, and
// Retry-After.
func told(h http.Header) string {
	var all []string
	for _, name := range []string{"limit-requests", "remaining-requests", "reset-requests", "limit-tokens",
		"remaining-tokens", "reset-tokens"} {
		all = append(all, h.Get("x-ratelimit-"+name))
	}
	return strings.Join(append(all, h.Get("retry-after")), " ")
}

// What the provider serves when, and what its headers say. Here completions take no time, and one token.
func TestTimeline(t *testing.T) {
	t.Parallel()
	large := prompt(50, 1)
	large.Model = "large"
	for _, row := range []struct {
		name     string
		incident provider.Incident
		steps    []step
	}{
		{name: "requests", steps: []step{
			{at: 0, ask: prompt(10, 1), status: 200, told: "2 1 10s 100 89 10s "},
			{at: 1000, ask: prompt(10, 1), status: 200, told: "2 0 10s 100 78 10s "},
			{at: 1001, ask: prompt(10, 1), status: 429, told: "2 0 9.999s 100 78 9.999s 9"},
			{at: 9500, ask: prompt(10, 1), status: 429, told: "2 0 1.5s 100 78 1.5s 1"},
			{at: 9999, ask: prompt(10, 1), status: 429, told: "2 0 1.001s 100 78 1.001s 1"},
			{at: 10000, ask: prompt(10, 1), status: 200, told: "2 0 10s 100 78 10s "},
			{at: 10001, ask: prompt(10, 1), status: 429, told: "2 0 9.999s 100 78 9.999s 1"},
		}},
		{name: "tokens", steps: []step{
			{at: 0, ask: prompt(60, 1), status: 200, told: "2 1 10s 100 39 10s "},
			{at: 200, ask: prompt(39, 1), status: 429, told: "2 1 9.8s 100 39 9.8s 10"},
			{at: 300, ask: prompt(38, 1), status: 200, told: "2 0 10s 100 0 10s "},
		}},
		{name: "each model by itself", steps: []step{
			{at: 0, ask: prompt(60, 1), status: 200, told: "2 1 10s 100 39 10s "},
			{at: 200, ask: large, status: 200, told: "1 0 10s 60 9 10s "},
			{at: 300, ask: large, status: 429, told: "1 0 9.9s 60 9 9.9s 10"},
		}},
		{name: "less for a while", incident: provider.Incident{From: time.Second, Until: 12 * time.Second,
			Part: 0.6}, steps: []step{
			{at: 0, ask: prompt(59, 1), status: 200, told: "2 1 10s 100 40 10s "},
			{at: 1000, ask: prompt(9, 1), status: 429, told: "1 0 9s 60 0 9s 9"},
			{at: 9999, ask: prompt(70, 1), status: 429, told: "1 0 1ms 60 0 1ms 10"},
			{at: 10000, ask: prompt(59, 1), status: 200, told: "1 0 10s 60 0 10s "},
			{at: 11999, ask: prompt(10, 1), status: 429, told: "1 0 8.001s 60 0 8.001s 9"},
			{at: 12000, ask: prompt(10, 1), status: 200, told: "2 0 10s 100 29 10s "},
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := provider.New(provider.Options{
					Models: map[string]provider.Limits{"small": {Requests: 2, Tokens: 100}, "large": {Requests: 1, Tokens: 60}},
					Window: 10 * time.Second, Incident: row.incident,
				})
				began := time.Now()
				for i, one := range row.steps {
					time.Sleep(time.Until(began.Add(time.Duration(one.at) * time.Millisecond)))
					w := ask(t.Context(), p, fmt.Sprint(i), one.ask)
					if got := told(w.Header()); w.Code != one.status || got != one.told {
						t.Fatalf("step %d at %d ms: got %d %q, want %d %q", i, one.at, w.Code, got, one.status, one.told)
					}
					noted := p.Record.All()[i]
					if noted.ID != fmt.Sprint(i) || noted.Refused != (one.status == 429) ||
						noted.Model != one.ask.Model || noted.Customer != "acme" {
						t.Fatalf("step %d: the record has %+v", i, noted)
					}
				}
			})
		})
	}
}

type step struct {
	at     int // milliseconds
	ask    chat.Request
	status int
	told   string
}

// While a request is being answered, it counts the most that it may take.
func TestCountsMostUntilAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := provider.New(provider.Options{
			Models: map[string]provider.Limits{"small": {Requests: 10, Tokens: 200}},
			Window: time.Minute, FirstToken: time.Second, PerToken: 10 * time.Millisecond,
		})
		go ask(t.Context(), p, "first", prompt(50, 100))
		synctest.Wait()
		if w := ask(t.Context(), p, "second", prompt(10, 41)); w.Code != 429 {
			t.Errorf("while the first is answered: got %d, want 429", w.Code)
		}
		time.Sleep(10 * time.Second)
		used := p.Record.All()[0].Tokens()
		if used < 100 || used > 150 {
			t.Fatalf("a prompt of 50 tokens that may have 100 for its completion took %d", used)
		}
		left := 200 - used
		if w := ask(t.Context(), p, "too large", prompt(left-40, 41)); w.Code != 429 {
			t.Errorf("a token too many: got %d, want 429", w.Code)
		}
		if w := ask(t.Context(), p, "fits", prompt(left-41, 41)); w.Code != 200 {
			t.Errorf("as much as is left: got %d, want 200", w.Code)
		}
	})
}

// A client that hangs up pays for what was made until then.
func TestClientHangsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := provider.New(provider.Options{
			Models: map[string]provider.Limits{"small": {Requests: 10, Tokens: 2000}},
			Window: time.Minute, FirstToken: time.Second, PerToken: 10 * time.Millisecond,
		})
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		r := prompt(50, 1000)
		r.Stream = true
		w := ask(ctx, p, "one", r)
		noted := p.Record.All()[0]
		if noted.Completion != 48 || noted.End.Sub(noted.At) != 1500*time.Millisecond ||
			strings.Contains(w.Body.String(), chat.Done) {
			t.Errorf("the record has %+v, want the 48 tokens of half a second\n%s", noted, w.Body)
		}
		if got := ask(t.Context(), p, "two", prompt(10, 1)).Header().Get("x-ratelimit-remaining-tokens"); got !=
			fmt.Sprint(2000-98-11) {
			t.Errorf("%s tokens remain, want %d", got, 2000-98-11)
		}
	})
}

func TestWhatCannotBeServed(t *testing.T) {
	t.Parallel()
	p := provider.New(provider.Options{Models: map[string]provider.Limits{"small": {Requests: 10, Tokens: 100}},
		Window: time.Minute})
	body := func(r chat.Request) string { text, _ := json.Marshal(r); return string(text) }
	unknown, silent := prompt(10, 10), prompt(10, 10)
	unknown.Model, silent.Messages = "huge", nil
	for _, row := range []struct {
		name, method, path, body string
		status                   int
		code                     string
	}{
		{"a method", http.MethodGet, "/v1/chat/completions", "", 404, "unknown_url"},
		{"a path", http.MethodPost, "/v1/completions", body(prompt(10, 10)), 404, "unknown_url"},
		{"no JSON", http.MethodPost, "/v1/chat/completions", "{", 400, "invalid_json"},
		{"a huge body", http.MethodPost, "/v1/chat/completions", `{"model":"` + strings.Repeat("x", 1<<20) + `"}`,
			400, "invalid_json"},
		{"a model", http.MethodPost, "/v1/chat/completions", body(unknown), 404, "model_not_found"},
		{"no messages", http.MethodPost, "/v1/chat/completions", body(silent), 400, "invalid_messages"},
		{"no completion", http.MethodPost, "/v1/chat/completions", body(prompt(10, 0)), 400, "invalid_max_tokens"},
		{"more than a window", http.MethodPost, "/v1/chat/completions", body(prompt(50, 51)), 400, "request_too_large"},
		{"more than all", http.MethodPost, "/v1/chat/completions", body(prompt(50, 1<<62)), 400, "request_too_large"},
	} {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), row.method, row.path, strings.NewReader(row.body)))
		var reply chat.Reply
		if err := json.Unmarshal(w.Body.Bytes(), &reply); err != nil || w.Code != row.status ||
			reply.Error == nil || reply.Error.Code != row.code {
			t.Errorf("%s: got %d %s (%v), want %d %s", row.name, w.Code, w.Body, err, row.status, row.code)
		}
	}
	if n := len(p.Record.All()); n != 0 {
		t.Errorf("%d of them count", n)
	}
}
