package throttletest

import (
	"maps"
	"slices"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Clone returns a model of its own that knows all that this one knows: to try what a
// call would answer, and go back.
func (m *Model) Clone() *Model {
	c := *m
	c.books = make(map[scopeKey]*book, len(m.books))
	for k, b := range m.books {
		c.books[k] = b.clone()
	}
	c.records, c.granted, c.bookings = maps.Clone(m.records), maps.Clone(m.granted), maps.Clone(m.bookings)
	c.line = m.line.clone()
	c.set = settings{maps.Clone(m.set.pauses), maps.Clone(m.set.limits), maps.Clone(m.set.modes)}
	return &c
}

func (b *book) clone() *book {
	c := &book{seen: b.seen, ledgers: make(map[int64]*ledger, len(b.ledgers)), since: maps.Clone(b.since), missed: maps.Clone(b.missed)}
	for window, l := range b.ledgers {
		own := *l
		own.spent, own.booked = maps.Clone(l.spent), maps.Clone(l.booked)
		c.ledgers[window] = &own
	}
	return c
}

func (l *line) clone() *line {
	c := *l
	c.lanes = make(map[throttle.Lane]*lane, len(l.lanes))
	for name, own := range l.lanes {
		c.lanes[name] = &lane{name: own.name, keys: own.keys, waiting: slices.Clone(own.waiting)}
	}
	c.heads = make(map[string]map[throttle.Lane]int64, len(l.heads))
	for fair, heads := range l.heads {
		c.heads[fair] = maps.Clone(heads)
	}
	c.ready, c.tags, c.agenda = maps.Clone(l.ready), maps.Clone(l.tags), maps.Clone(l.agenda)
	return &c
}
