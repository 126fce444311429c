package throttle

import (
	"context"
	"strconv"
	"time"
)

// Line is what waits under one scope key.
type Line struct {
	// Scope and Key name the scope key; Key is empty for Global. Of a very long key only
	// the hash is known, which begins with ~.
	Scope, Key string
	// Flows is how many flows stand under it: keys of the fair scope, with one lane or
	// more each.
	Flows int64
	// Looked is when it is looked at again, on Redis' clock.
	Looked time.Time
}

// LinesPage is a part of all that waits.
type LinesPage struct {
	// Now is the instant of the answer, on Redis' clock.
	Now time.Time
	// Lines are the scope keys of this page, in no order.
	Lines []Line
	// Next is where the next page begins; empty if this was the last.
	Next string
}

// mostOnPage is how many entries one page has.
const mostOnPage = 500

// Lines returns a page of the scope keys under which jobs wait, from the one named by
// from, empty for the first. Each waiting lane stands under exactly one of them, the one
// that has no room for its first job. What comes or goes while pages are read may come
// once, twice or not at all. It changes nothing, blocks for one round trip and fails as
// Usage does.
func (t *Throttle) Lines(ctx context.Context, from string) (LinesPage, error) {
	p, err := t.page(ctx, "keys", from)
	if err != nil {
		return LinesPage{}, err
	}
	page := LinesPage{Now: p.now, Next: p.next}
	for p.more() {
		page.Lines = append(page.Lines, p.line())
	}
	return page, p.end()
}

// page is a part of what waits, with its entries yet to be read.
type page struct {
	*values
	now  time.Time
	next string // empty: no more
}

// page asks for a page of one kind of entries: keys; flows of a scope key; lanes of a
// flow under it; jobs of a lane. of names whose they are.
func (t *Throttle) page(ctx context.Context, kind, from string, of ...string) (*page, error) {
	if ctx == nil {
		return nil, &InvalidJobError{Field: "ctx", Value: nil, Reason: "is nil"}
	}
	if from == "" {
		from = "0"
	}
	if _, err := strconv.ParseUint(from, 10, 63); err != nil {
		return nil, &InvalidJobError{Field: "from", Value: from, Reason: "is not where a page begins"}
	}
	reply, err := t.redis.run(ctx, linesScript, t.linesArguments(kind, append(of, from, strconv.Itoa(mostOnPage))...))
	if err != nil {
		return nil, err
	}
	p := &page{values: arrayOf("lines", reply)}
	p.now = p.instant()
	if p.next = p.text(); p.next == "0" {
		p.next = ""
	}
	return p, nil
}

// line reads a scope key with lanes.
func (p *page) line() Line {
	scope, key, is := splitName(p.text())
	p.wrong = p.wrong || !is
	return Line{Scope: scope, Key: key, Looked: p.instant(), Flows: p.natural()}
}

// flowTag is a flow under a scope key.
type flowTag struct {
	flow string
	tag  float64
}

func (p *page) flow() flowTag {
	f := flowTag{flow: p.text()}
	tag, err := strconv.ParseFloat(p.text(), 64)
	p.wrong = p.wrong || err != nil
	f.tag = tag
	return f
}

// standing is a lane of a flow.
type standing struct {
	lane    string
	arrival time.Time // of its first job
	jobs    int64
}

func (p *page) standing() standing {
	return standing{lane: p.text(), arrival: p.instant(), jobs: p.natural()}
}

// waiter is a job in a lane.
type waiter struct {
	id      string
	arrival time.Time
	costs   []int64 // one for all, or one for each scope key of the lane
}

func (p *page) waiter() waiter {
	return waiter{id: p.text(), arrival: p.instant(), costs: p.costs()}
}
