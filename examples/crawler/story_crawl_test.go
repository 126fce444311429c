package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/crawl"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/frontier"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/link"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/robots"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/site"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// crawled is the result of a crawl of some sites.
type crawled struct {
	crawl.Summary
	of    crawl.Result
	ended map[string]string // how each page ended, by its URL
}

// crawlSites crawls sites from the given pages, or else from the start page of each
// site. The servers' log is checked.
func crawlSites(t *testing.T, sites []site.Site, args []string, seeds ...string) crawled {
	t.Helper()
	return crawlWeb(t, sites, true, args, seeds...)
}

// crawlWeb does what crawlSites does. Without serversLog, the client's own log is
// checked, as it is for real hosts.
func crawlWeb(t *testing.T, sites []site.Site, serversLog bool, args []string, seeds ...string) crawled {
	t.Helper()
	return crawlOn(t, newRedis(t), sites, serversLog, args, seeds...)
}

// newRedis returns a client of a Redis inside the test.
func newRedis(t *testing.T) *redis.Client {
	t.Helper()
	server := miniredis.RunT(t)
	server.ClockTTL(true)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { client.Close() })
	return client
}

// ownRedis returns the address of a Redis that a test has for itself: a real server,
// or without redis-server one inside the test.
func ownRedis(t *testing.T) string {
	t.Helper()
	if redistest.Available(t) {
		return redistest.Start(t).Addr
	}
	return newRedis(t).Options().Addr
}

// crawlOn does what crawlWeb does, on a Redis that may have data of an earlier crawl.
func crawlOn(t *testing.T, client *redis.Client, sites []site.Site, serversLog bool, args []string,
	seeds ...string) crawled {
	t.Helper()
	web, err := site.Start(sites, new(site.AccessLog))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(web.Close)
	if len(seeds) == 0 {
		seeds = startPages(sites)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c, err := readyCrawl(t, client, web, serversLog, args, seeds...)(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func startPages(sites []site.Site) (urls []string) {
	for _, one := range sites {
		urls = append(urls, "http://"+one.Host+"/")
	}
	return urls
}

// readyCrawl prepares a crawl of a web, and returns the function that runs it.
func readyCrawl(t *testing.T, client *redis.Client, web *site.Web, serversLog bool, args []string,
	seeds ...string) (run func(context.Context) (crawled, error)) {
	t.Helper()
	p := rig.New("crawler", io.Discard, io.Discard)
	t.Cleanup(p.Close)
	o, err := parseOptions(p, append([]string{"-requests", "host=50/100ms", "-queue", "test"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	p.Client = client
	list := &crawl.SeedList{Name: "test"}
	for _, text := range seeds {
		u, err := link.Resolve(nil, text)
		if err != nil {
			t.Fatal(err)
		}
		list.Seeds = append(list.Seeds, crawl.Seed{Customer: "acme", URL: u})
	}
	c, err := newCrawler(p, o, list, web.World(serversLog))
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context) (crawled, error) {
		report, err := c.run(ctx)
		all := crawled{Summary: report.Summary, of: report.Raw(), ended: make(map[string]string)}
		for _, p := range all.of.Pages {
			all.ended[p.URL] = p.Ended
		}
		return all, err
	}
}

// asked returns how often a URL was requested.
func (c crawled) asked(url string) int {
	n := 0
	for _, a := range c.of.Accesses {
		if a.URL == url {
			n++
		}
	}
	return n
}

// links returns a site whose start page links to others.
func links(host string, last byte, robots string, to ...string) site.Site {
	return site.Site{Host: host, Addr: site.Loopback(last),
		Handler: site.Ruled(robots, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/" {
				site.WritePage(w, r, 1, to)
				return
			}
			site.WritePage(w, r, 1, nil)
		}))}
}

// redirects returns a site that redirects some paths.
func redirects(host string, last byte, to map[string]string) site.Site {
	return site.Site{Host: host, Addr: site.Loopback(last),
		Handler: site.Without(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if target, moved := to[r.URL.Path]; moved {
				http.Redirect(w, r, target, http.StatusFound)
				return
			}
			site.WritePage(w, r, 1, nil)
		}))}
}

// F66: the target of a redirect is a page of its own. The rules of the target's host
// hold for it.
func TestRedirects(t *testing.T) {
	t.Parallel()
	moves := map[string]string{
		"/there": "http://b.example/page", "/forbidden": "http://b.example/private/x",
		"/inside": "http://intranet.example/", "/meta": "http://169.254.169.254/",
		"/self": "/self", "/loop/1": "/loop/2", "/loop/2": "/loop/3", "/loop/3": "/loop/1",
		"/nowhere": "javascript:alert(1)", "/unknown": "http://unknown.example/",
	}
	for i := range 9 {
		moves[fmt.Sprintf("/chain/%d", i)] = fmt.Sprintf("/chain/%d", i+1)
	}
	var seeds []string
	for _, path := range []string{"/there", "/forbidden", "/inside", "/meta", "/self", "/loop/1", "/nowhere",
		"/unknown", "/chain/0"} {
		seeds = append(seeds, "http://a.example"+path)
	}
	c := crawlSites(t, []site.Site{redirects("a.example", 2, moves),
		links("b.example", 3, "User-agent: *\nDisallow: /private/")}, nil, seeds...)
	for url, want := range map[string]string{
		"http://a.example/there": frontier.EndRedirected, "http://b.example/page": frontier.EndFetched,
		"http://a.example/forbidden": frontier.EndRedirected, "http://b.example/private/x": frontier.EndForbidden,
		"http://intranet.example/": frontier.EndBlocked, "http://169.254.169.254/": frontier.EndBlocked,
		"http://unknown.example/": frontier.EndFailed,
		"http://a.example/self":   frontier.EndRedirected, "http://a.example/loop/1": frontier.EndRedirected,
		"http://a.example/loop/3":  frontier.EndRedirected,
		"http://a.example/nowhere": frontier.EndAbsent, "http://a.example/chain/4": frontier.EndRedirected,
		"http://a.example/chain/5": frontier.EndAbsent,
	} {
		if c.ended[url] != want {
			t.Errorf("%s: %q, want %q", url, c.ended[url], want)
		}
	}
	if c.asked("http://a.example/loop/1") != 1 || c.asked("http://a.example/self") != 1 ||
		c.ended["http://a.example/chain/6"] != "" {
		t.Error("a redirect was followed for ever")
	}
	if c.asked("http://b.example/private/x") != 0 || c.asked("http://b.example/robots.txt") != 1 || !c.OK {
		t.Errorf("the target's rules were not kept: %+v", c.Summary)
	}
}

// F65: the answer to the request for robots.txt decides which pages are requested.
func TestRobotsOfAHost(t *testing.T) {
	t.Parallel()
	const text = "User-agent: *\nDisallow: /a\n"
	status := func(code int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if len(header) > 0 {
				w.Header().Set(header[0], header[1])
			}
			w.WriteHeader(code)
		}
	}
	say := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { site.Send(w, r, []byte(body)) }
	}
	for i, row := range []struct {
		name   string
		robots http.HandlerFunc
		a, b   string // how /a and /b end
	}{
		{"rules", say(text), frontier.EndForbidden, frontier.EndFetched},
		{"404", status(404), frontier.EndFetched, frontier.EndFetched},
		{"403", status(403), frontier.EndFetched, frontier.EndFetched},
		{"429 for ever", status(429, "Retry-After", "1"), frontier.EndForbidden, frontier.EndForbidden},
		{"500", status(500), frontier.EndForbidden, frontier.EndForbidden},
		{"no answer", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, frontier.EndForbidden,
			frontier.EndForbidden},
		{"broken off", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			frontier.EndForbidden, frontier.EndForbidden},
		{"5 MB", say(text + strings.Repeat("# filler\n", 5<<20/9)), frontier.EndForbidden, frontier.EndFetched},
		{"5 MB of known size", func(w http.ResponseWriter, r *http.Request) {
			body := text + strings.Repeat("# filler\n", 5<<20/9)
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
			site.Send(w, r, []byte(body))
		}, frontier.EndForbidden, frontier.EndFetched},
		{"binary", say("\x00\x01\xff\xfe" + text), frontier.EndFetched, frontier.EndFetched},
		{"BOM and CRLF", say("\uFEFF" + strings.ReplaceAll(text, "\n", "\r\n")), frontier.EndForbidden, frontier.EndFetched},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			one := links("a.example", byte(2+i), "")
			one.Handler = site.Rules(one.Handler, row.robots)
			timeout := "30s" // long enough for every answer, also on a slow machine
			if row.name == "no answer" {
				timeout = "500ms"
			}
			c := crawlSites(t, []site.Site{one}, []string{"-timeout", timeout}, "http://a.example/a", "http://a.example/b")
			if a, b := c.ended["http://a.example/a"], c.ended["http://a.example/b"]; a != row.a || b != row.b {
				t.Errorf("/a %s, /b %s; want %s, %s", a, b, row.a, row.b)
			}
			if c.PauseViolations > 0 || c.WindowsOver > 0 || c.Left > 0 {
				t.Errorf("got %+v", c.Summary)
			}
		})
	}
}

// F65: the crawler follows up to five redirects of a robots.txt, also to another host.
// The rules hold for the host that was asked first.
func TestRobotsBehindRedirects(t *testing.T) {
	t.Parallel()
	chain := func(host string, last byte, hops int) site.Site {
		one := links(host, last, "")
		pages := one.Handler
		one.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var n int
			switch _, err := fmt.Sscanf(r.URL.Path, "/r/%d", &n); {
			case r.URL.Path == robots.Path:
				http.Redirect(w, r, "/r/1", http.StatusFound)
			case err == nil && n < hops:
				http.Redirect(w, r, fmt.Sprintf("/r/%d", n+1), http.StatusFound)
			case err == nil:
				fmt.Fprint(w, "User-agent: *\nDisallow: /a\n")
			default:
				pages.ServeHTTP(w, r)
			}
		})
		return one
	}
	other := links("other.example", 4, "")
	other.Handler = site.Rules(other.Handler, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://five.example/r/5", http.StatusMovedPermanently)
	})
	c := crawlSites(t, []site.Site{chain("five.example", 2, 5), chain("six.example", 3, 6), other}, nil,
		"http://five.example/a", "http://six.example/a", "http://other.example/a", "http://other.example/b")
	for url, want := range map[string]string{
		"http://five.example/a": frontier.EndForbidden, "http://six.example/a": frontier.EndFetched,
		"http://other.example/a": frontier.EndForbidden, "http://other.example/b": frontier.EndFetched,
	} {
		if c.ended[url] != want {
			t.Errorf("%s: %q, want %q", url, c.ended[url], want)
		}
	}
}

// F67: a page that is larger than its charge is cut, and requested once more with a
// larger charge. A page without end is cut at the cap. The bytes that were sent are
// charged, so the next page waits.
func TestLargePages(t *testing.T) {
	t.Parallel()
	one := site.Site{Host: "a.example", Addr: site.Loopback(2),
		Handler: site.Without(site.Oversized(links("a.example", 2, "").Handler))}
	c := crawlSites(t, []site.Site{one}, []string{"-kilobytes", "host=600/1s"},
		"http://a.example/wide", "http://a.example/endless", "http://a.example/bomb", "http://a.example/declared",
		"http://a.example/")
	for url, want := range map[string]string{
		"http://a.example/wide": frontier.EndFetched, "http://a.example/endless": frontier.EndTooLarge,
		"http://a.example/bomb":     frontier.EndTooLarge,
		"http://a.example/declared": frontier.EndTooLarge, "http://a.example/": frontier.EndFetched,
	} {
		if c.ended[url] != want {
			t.Errorf("%s: %q, want %q", url, c.ended[url], want)
		}
	}
	// The page wide is requested three times: cut, whole, and once to see whether it has changed.
	if c.asked("http://a.example/wide") != 3 || c.asked("http://a.example/endless") != 2 ||
		c.asked("http://a.example/declared") != 1 || c.Larger != 2 {
		t.Errorf("wide was requested %d times, endless %d, declared %d; want 3, 2, 1",
			c.asked("http://a.example/wide"), c.asked("http://a.example/endless"), c.asked("http://a.example/declared"))
	}
	if !c.OK || c.SettledUnits >= c.ChargedUnits {
		t.Errorf("got %+v", c.Summary)
	}
}

// Links are followed as far from a start page as -depth says, and no further.
func TestDepth(t *testing.T) {
	t.Parallel()
	for depth, pages := range map[string]int{"0": 1, "1": 4, "2": 13} {
		t.Run(depth, func(t *testing.T) {
			t.Parallel()
			one := site.Site{Host: "a.example", Addr: site.Loopback(2), Handler: site.Without(site.Tree(40, site.Small))}
			c := crawlSites(t, []site.Site{one}, []string{"-depth", depth, "-host-pages", "50"})
			if !c.OK || c.Pages != pages || c.OverBudget != 0 {
				t.Errorf("got %+v, want %d pages", c.Summary, pages)
			}
		})
	}
}

// F68: two hosts on one address share its limit.
func TestHostsOnOneAddress(t *testing.T) {
	t.Parallel()
	sites := []site.Site{
		{Host: "a.example", Addr: site.Loopback(2), Handler: site.Without(site.Tree(6, site.Large))},
		{Host: "b.example", Addr: site.Loopback(2), Handler: site.Without(site.Tree(6, site.Large))},
	}
	c := crawlSites(t, sites, []string{"-kilobytes", "ip=600/1s"})
	if !c.OK || c.Pages != 12 {
		t.Errorf("got %+v", c.Summary)
	}
	for _, limit := range c.Limits {
		if limit.Scope == scopeIP && limit.Record.Key != "127.0.0.2" {
			t.Errorf("got %+v, want both hosts under their address", limit)
		}
	}
	if c.MakespanS < 1 {
		t.Errorf("the crawl ended after %.2f s: the limit of the address delayed nothing", c.MakespanS)
	}
}

// For real hosts, the client's own log is checked.
func TestClientsLog(t *testing.T) {
	t.Parallel()
	sites := []site.Site{
		links("a.example", 2, "User-agent: *\nDisallow: /no\nCrawl-delay: 0.2\n", "/yes", "/no", "http://b.example/"),
		{Host: "b.example", Addr: site.Loopback(3), Handler: site.Busy(site.Without(site.Tree(6, site.Small)), 3, 5)},
	}
	c := crawlWeb(t, sites, false, nil, "http://a.example/")
	if !c.OK || c.Record != "client's log" || c.Pages != 8 || c.Disallowed != 1 || c.Pauses != 2 ||
		c.PauseViolations != 0 || c.RobotsViolations != 0 {
		t.Errorf("got %+v", c.Summary)
	}
}

// A run fetches the pages that an earlier run left, whatever happened to their tasks.
// It asks again for a robots.txt that is too old.
func TestGoesOnWithWhatIsLeft(t *testing.T) {
	t.Parallel()
	client := newRedis(t)
	sites := []site.Site{links("a.example", 2, "User-agent: *\nDisallow: /no\n")}
	first := crawlOn(t, client, sites, true, nil, "http://a.example/")
	if !first.OK || first.Pages != 1 {
		t.Fatalf("got %+v", first.Summary)
	}
	f := frontier.New(client, "test")
	if err := client.Del(t.Context(), f.Key("robots:http://a.example")).Err(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/yes", "/no"} { // found by a process that died then
		p := &frontier.Page{URL: "http://a.example" + path, Customer: "acme", Depth: 1}
		if _, err := f.Add(t.Context(), "a.example", p,
			&frontier.Page{URL: "http://a.example/robots.txt", Robots: true}, 30); err != nil {
			t.Fatal(err)
		}
	}
	second := crawlOn(t, client, sites, true, nil, "http://a.example/")
	if !second.OK || second.Pages != 2 || second.Elsewhere != 1 || second.Disallowed != 1 || second.Requests != 2 {
		t.Errorf("got %+v", second.Summary)
	}
	if second.asked("http://a.example/robots.txt") != 1 || second.asked("http://a.example/yes") != 1 {
		t.Errorf("got %+v", second.of.Accesses)
	}
}

// A robots.txt has moved, and the process stopped before it asked the new address. The
// next process asks it.
func TestGoesOnBehindAMovedRobots(t *testing.T) {
	t.Parallel()
	client := newRedis(t)
	moved := &frontier.Page{URL: "http://a.example/robots.txt", Customer: "acme", Robots: true,
		MovedTo: "http://a.example/rules.txt", Hops: 1}
	p := &frontier.Page{URL: "http://a.example/yes", Customer: "acme", Depth: 1}
	if _, err := frontier.New(client, "test").Add(t.Context(), "a.example", p, moved, 30); err != nil {
		t.Fatal(err)
	}
	one := site.Site{Host: "a.example", Addr: site.Loopback(2),
		Handler: site.MovedRules("User-agent: *\nDisallow: /no\n", links("a.example", 2, "", "/no").Handler)}
	c := crawlOn(t, client, []site.Site{one}, true, nil)
	if !c.OK || c.Pages != 2 || c.Disallowed != 1 || c.RobotsViolations != 0 ||
		c.asked("http://a.example/robots.txt") != 0 || c.asked("http://a.example/rules.txt") != 1 {
		t.Errorf("got %+v", c.Summary)
	}
}

// A task whose turn is over requests nothing if asynq runs it again. Its charges are
// given back.
func TestAnOldTurnRequestsNothing(t *testing.T) {
	t.Parallel()
	client := newRedis(t)
	sites := []site.Site{links("a.example", 2, "")}
	f := frontier.New(client, "test")
	one, err := f.Add(t.Context(), "a.example", &frontier.Page{URL: "http://a.example/x", Customer: "acme", Depth: 1},
		&frontier.Page{URL: "http://a.example/robots.txt", Customer: "acme", Robots: true}, 30)
	if err != nil {
		t.Fatal(err)
	}
	payload := fmt.Sprintf(`{"host":"a.example","turn":%d}`, one.Number+7)
	task := worker.NewTask(taskType, []byte(payload), map[string]string{
		headerCharge: "64", scopeHost: "a.example", scopeSite: "a.example", scopeIP: "127.0.0.2", scopeCustomer: "acme",
	}, asynq.Queue("test"))
	if _, err := asynq.NewClientFromRedisClient(client).Enqueue(task); err != nil {
		t.Fatal(err)
	}
	c := crawlOn(t, client, sites, true, nil, "http://a.example/")
	if !c.OK || c.Requests != 4 || len(c.of.Visits) != 4 { // robots.txt, x, and the start page twice
		t.Errorf("got %+v", c.Summary)
	}
}

// If the machine lacks a site's address, the site runs at 127.0.0.1. Its pages are still
// counted under the site's address.
func TestWebOnOneAddress(t *testing.T) {
	t.Parallel()
	a, b := links("a.example", 2, ""), links("b.example", 3, "")
	a.Addr, b.Addr = netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3")
	c := crawlSites(t, []site.Site{a, b}, nil)
	if !c.OK || c.Pages != 2 || len(c.of.Visits) == 0 || !strings.HasPrefix(c.of.Visits[0].Keys.IP, "192.0.2.") {
		t.Errorf("got %+v, %+v", c.Summary, c.of.Visits)
	}
}
