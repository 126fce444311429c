package fetch

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
)

// hostOf serves a handler and returns a fetcher that knows it as alder.example.
func hostOf(t *testing.T, handler http.HandlerFunc) *Fetcher {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	own := netip.MustParseAddr("127.0.0.2")
	f := New(&Resolver{
		Own:    map[netip.Addr]string{own: server.Listener.Addr().String()},
		Lookup: func(context.Context, string) ([]netip.Addr, error) { return []netip.Addr{own}, nil },
	}, "crawler-test", 5*time.Second)
	t.Cleanup(f.Close)
	return f
}

func mustURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func zipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// F67: a body is cut at its bounds, whatever length the server states, and the bytes that the
// server really sent are counted.
func TestFetchKeepsToItsBounds(t *testing.T) {
	t.Parallel()
	const bound = 20_000
	page := strings.Repeat("x", 10_000)
	packed := zipped(t, page)
	bomb := zipped(t, strings.Repeat("x", 10<<20))
	for _, row := range []struct {
		name    string
		handler http.HandlerFunc
		part    bool
		body    int // how many bytes of the body are read, decoded
		cut     bool
		huge    bool
		sent    int64 // at least
	}{
		{name: "plain", body: 10_000, sent: 10_000,
			handler: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, page) }},
		{name: "exactly the bound", body: bound, sent: bound,
			handler: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("x", bound)) }},
		{name: "a byte more", cut: true, sent: bound,
			handler: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("x", bound+1)) }},
		{name: "of known size, too large", cut: true, sent: 1,
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", strconv.Itoa(10*bound))
				fmt.Fprint(w, strings.Repeat("x", 10*bound))
			}},
		{name: "of which a part is of use", part: true, body: bound, cut: true, sent: bound,
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", strconv.Itoa(10*bound))
				fmt.Fprint(w, strings.Repeat("x", 10*bound))
			}},
		{name: "endless", body: bound, cut: true, sent: bound,
			handler: func(w http.ResponseWriter, r *http.Request) {
				for r.Context().Err() == nil {
					fmt.Fprint(w, page)
				}
			}},
		{name: "packed", body: 10_000, sent: 1,
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				fmt.Fprint(w, packed)
			}},
		{name: "gzip bomb", body: bound, cut: true, huge: true, sent: 1,
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				fmt.Fprint(w, bomb)
			}},
		{name: "unchanged", sent: 0,
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				w.WriteHeader(http.StatusNotModified)
			}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			a, err := hostOf(t, row.handler).Fetch(t.Context(), mustURL(t, "http://alder.example/"), Condition{},
				Bounds{Sent: bound, Unpacked: bound, Part: row.part})
			if err != nil {
				t.Fatal(err)
			}
			if row.name == "a byte more" || row.name == "endless" {
				row.body = len(a.Body) // where the body was cut, which may differ
			}
			if len(a.Body) != row.body || a.Cut != row.cut || a.Huge != row.huge {
				t.Errorf("got %d bytes, cut %v, huge %v; want %d, %v, %v", len(a.Body), a.Cut, a.Huge, row.body, row.cut, row.huge)
			}
			if a.Bytes > bound || a.Sent < row.sent || a.Sent > bound+OnTheWay*Kilobyte || len(a.Body) > bound {
				t.Errorf("%d bytes read, %d taken as sent, %d decoded", a.Bytes, a.Sent, len(a.Body))
			}
		})
	}
}

func TestFetchReportsWhatBreaks(t *testing.T) {
	t.Parallel()
	most := Bounds{Sent: 1000, Unpacked: 1000}
	t.Run("no gzip", func(t *testing.T) {
		t.Parallel()
		a, err := hostOf(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			fmt.Fprint(w, "this is no gzip")
		}).Fetch(t.Context(), mustURL(t, "http://alder.example/"), Condition{}, most)
		if err == nil || a == nil || a.Bytes == 0 {
			t.Errorf("got %+v, %v", a, err)
		}
	})
	t.Run("broken off", func(t *testing.T) {
		t.Parallel()
		a, err := hostOf(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "900")
			fmt.Fprint(w, "half")
		}).Fetch(t.Context(), mustURL(t, "http://alder.example/"), Condition{}, most)
		if err == nil || a == nil || a.Bytes != 4 || NeverConnected(err) {
			t.Errorf("got %+v, %v", a, err)
		}
	})
	t.Run("too late", func(t *testing.T) {
		t.Parallel()
		f := hostOf(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		f.Client.Timeout = 50 * time.Millisecond
		a, err := f.Fetch(t.Context(), mustURL(t, "http://alder.example/"), Condition{}, most)
		var timeout net.Error
		if a != nil || !errors.As(err, &timeout) || !timeout.Timeout() || NeverConnected(err) {
			t.Errorf("got %+v, %v", a, err)
		}
	})
	t.Run("nobody listens", func(t *testing.T) {
		t.Parallel()
		f := hostOf(t, nil)
		f.Client.Transport.(*http.Transport).DialContext = (&Resolver{
			Own: map[netip.Addr]string{netip.MustParseAddr("127.0.0.2"): "127.0.0.1:1"},
			Lookup: func(context.Context, string) ([]netip.Addr, error) {
				return []netip.Addr{netip.MustParseAddr("127.0.0.2")}, nil
			},
		}).dial
		if a, err := f.Fetch(t.Context(), mustURL(t, "http://alder.example/"), Condition{}, most); a != nil ||
			!NeverConnected(err) {
			t.Errorf("got %+v, %v", a, err)
		}
	})
}

func TestFetchSaysWhoItIsAndWhatItHas(t *testing.T) {
	t.Parallel()
	f := hostOf(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/elsewhere")
		w.Header().Set("ETag", `"2"`)
		if r.UserAgent() != "crawler-test" || r.Host != "alder.example" || r.Header.Get("If-None-Match") != `"1"` ||
			r.Header.Get("If-Modified-Since") != "then" {
			t.Errorf("got %v", r.Header)
		}
		w.WriteHeader(http.StatusFound)
	})
	a, err := f.Fetch(t.Context(), mustURL(t, "http://alder.example/"), Condition{ETag: `"1"`, Modified: "then"},
		Bounds{Sent: 10, Unpacked: 10})
	if err != nil || a.Status != http.StatusFound || a.Location() != "/elsewhere" {
		t.Errorf("got %+v, %v: Fetch must not follow a redirect", a, err)
	}
	if ConditionOf(a).ETag != `"2"` {
		t.Errorf("got %+v", ConditionOf(a))
	}
}
