package frontier

import (
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/fetch"
)

// How a page ends.
const (
	EndFetched    = "fetched"     // 200, and read to its end
	EndRedirected = "redirected"  // redirected to a page that is in its own host's line
	EndTooLarge   = "too large"   // cut at the size cap
	EndAbsent     = "absent"      // 4xx, or another answer that is not a page
	EndForbidden  = "disallowed"  // forbidden by robots.txt; never requested
	EndBlocked    = "blocked"     // its address is not public; never requested
	EndOverBudget = "over budget" // beyond the budget of its host; never requested
	EndFailed     = "failed"      // no answer, or 5xx, as often as it was tried
	endRules      = "rules"       // a robots.txt
	EndUnchanged  = "unchanged"   // 304, the second time
)

// Page is a URL on its way through the crawl, as Redis keeps it.
type Page struct {
	URL      string `json:"url"` // canonical
	Customer string `json:"customer"`
	Depth    int    `json:"depth"`            // links from a start page
	Hops     int    `json:"hops,omitempty"`   // redirects in a row that led here
	Robots   bool   `json:"robots,omitempty"` // it is its host's robots.txt
	MovedTo  string `json:"moved,omitempty"`  // where that robots.txt has moved to

	KB     int64 `json:"kb,omitempty"`     // the kilobytes that it is charged; 0 for its host's estimate
	Larger bool  `json:"larger,omitempty"` // it was larger than its charge, and was requested once more
	Asked  int   `json:"asked,omitempty"`  // how often its host said to come back later
	fetch.Condition

	Ended  string `json:"ended,omitempty"` // how it ended, the first time
	Again  string `json:"again,omitempty"` // how it ended the second time, if it is a start page
	Second bool   `json:"second,omitempty"`
	Reason string `json:"reason,omitempty"` // why it was not fetched
	By     string `json:"by,omitempty"`     // the process in which it ended, the first time
}

// Location returns the page's URL, which was canonical when the page was made.
func (p *Page) Location() (*url.URL, error) {
	u, err := url.Parse(p.URL)
	if err != nil {
		return nil, fmt.Errorf("crawler: page %q: %w", p.URL, err)
	}
	return u, nil
}

// Target returns the URL to request for the page: where its robots.txt has moved to, or else its own URL.
func (p *Page) Target() (*url.URL, error) {
	if p.MovedTo != "" {
		return url.Parse(p.MovedTo)
	}
	return p.Location()
}

// Over reports whether the page has ended, the second time if there is one.
func (p *Page) Over() bool { return p.Again != "" || p.Ended != "" && !p.Second }

// End notes how the page ended.
func (p *Page) End(how, reason string) {
	if p.Second {
		p.Again = how
		return
	}
	p.Ended, p.Reason = how, reason
}

func (p *Page) text() string {
	text, _ := json.Marshal(p) // strings and numbers only
	return string(text)
}

func parsePage(text string) (*Page, error) {
	p := new(Page)
	if err := json.Unmarshal([]byte(text), p); err != nil {
		return nil, fmt.Errorf("crawler: page %q: %w", text, err)
	}
	return p, nil
}
