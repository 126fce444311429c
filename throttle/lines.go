package throttle

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
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
	// Looked is when a pull looks at it again, on Redis' clock; zero if only a change causes that.
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

// mostFlows is how many flows of queues are on a page, and lanes of each: a flow takes several commands.
const mostFlows = 200

// Lines returns a page of the scope keys under which jobs wait. from is where the page begins, as
// the last page's Next; empty means the first. Each waiting lane stands under exactly one scope key,
// one that has no room for its first job. A scope key may be on two pages, with its heavy flows on
// one and the others on the other. Scope keys that come or go while pages are read may be there
// once, twice or not at all. It changes nothing, blocks for one round trip (the first page for two),
// and fails as Usage does.
func (t *Inspector) Lines(ctx context.Context, from string) (LinesPage, error) {
	p, err := t.page(ctx, wire.LinesKeys, from)
	if err != nil {
		return LinesPage{}, err
	}
	page := LinesPage{Now: wire.Instant(p.Now), Next: p.Next}
	lines := make(map[string]*Line)
	for p.More() {
		q := p.Queue()
		if q.Standing == 0 {
			continue // the last flow has left
		}
		name, heavy := strings.CutSuffix(q.Name, parkedMark)
		of := lineOf(lines, p, name, q.Timer)
		of.Flows += q.Standing
		if heavy {
			of.Heavy += q.Standing
		}
	}
	if err = unreadable(p); err == nil && from == "" {
		err = t.addClaims(ctx, lines)
	}
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		page.Lines = append(page.Lines, *lines[name])
	}
	return page, err
}

// addClaims adds the lanes that stand in no queue, since they have a claim.
func (t *setup) addClaims(ctx context.Context, lines map[string]*Line) error {
	return t.pages(ctx, wire.LinesClaims, func(p *wire.Page) {
		c := t.claim(p)
		of := lineOf(lines, p, c.Names[0], c.Timer)
		of.Flows++
		of.Heavy++
	})
}

// unreadable is the error of a page that cannot be read, else nil.
func unreadable(p *wire.Page) error {
	if p.Err() != nil {
		return badReply("lines")
	}
	return nil
}

// page asks for a page of one kind of entries, of what names say.
func (t *setup) page(ctx context.Context, kind, from string, of ...string) (*wire.Page, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	if from == "" {
		from = "0"
	}
	place, err := strconv.ParseUint(from, 10, 63)
	if err != nil {
		return nil, &ArgumentError{Argument: "from", Value: from, Reason: "is not where a page begins"}
	}
	return t.ask(ctx, kind, int64(place), of...)
}

// ask asks for a page. A page of jobs may begin at a negative index, counted from the end.
func (t *setup) ask(ctx context.Context, kind string, from int64, of ...string) (*wire.Page, error) {
	asked := wire.Lines{Kind: kind, Of: of, From: from, Count: mostOnPage}
	if kind == wire.LinesQueues {
		asked.Count = mostFlows
	}
	reply, err := t.redis.run(ctx, linesScript, t.arguments(asked.Arguments()))
	if err != nil {
		return nil, err
	}
	return wire.ReadPage(reply), nil
}

// pages reads all pages of one kind of entries.
func (t *setup) pages(ctx context.Context, kind string, read func(p *wire.Page), of ...string) error {
	for from := ""; ; {
		p, err := t.page(ctx, kind, from, of...)
		if err != nil {
			return err
		}
		for p.More() {
			read(p)
		}
		if err := unreadable(p); err != nil {
			return err
		}
		if from = p.Next; from == "" {
			return nil
		}
	}
}

// lineOf returns the line of a scope key, with the earliest time of its looks.
func lineOf(lines map[string]*Line, p *wire.Page, name string, timer int64) *Line {
	scope, key, is := wire.SplitScopeKey(name)
	p.Refuse(!is)
	of, known := lines[name]
	if !known {
		of = &Line{Scope: scope, Key: key}
		lines[name] = of
	}
	if at := wire.Instant(timer); !at.IsZero() && (of.Looked.IsZero() || at.Before(of.Looked)) {
		of.Looked = at
	}
	return of
}

// parkedMark after a scope key's name makes it the name of the queue of its parked lanes.
const parkedMark = "!"

// claim reads a lane's claim. A pull looks at it when its slot comes into the lookahead.
func (t *setup) claim(p *wire.Page) wire.Claim {
	c := p.Claim()
	c.Timer = max(c.At-t.options.Lookahead.Microseconds(), p.Now)
	return c
}
