package main

import (
	"context"
	"net/url"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/frontier"
	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// may reports whether the host's robots.txt allows a page. It ends a forbidden page. While the robots.txt is not known
// or is too old, it ends no page.
func (c *crawler) may(ctx context.Context, p *frontier.Page, u *url.URL) (bool, error) {
	if p.Robots {
		return true, nil
	}
	rules, known, err := c.walk.Rules(ctx, u)
	if err != nil || !known {
		return false, err
	}
	if rules.Allows(u.RequestURI()) {
		return true, nil
	}
	p.End(frontier.EndForbidden, "by robots.txt")
	return false, nil
}

// Heed makes a host's Crawl-delay a limit of the host, for all workers at once. Without a
// delay it resets the limits that another crawl may have set, because all crawls share them.
func (c *crawler) Heed(ctx context.Context, host string, delay time.Duration) error {
	if delay == 0 {
		return inspect.New(c.throttle).ResetLimits(ctx, scopeHost, host)
	}
	return inspect.New(c.throttle).SetLimits(ctx, scopeHost, host, withDelay(rig.LimitsOf(c.requests, scopeHost), delay))
}

// withDelay returns the limits of a host that asks for a delay between two requests: one request in each delay, besides
// the limits of every host.
func withDelay(limits []throttle.Limit, delay time.Duration) []throttle.Limit {
	all := []throttle.Limit{throttle.Per(1, delay)}
	for _, limit := range limits {
		if limit.Window != delay {
			all = append(all, limit)
		}
	}
	return all
}
