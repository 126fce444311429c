package main

import (
	"context"
	"fmt"
	"net/url"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// learnRules takes the answer to the request for a host's robots.txt.
func (c *crawl) learnRules(ctx context.Context, t *turn, from *url.URL, a *answer) error {
	if a.location() != "" && t.page.Hops < maxRobotsHops {
		if to, err := resolve(from, a.location()); err == nil {
			t.page.MovedTo, t.page.Hops = to.String(), t.page.Hops+1
			return c.again(ctx, t, placeFirst)
		}
	}
	own, err := t.page.location()
	if err != nil {
		return err
	}
	text := robotsText(a.status, a.body)
	if err := c.heed(ctx, t.host, parseRobots(text, productOf(c.options.agent))); err != nil {
		return err
	}
	if err := c.frontier.setRobots(ctx, originOf(own), text); err != nil {
		return err
	}
	t.page.end(endRules, fmt.Sprintf("the host answered %d", a.status))
	return c.ended(ctx, t)
}

// heed makes a host's Crawl-delay a limit of the host, for all workers at once.
func (c *crawl) heed(ctx context.Context, host string, rules robots) error {
	var err error
	if rules.delay > 0 {
		err = c.throttle.SetLimits(ctx, scopeHost, host, withDelay(c.perHost, rules.delay))
	} else { // also what another crawl has set, since the limits are of all
		err = c.throttle.ResetLimits(ctx, scopeHost, host)
	}
	if err != nil {
		return fmt.Errorf("crawler: Crawl-delay of %s: %w", host, err)
	}
	notes, err := c.frontier.notes(ctx, host)
	if err != nil || notes.Delay == rules.delay {
		return err
	}
	notes.Delay = rules.delay
	return c.frontier.setNotes(ctx, host, notes)
}

// limitsOf is the limits of a scope.
func limitsOf(scopes []throttle.Scope, name string) []throttle.Limit {
	for _, scope := range scopes {
		if scope.Name == name {
			return scope.Limits
		}
	}
	return nil
}

// robotsViolations counts the requests in the client's own log that a host's
// robots.txt forbids.
func (c *crawl) robotsViolations(ctx context.Context, accesses []access) (int, error) {
	violations := 0
	known := make(map[string]robots)
	for _, a := range accesses {
		u, err := url.Parse(a.url)
		if err != nil {
			return 0, err
		}
		origin := originOf(u)
		rules, asked := known[origin]
		if !asked {
			text, _, err := c.frontier.robots(ctx, origin)
			if err != nil {
				return 0, err
			}
			rules = parseRobots(text, productOf(c.options.agent))
			known[origin] = rules
		}
		if !a.rules && !rules.allows(u.RequestURI()) {
			violations++
		}
	}
	return violations, nil
}
