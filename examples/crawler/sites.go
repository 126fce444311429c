package main

import (
	"compress/gzip"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// bundledWeb is the hosts that are crawled by default, each with a habit that a
// crawler meets. Their state, such as whom they have told to come back later, is
// new with each call.
func bundledWeb() []site {
	return []site{
		{"www.alder.example", loopback(2), without(tree(40, wideRange)), nil},
		{"docs.alder.example", loopback(3), ruled("User-agent: *\nDisallow: /search\n", tree(12, small, "/search?q=a", "/p/1#part", "./p/../p/2")), under("/search")},
		{"birch.example", loopback(4), ruled("", tree(22, large)), nil},
		{"cedar.example", loopback(4), movedRules("User-agent: *\nAllow: /\n", tree(22, large)), nil},
		{"dogwood.example", loopback(5), ruled("User-agent: *\nCrawl-delay: 1\nDisallow: /private/\nDisallow: /*.zip$\n",
			tree(14, small, "/private/a", "/private/b", "/archive.zip")), under("/private/", "/archive.zip")},
		{"elm.example", loopback(6), ruled("User-agent: other\nDisallow: /\n", busy(tree(14, small), 6, 11)), nil},
		{"fir.example", loopback(7), down(ruled("", tree(14, wideRange))), nil},
		{"hazel.example", loopback(8), ruled("User-agent: *\nDisallow:\n", slow(tree(12, small))), nil},
		{"larch.example", loopback(9), without(redirecting(tree(6, small, "/loop/a", "/chain/1", "/to/private", "/to/inside", "/to/metadata", "/gone"))), nil},
		{"maple.example", loopback(10), without(oversized(tree(6, small, "/endless", "/bomb", "/declared", "/wide"))), nil},
		{"oak.example", loopback(11), http.HandlerFunc(broken), under("/")},
	}
}

// neighbours are linked to from every start page, in more than one way of writing.
var neighbours = []string{
	"http://www.alder.example/", "HTTP://WWW.Alder.Example:80/#top", "http://birch.example/./", "http://dogwood.example/p/../", "http://oak.example/p/1",
	"http://intranet.example/", "http://127.0.0.1:6379/", "mailto:someone@alder.example",
}

func loopback(last byte) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, last}) }

// under forbids paths that begin with one of these.
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

// Sizes of a page in kilobytes, by its number.
func small(n int) int     { return 2 + 5*n%13 }
func large(n int) int     { return 60 + 37*n%70 }
func wideRange(n int) int { return 1 + (n*n*29)%90 }

// tree serves n pages, of which each links to three others, and the first one to the
// given links and to other hosts too.
func tree(n int, size func(int) int, links ...string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /p/{page}", func(reply http.ResponseWriter, request *http.Request) {
		page, err := strconv.Atoi(request.PathValue("page"))
		if err != nil || page < 1 || page >= n {
			http.NotFound(reply, request)
			return
		}
		writePage(reply, request, size(page), children(page, n))
	})
	mux.HandleFunc("GET /{$}", func(reply http.ResponseWriter, request *http.Request) {
		all := append(children(0, n), links...)
		writePage(reply, request, size(0), append(all, neighbours...))
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

// writePage sends a page with links, filled up to some kilobytes. It is answered by
// 304 to whom it has been sent before.
func writePage(reply http.ResponseWriter, request *http.Request, kb int, links []string) {
	tag := fmt.Sprintf("%q", request.URL.Path)
	reply.Header().Set("ETag", tag)
	if request.Header.Get("If-None-Match") == tag {
		reply.WriteHeader(http.StatusNotModified)
		return
	}
	body := pageBody(kb, links)
	reply.Header().Set("Content-Type", "text/html; charset=utf-8")
	reply.Header().Set("Content-Length", strconv.Itoa(len(body)))
	send(reply, request, body)
}

// A bundled host sends at about 4 MB/s, as one far away would. On loopback it would
// else have sent to its own buffers what nobody reads, and that is in its log.
const (
	sendBytes = 8 << 10
	sendEvery = 2 * time.Millisecond
)

// send sends a body; false if the client has hung up.
func send(reply http.ResponseWriter, request *http.Request, body []byte) bool {
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
	for b.Len() < kb*kilobyte {
		b.WriteString(filler)
	}
	return []byte(b.String()[:max(kb*kilobyte, 1)])
}

// ruled puts a robots.txt before a site.
func ruled(robots string, pages http.Handler) http.Handler {
	return rules(pages, func(reply http.ResponseWriter, _ *http.Request) {
		_, _ = reply.Write([]byte(robots)) // the log has what was sent
	})
}

// without is a site that has no robots.txt.
func without(pages http.Handler) http.Handler { return rules(pages, http.NotFound) }

// movedRules is a site whose robots.txt is somewhere else.
func movedRules(robots string, pages http.Handler) http.Handler {
	moved := rules(pages, func(reply http.ResponseWriter, request *http.Request) {
		http.Redirect(reply, request, "/rules.txt", http.StatusMovedPermanently)
	})
	return http.HandlerFunc(func(reply http.ResponseWriter, request *http.Request) {
		if request.URL.Path == "/rules.txt" {
			_, _ = reply.Write([]byte(robots)) // the log has what was sent
			return
		}
		moved.ServeHTTP(reply, request)
	})
}

func rules(pages http.Handler, robots http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(reply http.ResponseWriter, request *http.Request) {
		if request.URL.Path == robotsPath {
			robots(reply, request)
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

// busy says "too many requests" to the given ones: for some seconds to the first of
// them, until a date to others.
func busy(pages http.Handler, first, others int64) http.Handler {
	var count atomic.Int64
	return http.HandlerFunc(func(reply http.ResponseWriter, request *http.Request) {
		switch count.Add(1) {
		case first:
			reply.Header().Set("Retry-After", strconv.Itoa(int(busyPause.Seconds())))
			reply.WriteHeader(http.StatusTooManyRequests)
		case others:
			// Dates have whole seconds: the next one, so that it is not less.
			until := time.Now().Add(busyPause + time.Second).UTC().Truncate(time.Second)
			reply.Header().Set("Retry-After", until.Format(http.TimeFormat))
			reply.WriteHeader(http.StatusTooManyRequests)
		default:
			pages.ServeHTTP(reply, request)
		}
	})
}

// down is not available at first, not even for its robots.txt, and then once more.
func down(pages http.Handler) http.Handler {
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

// broken never answers but with an error: what it forbids cannot be known.
func broken(reply http.ResponseWriter, _ *http.Request) {
	reply.WriteHeader(http.StatusInternalServerError)
}

// thinking is how long a slow host takes for a page.
const thinking = 700 * time.Millisecond

// slow takes its time.
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

// redirecting has redirects in a circle, in an endless chain, to what another host
// forbids, and to addresses that are not public.
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
			n, _ := strconv.Atoi(number) // of what is no number the chain goes on with the first
			http.Redirect(reply, request, fmt.Sprintf("/chain/%d", n+1), http.StatusMovedPermanently)
			return
		}
		pages.ServeHTTP(reply, request)
	})
}

// Sizes of what is too large, and of what is only larger than its neighbours.
const (
	bombSize     = 64 << 20
	declaredSize = 8 << 20
	wideKB       = 300
)

// oversized has a body without end, one that unpacks to very much, one that says how
// large it is, and one that is larger than the others of its host.
func oversized(pages http.Handler) http.Handler {
	chunk := []byte(strings.Repeat("<p>More and more.\n", 400))
	return http.HandlerFunc(func(reply http.ResponseWriter, request *http.Request) {
		reply.Header().Set("Content-Type", "text/html")
		switch request.URL.Path {
		case "/endless":
			for send(reply, request, chunk) {
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
			send(reply, request, make([]byte, declaredSize))
		case "/wide":
			writePage(reply, request, wideKB, nil)
		default:
			pages.ServeHTTP(reply, request)
		}
	})
}
