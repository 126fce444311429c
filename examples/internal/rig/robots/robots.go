// Package robots reads robots.txt.
//
// It is not part of the example because of its size, and because a parser does not show how to keep a Crawl-delay. The
// example shows that.
package robots

import (
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/link"
)

// The parser follows RFC 9309, and adds Crawl-delay, which the RFC lacks. There are two libraries, of 2021 and 2022.
// One applies the rules for "crawl" to "crawler", the other loses digits of escapes in lower case: either would request
// forbidden pages.

// Path is the path of a host's rules.
const Path = "/robots.txt"

// Bounds of a robots.txt.
const (
	maxRobots     = 500 << 10 // bytes that are read: the number that the RFC asks for
	MaxHops       = 5         // redirects that are followed, as the RFC asks for
	maxCrawlDelay = 10 * time.Minute
	RobotsKept    = 24 * time.Hour // as long as the RFC allows
)

// DisallowAll is a robots.txt that forbids everything.
const DisallowAll = "User-agent: *\nDisallow: /\n"

// Text returns the robots.txt that applies after an answer to the request for it (RFC 9309, 2.3.1). If the host has
// none, everything is allowed; if there may be one that cannot be read, nothing is. "Too many requests" counts as the
// latter.
func Text(status int, body []byte) string {
	switch {
	case status >= 200 && status < 300:
		return string(body[:min(len(body), maxRobots)])
	case status >= 300 && status < 500 && status != http.StatusTooManyRequests:
		return ""
	}
	return DisallowAll
}

// Rules are the rules of a robots.txt for one crawler. The zero value allows all.
type Rules struct {
	rules []robotsRule
	Delay time.Duration // from one request to the next; 0 if it says nothing
}

type robotsRule struct {
	pattern string
	allow   bool
}

// robotsParser reads a robots.txt line by line. A group is names and then rules, up to the next name (RFC 9309, 2.2.1);
// a line that is neither does not end the names (2.2.4). So a Crawl-delay applies to its whole group, whichever name it
// follows, and the longest of several applies: the crawler may be slower than the host meant, never faster.
type robotsParser struct {
	own, all       Rules         // the rules of the groups that name us, and of those for everyone
	forUs, forAll  bool          // whether the current group is for us, for everyone
	delay          time.Duration // the longest delay that the current group asks for
	named, inRules bool          // some group names us; the current group has had a rule
}

// Parse reads the rules of a robots.txt for the crawler with this product name.
func Parse(text, product string) Rules {
	p := robotsParser{inRules: true} // lines before the first name belong to no group
	text = link.CanonicalEscapes(strings.TrimPrefix(text, "\uFEFF"), func(c byte) bool { return c >= 0x7f })
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == '\r' }) {
		line, _, _ = strings.Cut(line, "#")
		if key, value, ok := strings.Cut(line, ":"); ok {
			p.line(strings.ToLower(strings.TrimSpace(key)), strings.TrimSpace(value), product)
		}
	}
	if p.named {
		return p.own
	}
	return p.all
}

func (p *robotsParser) line(key, value, product string) {
	switch key {
	case "user-agent":
		if p.inRules {
			p.forUs, p.forAll, p.delay, p.inRules = false, false, 0, false
		}
		p.forAll = p.forAll || value == "*"
		if strings.EqualFold(Product(value), product) {
			p.forUs, p.named = true, true
		}
		p.slowDown()
	case "allow", "disallow":
		p.inRules = true
		if value != "" {
			p.each(func(r *Rules) { r.rules = append(r.rules, robotsRule{pattern: value, allow: key == "allow"}) })
		}
	case "crawl-delay":
		p.delay = max(p.delay, crawlDelay(value))
		p.slowDown()
	}
}

// slowDown applies the delay of the current group to the crawlers that the group names.
func (p *robotsParser) slowDown() {
	p.each(func(r *Rules) { r.Delay = max(r.Delay, p.delay) })
}

func (p *robotsParser) each(do func(*Rules)) {
	if p.forUs {
		do(&p.own)
	}
	if p.forAll {
		do(&p.all)
	}
}

// Product returns the product name that a User-agent line or header begins with.
func Product(agent string) string {
	end := strings.IndexFunc(agent, func(r rune) bool {
		return r != '-' && r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	if end < 0 {
		return agent
	}
	return agent[:end]
}

// crawlDelay reads a number of seconds; 0 if there is none.
func crawlDelay(value string) time.Duration {
	seconds, err := strconv.ParseFloat(value, 64)
	if err != nil || math.IsNaN(seconds) || seconds <= 0 {
		return 0
	}
	return time.Duration(min(seconds, maxCrawlDelay.Seconds()) * float64(time.Second)).Round(time.Millisecond)
}

// Allows reports whether a path, with its query and in canonical form, may be requested. The longest matching pattern
// decides; of two patterns of the same length, the one that allows.
func (r Rules) Allows(path string) bool {
	allowed, longest := true, -1
	for _, rule := range r.rules {
		if n := len(rule.pattern); n < longest || n == longest && !rule.allow || !matchesPattern(path, rule.pattern) {
			continue
		}
		allowed, longest = rule.allow, len(rule.pattern)
	}
	return allowed || path == Path
}

// matchesPattern reports whether a path begins with a pattern, in which * stands for
// anything and a final $ for the path's end.
func matchesPattern(path, pattern string) bool {
	pattern, toEnd := strings.CutSuffix(pattern, "$")
	first, rest, wild := strings.Cut(pattern, "*")
	path, ok := strings.CutPrefix(path, first)
	for ok && wild {
		first, rest, wild = strings.Cut(rest, "*")
		if toEnd && !wild {
			return strings.HasSuffix(path, first)
		}
		_, path, ok = strings.Cut(path, first)
	}
	return ok && (!toEnd || path == "")
}

// URL returns the URL of the rules for a URL's host.
func URL(u *url.URL) *url.URL {
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: Path}
}

// Origin returns the origin of a URL, for which one robots.txt applies.
func Origin(u *url.URL) string { return u.Scheme + "://" + u.Host }
