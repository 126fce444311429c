package inspect

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/lanes"
	"github.com/asynq-throttle/asynq-throttle/internal/wire"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Line is what waits under one scope key.
type Line struct {
	// Scope and Key name the scope key; Key is empty for Global. Only the hash of a
	// very long key is known; it begins with ~.
	Scope, Key string
	// Flows is how many flows wait under the scope key. A flow is a key of the fair scope and has one
	// lane or more.
	Flows int64
	// Looked is when a pull looks at the scope key again, on Redis' clock; zero if a pull looks
	// at it only after a change.
	Looked time.Time
}

// LinesPage is one page of the scope keys under which jobs wait.
type LinesPage struct {
	// Now is the instant of the answer, on Redis' clock.
	Now time.Time
	// Lines are the scope keys of this page.
	Lines []Line
	// Next is where the next page begins; empty if this was the last page.
	Next string
}

// mostOnPage is how many entries one page has.
const mostOnPage = lanes.MostOnPage

// Lines returns a page of the scope keys under which jobs wait. from is the Next of the last page; empty
// asks for the first page. Each waiting lane stands under exactly one scope key, which has no room
// for the lane's first job. Scope keys that come or go while pages are read may be listed
// once, twice or not at all. Lines changes nothing, blocks for one round trip, and fails as Usage does.
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
		lineOf(lines, p, q.Name, q.Timer).Flows += q.Standing
	}
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		page.Lines = append(page.Lines, *lines[name])
	}
	return page, t.in.Lanes().Check(p)
}

// page asks for a page of one kind of entries, of the named queues, lanes or jobs.
func (t *Inspector) page(ctx context.Context, kind, from string, of ...string) (*wire.Page, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	if from == "" {
		from = "0"
	}
	index, err := strconv.ParseUint(from, 10, 63)
	if err != nil {
		return nil, &throttle.ArgumentError{Argument: "from", Value: from, Reason: "is not where a page begins"}
	}
	return t.in.Lanes().Page(ctx, kind, int64(index), of...)
}

// lineOf returns the line of a scope key. Its Looked is the earliest time at which a pull looks at the key.
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
