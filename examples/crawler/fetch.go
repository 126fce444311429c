package main

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// How a page is fetched.
const (
	connectTimeout = 5 * time.Second
	// onTheWay is what a server may have sent of a body when the reading stops, in
	// kilobytes: it fills the buffers of both sides. It is charged with every page,
	// and settled where a page was cut.
	onTheWay = 32
)

const kilobyte = 1 << 10

// kilobytes is a size in whole kilobytes, rounded up; at least one, since no
// request is for nothing.
func kilobytes(bytes int64) int64 { return max(1, (bytes+kilobyte-1)/kilobyte) }

// answer is what a server said to one request.
type answer struct {
	status int
	header http.Header
	body   []byte // decoded
	bytes  int64  // of the body as it was sent
	sent   int64  // what the server may have sent of it, in bytes: more where it was cut
	whole  int64  // the body's size if the server has told it, else -1
	cut    bool   // the reading stopped before the body's end
	huge   bool   // for it unpacks to more than it may
}

// location is where a redirect leads to, as it stands; empty of other answers.
func (a *answer) location() string {
	switch a.status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return a.header.Get("Location")
	}
	return ""
}

// isHTML tells whether the body may have links.
func (a *answer) isHTML() bool {
	kind := strings.ToLower(a.header.Get("Content-Type"))
	return strings.HasPrefix(kind, "text/html") || strings.HasPrefix(kind, "application/xhtml+xml")
}

// fetcher sends requests. It follows no redirects, keeps no cookies, and reads no
// more of a body than it is told to. It is safe for concurrent use.
type fetcher struct {
	client *http.Client
	agent  string // the User-Agent header
}

func newFetcher(r *resolver, agent string, timeout time.Duration) *fetcher {
	return &fetcher{agent: agent, client: &http.Client{
		Timeout: timeout, // of all of it, the body included
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
func (f *fetcher) Close() { f.client.CloseIdleConnections() }

// condition is what a page was the last time, for a request that is answered by
// 304 if it still is.
type condition struct {
	ETag     string `json:"etag,omitempty"`
	Modified string `json:"modified,omitempty"`
}

// conditionOf is the condition to ask for an answer's page again.
func conditionOf(a *answer) condition {
	return condition{ETag: a.header.Get("ETag"), Modified: a.header.Get("Last-Modified")}
}

// bounds is how much of a body is read.
type bounds struct {
	sent     int64 // bytes, as they are sent
	unpacked int64 // bytes, when decoded
	part     bool  // a part of a longer body is of use
}

// fetch requests u and reads its body within bounds. The answer may be there even
// with an error: as far as it came.
func (f *fetcher) fetch(ctx context.Context, u *url.URL, last condition, most bounds) (*answer, error) {
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
	response, err := f.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }() // what is wrong with it has been read
	a := &answer{status: response.StatusCode, header: response.Header, whole: response.ContentLength}
	if a.whole > most.sent && !most.part {
		a.cut, a.sent = true, min(a.whole, onTheWay*kilobyte)
		return a, nil
	}
	err = a.read(response.Body, most)
	return a, err
}

// read reads the body up to its bounds.
func (a *answer) read(body io.Reader, most bounds) error {
	wire := &meter{reader: body, left: most.sent}
	var plain io.Reader = wire
	var err error
	if a.header.Get("Content-Encoding") == "gzip" {
		plain, err = gzip.NewReader(wire)
		if errors.Is(err, io.EOF) && wire.count == 0 {
			plain, err = wire, nil // as of a 304
		}
	}
	if err == nil {
		a.body, err = io.ReadAll(io.LimitReader(plain, most.unpacked+1))
	}
	a.bytes, a.sent = wire.count, wire.count
	if a.huge = int64(len(a.body)) > most.unpacked; a.huge {
		a.body = a.body[:most.unpacked]
	}
	if a.cut = a.huge || errors.Is(err, errTooLong); a.cut {
		a.sent += onTheWay * kilobyte
		return nil
	}
	if err != nil {
		a.sent += onTheWay * kilobyte
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
