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

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// What a host asks of one crawler holds for all. Two that work on one crawl never
// request a host at the same time; two with a crawl each have nothing but the
// throttle in common.
func TestAllCrawlersHeedAHost(t *testing.T) {
	t.Parallel()
	t.Run("one crawl", func(t *testing.T) {
		t.Parallel()
		accesses, did := crawlTwice(t, "test", "test")
		expectHeeded(t, accesses, did)
		for i, c := range did {
			if len(c.visits) == 0 || c.Pages != 15 || c.Duplicates != 0 || c.Lost != 0 || c.Left != 0 {
				t.Errorf("crawler %d: %d requests, %+v", i, len(c.visits), c.summary)
			}
		}
	})
	t.Run("a crawl each", func(t *testing.T) {
		t.Parallel()
		accesses, did := crawlTwice(t, "test", "other")
		expectHeeded(t, accesses, did)
		for i, c := range did {
			if c.Pages != 15 || c.Elsewhere != 0 || c.Lost != 0 || c.Left != 0 {
				t.Errorf("crawler %d: %+v", i, c.summary)
			}
			for _, asked := range accesses {
				later := func(v visit) bool { return v.keys.host == asked.host && v.start.After(asked.until) }
				if !asked.until.IsZero() && !slices.ContainsFunc(c.visits, later) {
					t.Errorf("crawler %d: no request to %s after its pause", i, asked.host)
				}
			}
		}
	})
}

// apart is the time between two requests to a host of crawlTwice: enough for "later" to
// be in Redis before the next one.
const apart = 500 * time.Millisecond

// crawlTwice lets two crawlers, each with a client of its own, request the same three
// hosts, the second one as soon as the first has read of a Crawl-delay. It returns the
// servers' log.
func crawlTwice(t *testing.T, queues ...string) ([]access, []crawled) {
	t.Helper()
	addr, pages, heeded := ownRedis(t), tree(5, small), make(chan struct{})
	closeOnce := sync.OnceFunc(func() { close(heeded) })
	sites := []site{
		{host: "slow.example", addr: loopback(2), handler: ruled("User-agent: *\nCrawl-delay: 1\n", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			closeOnce()
			pages.ServeHTTP(w, r)
		}))},
		{host: "busy.example", addr: loopback(3), handler: busy(without(pages), 4, 8)},
		{host: "down.example", addr: loopback(4), handler: down(without(pages))},
	}
	web, err := startWeb(sites, new(accessLog))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(web.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	did, failed := make([]crawled, len(queues)), make([]error, len(queues))
	var all sync.WaitGroup
	for i, queue := range queues {
		client := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { client.Close() })
		run := readyCrawl(t, client, web, true, []string{"-requests", "host=1/" + apart.String(), "-queue", queue}, startPages(sites)...)
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
	return web.log.all(), did
}

// heardLater is a log whose answers came so much later: "later" is not in Redis before
// its answer has been read, which takes a busy machine its time.
func heardLater(accesses []access, by time.Duration) []access {
	accesses = slices.Clone(accesses)
	for i := range accesses {
		accesses[i].end = accesses[i].end.Add(by)
	}
	return accesses
}

// expectHeeded holds the servers' log, and what several crawlers were granted, against
// what the hosts of crawlTwice ask for.
func expectHeeded(t *testing.T, accesses []access, did []crawled) {
	t.Helper()
	both := result{options: did[0].options, accesses: accesses}
	for _, c := range did {
		both.visits = append(both.visits, c.visits...)
	}
	slices.SortFunc(both.visits, func(a, b visit) int { return a.start.Compare(b.start) })
	late := both.spread()
	t.Logf("requests came up to %s after their grants", late)
	if violations, pauses := pauseViolations(heardLater(accesses, apart+late)); violations != 0 || pauses != 4 {
		t.Errorf("%d requests in %d pauses; want 0 in 4", violations, pauses)
	}
	for _, seen := range []struct {
		by      string
		events  []event
		shorter time.Duration
	}{
		{"servers' log", both.recorded(func(access) int64 { return 1 }), late},
		{"grants", both.granted(func(visit) int64 { return 1 }), 0},
	} {
		if over := windowsOver(checkLimits(seen.events, both.options.requests, seen.shorter)); over != 0 {
			t.Errorf("%s: %d windows over the limit of a host", seen.by, over)
		}
		slow := slices.DeleteFunc(inOrder(seen.events), func(e event) bool { return e.keys.host != "slow.example" })
		// The delay holds from the first robots.txt on, also for another crawler's.
		delayed := checkLimit(map[string][]event{"slow.example": slow[1:]}, scopeHost, throttle.Per(1, time.Second), max(0, time.Second-seen.shorter))
		if delayed.over != 0 {
			t.Errorf("%s: %d of %d requests came too soon after another", seen.by, delayed.over, len(slow))
		}
	}
}
