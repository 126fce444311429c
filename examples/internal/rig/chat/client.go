package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
)

// mostBytes is how much of an answer is read.
const mostBytes = 16 << 20

// Client asks one provider. It is safe for concurrent use.
type Client struct {
	BaseURL string // such as https://api.openai.com/v1
	Key     string // sent as a bearer token; empty for none
	HTTP    *http.Client
}

// Answer is what a provider said to one request.
type Answer struct {
	Status int
	Header http.Header
	Text   string // the text of the completion
	Usage  *Usage // nil if the provider did not name it
	Reason string // why there is no completion, in the provider's words
}

// Complete asks for a completion and reads the answer to its end. The caller chooses the ID
// of the request. An error means that there was no answer or that it broke off; an answer
// without a completion is not an error.
func (c *Client) Complete(ctx context.Context, id string, r Request) (*Answer, error) {
	if r.Stream {
		r.StreamOptions = &StreamOptions{IncludeUsage: true}
	}
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("chat: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(c.BaseURL, "/")+Path,
		bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("chat: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(HeaderID, id)
	if c.Key != "" {
		request.Header.Set("Authorization", "Bearer "+c.Key)
	}
	response, err := c.HTTP.Do(request)
	if err != nil {
		return nil, fmt.Errorf("chat: %w", err)
	}
	defer func() { _ = response.Body.Close() }() // an error of the body was returned by read
	return read(response)
}

// read reads an answer.
func read(response *http.Response) (*Answer, error) {
	a := &Answer{Status: response.StatusCode, Header: response.Header}
	body := io.LimitReader(response.Body, mostBytes)
	var err error
	switch kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); {
	case a.Status != http.StatusOK:
		a.readFailure(body)
	case kind == "text/event-stream":
		err = a.readStream(body)
	default:
		err = a.readWhole(body)
	}
	if err != nil {
		return nil, fmt.Errorf("chat: the answer broke off: %w", err)
	}
	return a, nil
}

// readFailure reads why there is no completion, or takes the status' text.
func (a *Answer) readFailure(body io.Reader) {
	a.Reason = http.StatusText(a.Status)
	var reply Reply
	if err := json.NewDecoder(body).Decode(&reply); err == nil && reply.Error != nil {
		a.Reason = reply.Error.Message
	}
	_, _ = io.Copy(io.Discard, body) // so that the connection can be used again
}

// readWhole reads a completion that is not streamed.
func (a *Answer) readWhole(body io.Reader) error {
	text, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	var reply Reply
	if err := json.Unmarshal(text, &reply); err != nil {
		return err
	}
	if len(reply.Choices) == 0 || reply.Choices[0].Message == nil {
		return errors.New("it has no completion")
	}
	a.Text, a.Usage = reply.Choices[0].Message.Content, reply.Usage
	return nil
}

// NeverConnected reports whether an error came before the provider was reached.
func NeverConnected(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
