package chat_test

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/chat"
)

func TestTokens(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"": 0, "a": 1, "abcd": 1, "abcde": 2, "é": 1, strings.Repeat("x", 400): 100} {
		if got := chat.Tokens(text); got != want {
			t.Errorf("%q: %d tokens, want %d", text, got, want)
		}
	}
	if got := chat.PromptTokens([]chat.Message{{Content: "abcd"}, {Content: "abcde"}}); got != 4+1+4+2 {
		t.Errorf("two messages: %d tokens, want 11", got)
	}
}

// serve answers each request with a status, a kind of content and a body.
func serve(t *testing.T, status int, kind, body string) *chat.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return &chat.Client{BaseURL: server.URL + "/v1", HTTP: server.Client()}
}

func TestComplete(t *testing.T) {
	t.Parallel()
	const events, plain = "text/event-stream; charset=utf-8", "application/json"
	const usage = `data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}` + "\n\n"
	for _, row := range []struct {
		name   string
		status int
		kind   string
		body   string
		want   chat.Answer
		total  int64 // tokens; -1 if they are not told
		err    string
	}{
		{"whole", 200, plain,
			`{"choices":[{"message":{"role":"assistant","content":"hi"}}],` +
				`"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`, chat.Answer{Text: "hi"}, 5, ""},
		{"without usage", 200, plain, `{"choices":[{"message":{"content":"hi"}}]}`, chat.Answer{Text: "hi"}, -1, ""},
		{"cut", 200, plain, `{"choices":[{"mess`, chat.Answer{}, 0, "broke off"},
		{"no choices", 200, plain, `{"choices":[]}`, chat.Answer{}, 0, "no completion"},
		{"streamed", 200, events,
			"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n" +
				"data:{\"choices\":[{\"delta\":{\"content\":\"h\"}}]}\r\n\r\n: ping\n\nevent: message\ndata: " +
				"{\"choices\":[{\"delta\":{\"content\":\"i\"}},{\"index\":1,\"delta\":{\"content\":\"!\"}}]}\n\n" +
				usage + "data: [DONE]\n\n", chat.Answer{Text: "hi"}, 5, ""},
		{"streamed without usage", 200, events,
			"data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\ndata: [DONE]\n\n", chat.Answer{Text: "hi"}, -1, ""},
		{"a stream that is cut", 200, events, "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n" + usage,
			chat.Answer{}, 0, "unexpected EOF"},
		{"a stream that fails", 200, events, "data: {\"error\":{\"message\":\"overloaded\"}}\n\ndata: [DONE]\n\n",
			chat.Answer{}, 0, "overloaded"},
		{"a chunk that is none", 200, events, "data: hello\n\n", chat.Answer{}, 0, "cannot be read"},
		{"a line without end", 200, events, "data: " + strings.Repeat("x", 2<<20), chat.Answer{}, 0, "too long"},
		{"refused", 429, plain, `{"error":{"message":"slow down","code":"rate_limit_exceeded"}}`,
			chat.Answer{Reason: "slow down"}, -1, ""},
		{"broken", 502, "text/html", "<h1>Bad Gateway</h1>", chat.Answer{Reason: "Bad Gateway"}, -1, ""},
	} {
		got, err := serve(t, row.status, row.kind, row.body).Complete(t.Context(), "one",
			chat.Request{Model: "small", Stream: true})
		if row.err != "" {
			if err == nil || !strings.Contains(err.Error(), row.err) {
				t.Errorf("%s: got %v, want an error with %q", row.name, err, row.err)
			}
			continue
		}
		total := int64(-1)
		if err == nil && got.Usage != nil {
			total = got.Usage.TotalTokens
		}
		if err != nil || got.Status != row.status || got.Text != row.want.Text || got.Reason != row.want.Reason ||
			total != row.total {
			t.Errorf("%s: got %+v with %d tokens, %v; want %+v with %d", row.name, got, total, err, row.want, row.total)
		}
	}
}

// What a provider is asked, to the letter.
func TestRequest(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusTeapot)
		said := strings.Join([]string{r.Method, r.URL.Path, r.Header.Get("Authorization"),
			r.Header.Get(chat.HeaderID), string(body)}, " ")
		_ = json.NewEncoder(w).Encode(chat.Reply{Error: &chat.Failure{Message: said}})
	}))
	t.Cleanup(server.Close)
	client := &chat.Client{BaseURL: server.URL + "/v1", Key: "secret", HTTP: server.Client()}
	for stream, want := range map[bool]string{
		false: `POST /v1/chat/completions Bearer secret id {"model":"small","messages":[{"role":"user","content":"hi"}],` +
			`"max_tokens":5,"user":"acme"}`,
		true: `POST /v1/chat/completions Bearer secret id {"model":"small","messages":[{"role":"user","content":"hi"}],` +
			`"max_tokens":5,"stream":true,"stream_options":{"include_usage":true},"user":"acme"}`,
	} {
		got, err := client.Complete(t.Context(), "id",
			chat.Request{Model: "small", Messages: []chat.Message{{Role: "user", Content: "hi"}}, MaxTokens: 5,
				User: "acme", Stream: stream})
		if err != nil || got.Reason != want {
			t.Errorf("got %+v, %v; want %s", got, err, want)
		}
	}
}

func TestNeverConnected(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	_ = listener.Close()
	client := &chat.Client{BaseURL: "http://" + addr + "/v1", Key: "secret", HTTP: http.DefaultClient}
	if _, err = client.Complete(t.Context(), "one", chat.Request{}); !chat.NeverConnected(err) ||
		strings.Contains(err.Error(), "secret") {
		t.Errorf("nobody listens: got %v", err)
	}
	_, err = serve(t, 200, "application/json", "").Complete(t.Context(), "one", chat.Request{})
	if err == nil || chat.NeverConnected(err) || chat.NeverConnected(nil) || chat.NeverConnected(errors.New("other")) {
		t.Errorf("an empty answer: got %v", err)
	}
}
