package chat_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/chat"
)

// said is a transport whose every answer is a stream.
type said []byte

func (s said) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}},
		Body: io.NopCloser(bytes.NewReader(s))}, nil
}

// A stream that was read has a last event, and no more text than was sent.
func FuzzStream(f *testing.F) {
	for _, seed := range []string{
		"", "data: [DONE]\n\n", "data: {}\ndata:[DONE]",
		"data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\r\n\r\ndata: [DONE]\r\n",
		"data: {\"choices\":[null]}\n\ndata: [DONE]\n", "data: null\ndata: [DONE]\n",
		"data: {\"usage\":{\"total_tokens\":-1}}\ndata: [DONE]\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		client := &chat.Client{BaseURL: "http://provider.example", HTTP: &http.Client{Transport: said(body)}}
		a, err := client.Complete(t.Context(), "one", chat.Request{})
		switch {
		case err != nil && a != nil:
			t.Errorf("an answer with an error: %+v, %v", a, err)
		case err == nil && !strings.Contains(string(body), chat.Done):
			t.Errorf("read to its end without a last event: %q", body)
		case err == nil && len(a.Text) > 3*len(body): // a byte that is no UTF-8 becomes three
			t.Errorf("%q was read from %q", a.Text, body)
		}
	})
}
