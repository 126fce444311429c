package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/crawl"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/site"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// slowNeighbours returns three hosts on one address, each of which takes the given time to answer.
func slowNeighbours(takes time.Duration) []site.Site {
	pages := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(takes)
		site.Tree(4, site.Small).ServeHTTP(w, r)
	})
	var sites []site.Site
	for _, host := range []string{"a.example", "b.example", "c.example"} {
		sites = append(sites, site.Site{Host: host, Addr: site.Loopback(2), Handler: site.Without(pages)})
	}
	return sites
}

// By the servers' log, hosts on one address never get more requests at once than the limit allows.
func TestConnectionsOfAnAddress(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]int64{"1": 1, "2": 2} {
		t.Run(arg, func(t *testing.T) {
			t.Parallel()
			c := crawlSites(t, slowNeighbours(150*time.Millisecond), []string{"-per-host", arg})
			if !c.OK || c.Pages != 12 || c.AtOnce.Most != want || c.AtOnce.Over != 0 || c.AtOnce.Key != "127.0.0.2" {
				t.Errorf("at once %s; %+v", c.AtOnce, c.Summary)
			}
			if one := (crawl.Connections{Limit: throttle.Running(want - 1)}).Check(c.of.Accesses); one.Over == 0 {
				t.Errorf("with a limit of %d nothing would have been over it", want-1)
			}
		})
	}
}

// The longer an address takes to answer, the longer it is left alone.
func TestCooldownOfAnAddress(t *testing.T) {
	t.Parallel()
	c := crawlSites(t, slowNeighbours(20 * time.Millisecond)[:1], []string{"-cooldown", "10", "-host-pages", "3"})
	if !c.OK || c.Pages != 3 || c.AtOnce.Over != 0 {
		t.Errorf("at once %s; %+v", c.AtOnce, c.Summary)
	}
	before := time.Time{}
	for _, a := range c.of.Accesses {
		if took := a.Held.Sub(a.At); !before.IsZero() && a.At.Before(before) {
			t.Errorf("%s was asked for %s too soon after one that took %s", a.URL, before.Sub(a.At), took)
		}
		before = a.Held.Add(10 * a.Held.Sub(a.At))
	}
}
