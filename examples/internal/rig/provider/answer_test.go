package provider_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/chat"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/provider"
)

func newProvider(seed uint64) *provider.Provider {
	return provider.New(
		provider.Options{Models: map[string]provider.Limits{"small": {Requests: 1000, Tokens: 1_000_000}},
			Window: time.Minute, Seed: seed})
}

// The client reads a streamed completion as it reads a whole one, over a network.
func TestClientReadsBothForms(t *testing.T) {
	t.Parallel()
	p := newProvider(7)
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	client := &chat.Client{BaseURL: server.URL + "/v1/", HTTP: server.Client()}
	r := prompt(20, 100)
	whole, err := client.Complete(t.Context(), "whole", r)
	if err != nil {
		t.Fatal(err)
	}
	r.Stream = true
	streamed, err := client.Complete(t.Context(), "streamed", r)
	if err != nil {
		t.Fatal(err)
	}
	if whole.Text != streamed.Text || whole.Usage == nil || streamed.Usage == nil || *whole.Usage != *streamed.Usage {
		t.Fatalf("got %+v, streamed %+v", whole, streamed)
	}
	if n := whole.Usage.CompletionTokens; n < 50 || n > 100 || chat.Tokens(whole.Text) != n ||
		whole.Usage.PromptTokens != 20 || whole.Usage.TotalTokens != 20+n {
		t.Errorf("%+v for %q", whole.Usage, whole.Text)
	}
	for _, noted := range p.Record.All() {
		if noted.Tokens() != whole.Usage.TotalTokens || noted.End.Before(noted.At) {
			t.Errorf("the record has %+v", noted)
		}
	}
}

// A stream, to the letter.
func TestStream(t *testing.T) {
	t.Parallel()
	r := prompt(20, 12)
	r.Stream, r.StreamOptions = true, &chat.StreamOptions{IncludeUsage: true}
	w := ask(t.Context(), newProvider(1), "one", r)
	if kind := w.Header().Get("Content-Type"); kind != "text/event-stream" || !w.Flushed {
		t.Errorf("Content-Type %q, flushed %v", kind, w.Flushed)
	}
	events := strings.Split(strings.TrimSuffix(w.Body.String(), "\n\n"), "\n\n")
	var text string
	for i, event := range events[:len(events)-1] {
		var chunk chat.Reply
		if err := json.Unmarshal([]byte(strings.TrimPrefix(event, "data: ")), &chunk); err != nil ||
			chunk.Object != "chat.completion.chunk" || chunk.Model != "small" {
			t.Fatalf("event %d: %q, %v", i, event, err)
		}
		last := i == len(events)-2
		if last != (len(chunk.Choices) == 0) || last != (chunk.Usage != nil) ||
			last && !strings.Contains(event, `"choices":[]`) {
			t.Errorf("event %d of %d: %s", i, len(events), event)
		}
		if !last {
			text += chunk.Choices[0].Delta.Content
			if ends := chunk.Choices[0].Finish != nil; ends != (i == len(events)-3) {
				t.Errorf("event %d of %d has a finish_reason: %v", i, len(events), ends)
			}
		}
	}
	if n := chat.Tokens(text); n < 6 || n > 12 || events[len(events)-1] != "data: [DONE]" {
		t.Errorf("%d tokens, the last event is %q", n, events[len(events)-1])
	}
	r.StreamOptions = nil
	if body := ask(t.Context(), newProvider(1), "two", r).Body.String(); strings.Contains(body, "usage") {
		t.Errorf("usage in a stream of which it was not asked:\n%s", body)
	}
}

// A provider of the same seed answers the same request in the same way, whatever came before; it answers other requests
// differently.
func TestCompletionsAreDrawnFromTheSeed(t *testing.T) {
	t.Parallel()
	say := func(p *provider.Provider, r chat.Request) string {
		var reply chat.Reply
		w := ask(t.Context(), p, "", r)
		if err := json.Unmarshal(w.Body.Bytes(), &reply); err != nil || w.Code != http.StatusOK {
			t.Fatal(err, w.Code)
		}
		return reply.Choices[0].Message.Content
	}
	one := newProvider(1)
	first := say(one, prompt(20, 100))
	if other := say(one, prompt(21, 100)); other == first {
		t.Error("another prompt has the same completion")
	}
	if again := say(one, prompt(20, 100)); again != first {
		t.Error("the same prompt has another completion")
	}
	if other := say(newProvider(2), prompt(20, 100)); other == first {
		t.Error("another seed draws the same completion")
	}
	var sum int64
	for i := range int64(400) {
		n := chat.Tokens(say(one, prompt(20+i, 100)))
		if n < 50 || n > 100 {
			t.Fatalf("%d tokens, want 50 to 100", n)
		}
		sum += n
	}
	if mean := sum / 400; mean < 72 || mean > 78 {
		t.Errorf("%d tokens on average, want about 75", mean)
	}
}
