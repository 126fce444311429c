// Package fetch requests pages: of a body no more than was charged for it, and from no
// address that is not public.
//
// It is not part of the example because of its size. The throttle needs one figure of it, how much was sent:
// Answer.Sent.
package fetch

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// How a page is fetched.
const (
	connectTimeout = 5 * time.Second
	// OnTheWay is how many kilobytes of a body a server may have sent beyond the bytes that were read when the reading
	// stops: they fill the buffers of both sides. It is charged with every page, and settled if a page was cut.
	OnTheWay = 32
)

// Kilobyte is the number of bytes in a kilobyte.
const Kilobyte = 1 << 10

// Kilobytes returns a size in whole kilobytes, rounded up; at least one, because no request is free.
func Kilobytes(bytes int64) int64 { return max(1, (bytes+Kilobyte-1)/Kilobyte) }

// Answer is what a server said to one request.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte // decoded
	Bytes  int64  // bytes of the body as it was sent
	Sent   int64  // bytes of the body that the server may have sent: more than Bytes if it was cut
	Whole  int64  // the body's size if the server has told it, else -1
	Cut    bool   // the reading stopped before the body's end
	Huge   bool   // it was cut because it unpacks to more bytes than it may
}

// Location returns the target of a redirect as the header has it, and nothing for other answers.
func (a *Answer) Location() string {
	switch a.Status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect,
		http.StatusPermanentRedirect:
		return a.Header.Get("Location")
	}
	return ""
}

// IsHTML reports whether the body may have links.
func (a *Answer) IsHTML() bool {
	kind := strings.ToLower(a.Header.Get("Content-Type"))
	return strings.HasPrefix(kind, "text/html") || strings.HasPrefix(kind, "application/xhtml+xml")
}

// Fetcher sends requests. It follows no redirects, keeps no cookies, and reads no
// more of a body than it is told to. It is safe for concurrent use.
type Fetcher struct {
	Client *http.Client
	agent  string // the User-Agent header
}

// New returns a fetcher that connects where a resolver says. The timeout is for one request, including its body.
func New(r *Resolver, agent string, timeout time.Duration) *Fetcher {
	return &Fetcher{agent: agent, Client: &http.Client{
		Timeout: timeout, // for the whole request, including the body
		Transport: &http.Transport{
			DialContext:            r.dial,
			DisableCompression:     true, // so that the bytes that were sent are counted
			MaxConnsPerHost:        1,
			MaxIdleConns:           100,
			IdleConnTimeout:        30 * time.Second,
			TLSHandshakeTimeout:    connectTimeout,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close ends the connections that are kept.
func (f *Fetcher) Close() { f.Client.CloseIdleConnections() }

// Condition is the state of a page at its last answer. A request with it is answered by 304 if the page has not
// changed.
type Condition struct {
	ETag     string `json:"etag,omitempty"`
	Modified string `json:"modified,omitempty"`
}

// ConditionOf returns the condition with which to request an answer's page again.
func ConditionOf(a *Answer) Condition {
	return Condition{ETag: a.Header.Get("ETag"), Modified: a.Header.Get("Last-Modified")}
}

// Bounds is how much of a body is read.
type Bounds struct {
	Sent     int64 // bytes, as they are sent
	Unpacked int64 // bytes, when decoded
	Part     bool  // a part of a longer body is of use
}

// Fetch requests u and reads its body within bounds. With an error it may still return the part of the answer that
// came.
func (f *Fetcher) Fetch(ctx context.Context, u *url.URL, last Condition, most Bounds) (*Answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", f.agent)
	request.Header.Set("Accept", "text/html, application/xhtml+xml, */*;q=0.1")
	request.Header.Set("Accept-Encoding", "gzip")
	if last.ETag != "" {
		request.Header.Set("If-None-Match", last.ETag)
	}
	if last.Modified != "" {
		request.Header.Set("If-Modified-Since", last.Modified)
	}
	response, err := f.Client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }() // its errors have been returned already
	a := &Answer{Status: response.StatusCode, Header: response.Header, Whole: response.ContentLength}
	if a.Whole > most.Sent && !most.Part {
		a.Cut, a.Sent = true, min(a.Whole, OnTheWay*Kilobyte)
		return a, nil
	}
	err = a.read(response.Body, most)
	return a, err
}

// read reads the body up to its bounds.
func (a *Answer) read(body io.Reader, most Bounds) error {
	wire := &meter{reader: body, left: most.Sent}
	var plain io.Reader = wire
	var err error
	if a.Header.Get("Content-Encoding") == "gzip" {
		plain, err = gzip.NewReader(wire)
		if errors.Is(err, io.EOF) && wire.count == 0 {
			plain, err = wire, nil // as of a 304
		}
	}
	if err == nil {
		a.Body, err = io.ReadAll(io.LimitReader(plain, most.Unpacked+1))
	}
	a.Bytes, a.Sent = wire.count, wire.count
	if a.Huge = int64(len(a.Body)) > most.Unpacked; a.Huge {
		a.Body = a.Body[:most.Unpacked]
	}
	if a.Cut = a.Huge || errors.Is(err, errTooLong); a.Cut {
		a.Sent += OnTheWay * Kilobyte
		return nil
	}
	if err != nil {
		a.Sent += OnTheWay * Kilobyte
		return fmt.Errorf("the answer broke off: %w", err)
	}
	return nil
}

// errTooLong says that a body has more bytes than may be read.
var errTooLong = errors.New("the body is too long")

// meter counts what is read, and stops where a body goes on beyond its bound.
type meter struct {
	reader      io.Reader
	count, left int64
}

func (m *meter) Read(p []byte) (int, error) {
	if m.left <= 0 {
		var one [1]byte
		n, err := io.ReadFull(m.reader, one[:])
		if n > 0 {
			return 0, errTooLong
		}
		return 0, err
	}
	n, err := m.reader.Read(p[:min(int64(len(p)), m.left)])
	m.count += int64(n)
	m.left -= int64(n)
	return n, err
}

// NeverConnected reports whether an error came before a host was reached.
func NeverConnected(err error) bool {
	var op *net.OpError
	return errors.Is(err, ErrForbiddenAddress) || errors.As(err, &op) && op.Op == "dial"
}
