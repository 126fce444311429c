package main

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/check"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/crawl"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/site"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// A host's requests to one crawler bind all crawlers. Two crawlers that work on one crawl never request a host at the
// same time; two that have a crawl each share nothing but the throttle.
func TestAllCrawlersHeedAHost(t *testing.T) {
	t.Parallel()
	t.Run("one crawl", func(t *testing.T) {
		t.Parallel()
		accesses, did := crawlTwice(t, "test", "test")
		expectHeeded(t, accesses, did)
		for i, c := range did {
			if len(c.of.Visits) == 0 || c.Pages != 15 || c.Duplicates != 0 || c.Lost != 0 || c.Left != 0 {
				t.Errorf("crawler %d: %d requests, %+v", i, len(c.of.Visits), c.Summary)
			}
		}
	})
	t.Run("a crawl each", func(t *testing.T) {
		t.Parallel()
		accesses, did := crawlTwice(t, "test", "other")
		expectHeeded(t, accesses, did)
		for i, c := range did {
			if c.Pages != 15 || c.Elsewhere != 0 || c.Lost != 0 || c.Left != 0 {
				t.Errorf("crawler %d: %+v", i, c.Summary)
			}
			for _, asked := range accesses {
				later := func(v crawl.Visit) bool { return v.Keys.Host == asked.Host && v.Start.After(asked.Until) }
				if !asked.Until.IsZero() && !slices.ContainsFunc(c.of.Visits, later) {
					t.Errorf("crawler %d: no request to %s after its pause", i, asked.Host)
				}
			}
		}
	})
}

// apart is the time between two requests to a host of crawlTwice. It is enough for "later" to be in Redis before the
// next request.
const apart = 500 * time.Millisecond

// crawlTwice lets two crawlers, each with a client of its own, request the same three
// hosts, the second one as soon as the first has read of a Crawl-delay. It returns the
// servers' log.
func crawlTwice(t *testing.T, queues ...string) ([]site.Access, []crawled) {
	t.Helper()
	addr, pages, heeded := ownRedis(t), site.Tree(5, site.Small), make(chan struct{})
	closeOnce := sync.OnceFunc(func() { close(heeded) })
	sites := []site.Site{
		{Host: "slow.example", Addr: site.Loopback(2),
			Handler: site.Ruled("User-agent: *\nCrawl-delay: 1\n",
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					closeOnce()
					pages.ServeHTTP(w, r)
				}))},
		{Host: "busy.example", Addr: site.Loopback(3), Handler: site.Busy(site.Without(pages), 4, 8)},
		{Host: "down.example", Addr: site.Loopback(4), Handler: site.Down(site.Without(pages))},
	}
	web, err := site.Start(sites, new(site.AccessLog))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(web.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	did, failed := make([]crawled, len(queues)), make([]error, len(queues))
	var all sync.WaitGroup
	for i, queue := range queues {
		client := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { client.Close() })
		run := readyCrawl(t, client, web, true, []string{"-requests", "host=1/" + apart.String(), "-queue", queue},
			startPages(sites)...)
		all.Go(func() {
			if i > 0 {
				select {
				case <-heeded:
				case <-ctx.Done():
				}
			}
			did[i], failed[i] = run(ctx)
		})
	}
	all.Wait()
	if err := errors.Join(append(failed, ctx.Err())...); err != nil {
		t.Fatal(err)
	}
	return web.Log.All(), did
}

// heardLater returns a log with each answer moved later by a time: "later" is in Redis only when the crawler has read
// the answer, which takes a busy machine some time.
func heardLater(accesses []site.Access, by time.Duration) []site.Access {
	accesses = slices.Clone(accesses)
	for i := range accesses {
		accesses[i].End = accesses[i].End.Add(by)
	}
	return accesses
}

// expectHeeded compares the servers' log, and the grants of several crawlers, with what the hosts of crawlTwice ask
// for.
func expectHeeded(t *testing.T, accesses []site.Access, did []crawled) {
	t.Helper()
	both := crawl.Result{Requests: did[0].of.Requests, Accesses: accesses}
	for _, c := range did {
		both.Visits = append(both.Visits, c.of.Visits...)
	}
	slices.SortFunc(both.Visits, func(a, b crawl.Visit) int { return a.Start.Compare(b.Start) })
	late := both.Spread()
	t.Logf("requests came up to %s after their grants", late)
	if violations, pauses := site.PauseViolations(heardLater(accesses, apart+late)); violations != 0 || pauses != 4 {
		t.Errorf("%d requests in %d pauses; want 0 in 4", violations, pauses)
	}
	for _, seen := range []struct {
		by      string
		events  []crawl.Event
		shorter time.Duration
	}{
		{"servers' log", both.Recorded(func(site.Access) int64 { return 1 }), late},
		{"grants", both.Granted(func(crawl.Visit) int64 { return 1 }), 0},
	} {
		if over := check.WindowsOver(crawl.CheckLimits(seen.events, both.Requests, seen.shorter)); over != 0 {
			t.Errorf("%s: %d windows over the limit of a host", seen.by, over)
		}
		slow := slices.DeleteFunc(crawl.InOrder(seen.events),
			func(e crawl.Event) bool { return e.Of.Key(scopeHost) != "slow.example" })
		// The delay applies from the first robots.txt on, also if another crawler requested it.
		limit := []throttle.Scope{{Name: scopeHost, Limits: []throttle.Limit{throttle.PerSecond(1)},
			Margin: margin}}
		delayed := crawl.CheckLimits(slow[1:], limit, seen.shorter)[0]
		if delayed.Over != 0 {
			t.Errorf("%s: %d of %d requests came too soon after another", seen.by, delayed.Over, len(slow))
		}
	}
}
