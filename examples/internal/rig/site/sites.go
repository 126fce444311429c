// Package site is a small web on loopback: hosts with the habits that a crawler meets, each
// with an access log; and from their handlers, webs for tests.
package site

import (
	"compress/gzip"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/fetch"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/robots"
)

// Bundled returns the hosts that are crawled by default, each with a habit that a crawler meets. Each call returns
// hosts with a new state: for example, they have told nobody yet to come back later.
func Bundled() []Site {
	return []Site{
		{"www.alder.example", Loopback(2), Without(Tree(40, wideRange)), nil},
		{"docs.alder.example", Loopback(3),
			Ruled("User-agent: *\nDisallow: /search\n", Tree(12, Small, "/search?q=a", "/p/1#part", "./p/../p/2")),
			under("/search")},
		{"birch.example", Loopback(4), Ruled("", Tree(22, Large)), nil},
		{"cedar.example", Loopback(4), MovedRules("User-agent: *\nAllow: /\n", Tree(22, Large)), nil},
		{"dogwood.example", Loopback(5), Ruled("User-agent: *\nCrawl-delay: 1\nDisallow: /private/\nDisallow: /*.zip$\n",
			Tree(14, Small, "/private/a", "/private/b", "/archive.zip")), under("/private/", "/archive.zip")},
		{"elm.example", Loopback(6), Ruled("User-agent: other\nDisallow: /\n", Busy(Tree(14, Small), 6, 11)), nil},
		{"fir.example", Loopback(7), Down(Ruled("", Tree(14, wideRange))), nil},
		{"hazel.example", Loopback(8), Ruled("User-agent: *\nDisallow:\n", slow(Tree(12, Small))), nil},
		{"larch.example", Loopback(9),
			Without(
				redirecting(Tree(6, Small, "/loop/a", "/chain/1", "/to/private", "/to/inside", "/to/metadata", "/gone"))), nil},
		{"maple.example", Loopback(10), Without(Oversized(Tree(6, Small, "/endless", "/bomb", "/declared", "/wide"))), nil},
		{"oak.example", Loopback(11), http.HandlerFunc(broken), under("/")},
	}
}

// neighbours are the links that every start page has, in more than one spelling.
var neighbours = []string{
	"http://www.alder.example/", "HTTP://WWW.Alder.Example:80/#top", "http://birch.example/./",
	"http://dogwood.example/p/../", "http://oak.example/p/1",
	"http://intranet.example/", "http://127.0.0.1:6379/", "mailto:someone@alder.example",
}

// Loopback returns an address of this machine, 127.0.0.last.
func Loopback(last byte) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, last}) }

// under returns a function that reports whether a path begins with one of the prefixes.
func under(prefixes ...string) func(string) bool {
	return func(path string) bool {
		for _, prefix := range prefixes {
			if strings.HasPrefix(path, prefix) {
				return true
			}
		}
		return false
	}
}

// Small returns the size of the n-th page in kilobytes: 2 to 14.
func Small(n int) int { return 2 + 5*n%13 }

// Large returns the size of the n-th page in kilobytes: 60 to 129.
func Large(n int) int { return 60 + 37*n%70 }

// wideRange returns the size of the n-th page in kilobytes: 1 to 90.
func wideRange(n int) int { return 1 + (n*n*29)%90 }

// Tree serves n pages, of which each links to three others, and the first one to the
// given links and to other hosts too.
func Tree(n int, size func(int) int, links ...string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /p/{page}", func(reply http.ResponseWriter, request *http.Request) {
		page, err := strconv.Atoi(request.PathValue("page"))
		if err != nil || page < 1 || page >= n {
			http.NotFound(reply, request)
			return
		}
		WritePage(reply, request, size(page), children(page, n))
	})
	mux.HandleFunc("GET /{$}", func(reply http.ResponseWriter, request *http.Request) {
		all := append(children(0, n), links...)
		WritePage(reply, request, size(0), append(all, neighbours...))
	})
	return mux
}

func children(page, n int) []string {
	var links []string
	for child := 3*page + 1; child <= 3*page+3 && child < n; child++ {
		links = append(links, fmt.Sprintf("/p/%d", child))
	}
	return links
}

// WritePage sends a page with links, filled up to some kilobytes. A client that has the page already gets a 304.
func WritePage(reply http.ResponseWriter, request *http.Request, kb int, links []string) {
	tag := fmt.Sprintf("%q", request.URL.Path)
	reply.Header().Set("ETag", tag)
	if request.Header.Get("If-None-Match") == tag {
		reply.WriteHeader(http.StatusNotModified)
		return
	}
	body := pageBody(kb, links)
	reply.Header().Set("Content-Type", "text/html; charset=utf-8")
	reply.Header().Set("Content-Length", strconv.Itoa(len(body)))
	Send(reply, request, body)
}

// A bundled host sends at about 4 MB/s, like a distant one. Otherwise, on loopback, it would send into its own buffers
// data that nobody reads, and that data would be in its log.
const (
	sendBytes = 8 << 10
	sendEvery = 2 * time.Millisecond
)

// Send sends a body; false if the client has hung up.
func Send(reply http.ResponseWriter, request *http.Request, body []byte) bool {
	tick := time.NewTicker(sendEvery)
	defer tick.Stop()
	for len(body) > 0 {
		n, err := reply.Write(body[:min(len(body), sendBytes)])
		if err != nil {
			return false
		}
		body = body[n:]
		select {
		case <-tick.C:
		case <-request.Context().Done():
			return false
		}
	}
	return true
}

func pageBody(kb int, links []string) []byte {
	var b strings.Builder
	b.WriteString("<!DOCTYPE html>\n<title>A page</title>\n<ul>\n")
	for _, link := range links {
		fmt.Fprintf(&b, "<li><a href=%q>%s</a>\n", link, link)
	}
	b.WriteString("</ul>\n<p>")
	const filler = "The quick brown fox jumps over the lazy dog.\n"
	for b.Len() < kb*fetch.Kilobyte {
		b.WriteString(filler)
	}
	return []byte(b.String()[:max(kb*fetch.Kilobyte, 1)])
}

// Ruled puts a robots.txt before a site.
func Ruled(text string, pages http.Handler) http.Handler {
	return Rules(pages, func(reply http.ResponseWriter, _ *http.Request) {
		_, _ = reply.Write([]byte(text)) // the log has what was sent
	})
}

// Without returns a site that has no robots.txt.
func Without(pages http.Handler) http.Handler { return Rules(pages, http.NotFound) }

// MovedRules returns a site whose robots.txt is somewhere else.
func MovedRules(text string, pages http.Handler) http.Handler {
	moved := Rules(pages, func(reply http.ResponseWriter, request *http.Request) {
		http.Redirect(reply, request, "/rules.txt", http.StatusMovedPermanently)
	})
	return http.HandlerFunc(func(reply http.ResponseWriter, request *http.Request) {
		if request.URL.Path == "/rules.txt" {
			_, _ = reply.Write([]byte(text)) // the log has what was sent
			return
		}
		moved.ServeHTTP(reply, request)
	})
}

// Rules returns a site that answers the request for its robots.txt with the given handler.
func Rules(pages http.Handler, answer http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(reply http.ResponseWriter, request *http.Request) {
		if request.URL.Path == robots.Path {
			answer(reply, request)
			return
		}
		pages.ServeHTTP(reply, request)
	})
}

// How long hosts ask to be left alone.
const (
	busyPause = 3 * time.Second
	downPause = 2 * time.Second
)

// Busy returns a site that answers the requests of the given numbers with "too many requests": it asks the first of
// them to wait for some seconds, and the others until a date.
func Busy(pages http.Handler, first, others int64) http.Handler {
	var count atomic.Int64
	return http.HandlerFunc(func(reply http.ResponseWriter, request *http.Request) {
		switch count.Add(1) {
		case first:
			reply.Header().Set("Retry-After", strconv.Itoa(int(busyPause.Seconds())))
			reply.WriteHeader(http.StatusTooManyRequests)
		case others:
			// Dates have whole seconds. This takes the next second, so that the wait is not shorter.
			until := time.Now().Add(busyPause + time.Second).UTC().Truncate(time.Second)
			reply.Header().Set("Retry-After", until.Format(http.TimeFormat))
			reply.WriteHeader(http.StatusTooManyRequests)
		default:
			pages.ServeHTTP(reply, request)
		}
	})
}

// Down returns a site that is not available at first, not even for its robots.txt, and later once more.
func Down(pages http.Handler) http.Handler {
	var count atomic.Int64
	return http.HandlerFunc(func(reply http.ResponseWriter, request *http.Request) {
		if n := count.Add(1); n == 1 || n == 8 {
			reply.Header().Set("Retry-After", strconv.Itoa(int(downPause.Seconds())))
			reply.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		pages.ServeHTTP(reply, request)
	})
}

// broken answers with nothing but errors, so that nobody knows what it forbids.
func broken(reply http.ResponseWriter, _ *http.Request) {
	reply.WriteHeader(http.StatusInternalServerError)
}

// thinking is how long a slow host takes for a page.
const thinking = 700 * time.Millisecond

// slow returns a site that takes the time thinking for each page.
func slow(pages http.Handler) http.Handler {
	return http.HandlerFunc(func(reply http.ResponseWriter, request *http.Request) {
		timer := time.NewTimer(thinking)
		defer timer.Stop()
		select {
		case <-timer.C:
			pages.ServeHTTP(reply, request)
		case <-request.Context().Done():
		}
	})
}

// redirecting returns a site with redirects in a circle, in an endless chain, to pages that another host forbids, and
// to addresses that are not public.
func redirecting(pages http.Handler) http.Handler {
	to := map[string]string{
		"/loop/a": "/loop/b", "/loop/b": "/loop/a",
		"/to/private": "http://dogwood.example/private/c", "/to/inside": "http://intranet.example/admin",
		"/to/metadata": "http://169.254.169.254/latest/meta-data/",
	}
	return http.HandlerFunc(func(reply http.ResponseWriter, request *http.Request) {
		if target, moved := to[request.URL.Path]; moved {
			http.Redirect(reply, request, target, http.StatusFound)
			return
		}
		if number, isChain := strings.CutPrefix(request.URL.Path, "/chain/"); isChain {
			n, _ := strconv.Atoi(number) // 0 if it is not a number: the chain goes on with the first
			http.Redirect(reply, request, fmt.Sprintf("/chain/%d", n+1), http.StatusMovedPermanently)
			return
		}
		pages.ServeHTTP(reply, request)
	})
}

// Sizes of a page that is too large, and of a page that is only larger than its neighbours.
const (
	bombSize     = 64 << 20
	declaredSize = 8 << 20
	wideKB       = 300
)

// Oversized returns a site with a body without end, a body that unpacks to very much, a body that states its size, and
// a page that is larger than the others of its host.
func Oversized(pages http.Handler) http.Handler {
	chunk := []byte(strings.Repeat("<p>More and more.\n", 400))
	return http.HandlerFunc(func(reply http.ResponseWriter, request *http.Request) {
		reply.Header().Set("Content-Type", "text/html")
		switch request.URL.Path {
		case "/endless":
			for Send(reply, request, chunk) {
			}
		case "/bomb":
			reply.Header().Set("Content-Encoding", "gzip")
			packed := gzip.NewWriter(reply)
			for unpacked := 0; unpacked < bombSize; unpacked += len(chunk) {
				if _, err := packed.Write(chunk); err != nil {
					return
				}
			}
			_ = packed.Close() // the client has hung up by then
		case "/declared":
			reply.Header().Set("Content-Length", strconv.Itoa(declaredSize))
			Send(reply, request, make([]byte, declaredSize))
		case "/wide":
			WritePage(reply, request, wideKB, nil)
		default:
			pages.ServeHTTP(reply, request)
		}
	})
}
