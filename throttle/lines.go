package throttle

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// Line is what waits under one scope key.
type Line struct {
	// Scope and Key name the scope key; Key is empty for Global. Of a very long key only
	// the hash is known, which begins with ~.
	Scope, Key string
	// Flows is how many flows wait there: keys of the fair scope, with one lane or more
	// each. Heavy is how many lanes wait for room for a heavy job: parked, or with a claim
	// on their place.
	Flows, Heavy int64
	// Looked is when it is looked at again, on Redis' clock; zero if that is not before
	// something is changed.
	Looked time.Time
}

// LinesPage is a part of all that waits.
type LinesPage struct {
	// Now is the instant of the answer, on Redis' clock.
	Now time.Time
	// Lines are the scope keys of this page.
	Lines []Line
	// Next is where the next page begins; empty if this was the last.
	Next string
}

// mostOnPage is how many entries one page has.
const mostOnPage = 500

// Lines returns a page of the scope keys under which jobs wait, from the one named by
// from, empty for the first. Each waiting lane stands under exactly one of them, the one
// that has no room for its first job. A scope key may come on two pages, with its heavy
// flows on one and the others on the other. What comes or goes while pages are read may
// come once, twice or not at all. It changes nothing, blocks for one round trip, for the
// first page two, and fails as Usage does.
func (t *Inspector) Lines(ctx context.Context, from string) (LinesPage, error) {
	p, err := t.page(ctx, "keys", from)
	if err != nil {
		return LinesPage{}, err
	}
	page := LinesPage{Now: p.now, Next: p.next}
	lines := make(map[string]*Line)
	for p.more() {
		q := p.queue()
		if q.flows == 0 {
			continue // nobody stands there any more
		}
		name, heavy := strings.CutSuffix(q.Name, parkedMark)
		of := p.lineOf(lines, name, q.Timer)
		of.Flows += q.flows
		if heavy {
			of.Heavy += q.flows
		}
	}
	if err = p.end(); err == nil && from == "" {
		err = t.addClaims(ctx, lines)
	}
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		page.Lines = append(page.Lines, *lines[name])
	}
	return page, err
}

// addClaims adds the lanes that stand in no queue, since they have a claim.
func (t *setup) addClaims(ctx context.Context, lines map[string]*Line) error {
	return t.pages(ctx, "claims", func(p *page) {
		c := p.claim(t.options.Lookahead)
		of := p.lineOf(lines, c.Names[0], c.Timer)
		of.Flows++
		of.Heavy++
	})
}

// page is a part of what waits, with its entries yet to be read.
type page struct {
	*values
	now  time.Time
	next string // empty: no more
}

// page asks for a page of one kind of entries, of what names say.
func (t *setup) page(ctx context.Context, kind, from string, of ...string) (*page, error) {
	if ctx == nil {
		return nil, &InvalidJobError{Field: "ctx", Value: nil, Reason: "is nil"}
	}
	if from == "" {
		from = "0"
	}
	place, err := strconv.ParseUint(from, 10, 63)
	if err != nil {
		return nil, &InvalidJobError{Field: "from", Value: from, Reason: "is not where a page begins"}
	}
	return t.ask(ctx, kind, int(place), of...)
}

// ask asks for a page; of jobs one that begins at a place as seen from the end, if that is
// below 0.
func (t *setup) ask(ctx context.Context, kind string, from int, of ...string) (*page, error) {
	reply, err := t.redis.run(ctx, linesScript,
		t.linesArguments(kind, append(of, strconv.Itoa(from), strconv.Itoa(mostOnPage))...))
	if err != nil {
		return nil, err
	}
	p := &page{values: arrayOf("lines", reply)}
	p.now, p.next = p.instant(), p.text()
	return p, nil
}

// pages reads all pages of one kind of entries.
func (t *setup) pages(ctx context.Context, kind string, read func(p *page), of ...string) error {
	for from := ""; ; {
		p, err := t.page(ctx, kind, from, of...)
		if err != nil {
			return err
		}
		for p.more() {
			read(p)
		}
		if err := p.end(); err != nil {
			return err
		}
		if from = p.next; from == "" {
			return nil
		}
	}
}

// lineOf is the line of a scope key, which is looked at by then.
func (p *page) lineOf(lines map[string]*Line, name string, timer int64) *Line {
	scope, key, is := splitName(name)
	p.wrong = p.wrong || !is
	of, known := lines[name]
	if !known {
		of = &Line{Scope: scope, Key: key}
		lines[name] = of
	}
	if at := instant(timer); !at.IsZero() && (of.Looked.IsZero() || at.Before(of.Looked)) {
		of.Looked = at
	}
	return of
}

// parkedMark stands behind a scope key's name as that of the queue of its parked lanes.
const parkedMark = "!"

// queued is a queue with how many flows stand in it.
type queued struct {
	line.QueueSnapshot
	flows int64
}

func (p *page) queue() (q queued) {
	q.Name, q.Timer, q.flows, q.Virtual = p.text(), p.natural(), p.natural(), p.float()
	return q
}

// counted is a lane with how many jobs are in it.
type counted struct {
	line.Standing
	jobs int64
}

func (p *page) standing() (s counted) {
	s.Lane, s.Arrival, s.jobs = p.text(), p.natural(), p.natural()
	return s
}

// claimed is a lane's claim with how many jobs are in the lane.
type claimed struct {
	line.ClaimSnapshot
	jobs int64
}

// claim reads "name=units,name=units" with what stands around it.
func (p *page) claim(lookahead time.Duration) (c claimed) {
	c.Lane, c.At = p.text(), p.natural()
	for part := range strings.SplitSeq(p.text(), ",") {
		name, units, _ := strings.Cut(part, "=")
		n, err := strconv.ParseInt(units, 10, 64)
		p.wrong = p.wrong || err != nil
		c.Names, c.Units = append(c.Names, name), append(c.Units, n)
	}
	c.Timer = max(c.At-lookahead.Microseconds(), p.now.UnixMicro())
	c.jobs = p.natural()
	return c
}

func (p *page) waiter() line.Waiter {
	return line.Waiter{ID: p.text(), Arrival: p.natural(), Costs: p.costs()}
}
