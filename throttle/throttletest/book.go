package throttletest

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// grantedAhead is how far ahead starts are granted at most, as far as adopting a
// ledger is concerned.
const grantedAhead = 10 * time.Second

// book is what is kept of one scope key: its ledgers by window, of which the last
// call has written only some. The others are complete up to an instant.
type book struct {
	seen    int64
	ledgers map[int64]*ledger
	since   map[int64]int64 // of those that were set aside
	missed  map[int64]int64 // units charged since
}

// now is the instant of a call that has got as far as now, at this time.
func (b *book) now(now, time int64) int64 {
	if b.seen > now && b.seen-time <= clockPatience.Microseconds() {
		return b.seen
	}
	return now
}

// book finds the ledgers of a scope key's rulings, made such that they can be counted
// on. What is not written is not kept.
func (m *Model) book(k scopeKey, rulings []ruling, now int64) []*ledger {
	b := m.books[k]
	ledgers := make([]*ledger, len(rulings))
	if b != nil {
		b.adopt(rulings, m.grace.Microseconds(), now)
	}
	for i, r := range rulings {
		if b == nil {
			ledgers[i] = newLedger(r.limit, m.grace)
			continue
		}
		ledgers[i] = b.ledgers[r.limit.Window.Microseconds()]
		ledgers[i].units = r.limit.Units
	}
	return ledgers
}

// adopt builds ledgers that are new, brings up to date those that were set aside, and
// changes precisions, as adopt.lua does.
func (b *book) adopt(rulings []ruling, grace, time int64) {
	adopted := make(map[int64]*ledger)
	for _, r := range rulings {
		window, precision := r.limit.Window.Microseconds(), precision(r.limit).Microseconds()
		own := b.ledgers[window]
		_, aside := b.since[window]
		if own != nil && own.precision > precision && !r.told {
			precision = own.precision
		}
		if own != nil && !aside && own.precision == precision {
			continue
		}
		l := newLedgerOf(window, precision, grace)
		if own != nil {
			l.take(own, math.MaxInt64, b.now(time, time))
		}
		if source := b.source(window); source != nil && (own == nil || aside) {
			most := int64(math.MaxInt64)
			if own != nil {
				most = b.missed[window]
			}
			l.take(source, most, b.now(time, time))
		}
		adopted[window] = l
	}
	for window, l := range adopted {
		b.ledgers[window] = l
		delete(b.since, window)
		delete(b.missed, window)
		b.seen = b.now(time, time)
	}
}

// source is the ledger that tells most of a window: the shortest that is as long, else
// the longest.
func (b *book) source(window int64) *ledger {
	var best *ledger
	for other, l := range b.ledgers {
		if _, aside := b.since[other]; aside || other == window {
			continue
		}
		if best == nil || closer(other, best.window, window) {
			best = l
		}
	}
	return best
}

// closer tells whether a window is a better source than another.
func closer(a, b, window int64) bool {
	if a >= window && b >= window {
		return a < b
	}
	return cmp.Less(b, a)
}

// take enters what another ledger has: of what was spent the newest units, up to most, by
// their sub-windows; what has left the other ledger had started by then. What is booked
// is taken once.
func (l *ledger) take(from *ledger, most, now int64) {
	left := most
	for _, at := range slices.Backward(slices.Sorted(maps.Keys(from.spent))) {
		if units := min(from.spent[at], left); at > from.edge(now) && units > 0 {
			left -= units
			if l.window == from.window && l.precision == from.precision {
				l.add(l.spent, at, units)
				continue
			}
			l.spend(at+from.precision-1, units, now)
		}
	}
	if most < math.MaxInt64 && left > 0 {
		l.spend(from.edge(now)+from.precision-1, left, now)
	}
	booked := make(map[int64]int64)
	for at, units := range from.booked {
		if at > from.stale(now) {
			booked[l.bucket(at)] += units
		}
	}
	for at, units := range booked {
		if at > l.stale(now) {
			l.booked[at] = max(l.booked[at], units)
		}
	}
}

// spend enters units that started by then: there if that is past, else now and there, and
// once for each window between.
func (l *ledger) spend(last, units, now int64) {
	first := last
	if last > now {
		first, last = now, min(last, now+grantedAhead.Microseconds())
	}
	buckets := make(map[int64]bool)
	for at := first; at < last; at += l.window {
		buckets[l.bucket(at)] = true
	}
	buckets[l.bucket(last)] = true
	for at := range buckets {
		l.add(l.spent, at, units)
	}
}

// write keeps the ledgers of a call and sets aside those that it does not know.
func (m *Model) write(k scopeKey, own []*ledger, charged, now int64) {
	b := m.books[k]
	if b == nil {
		b = &book{ledgers: make(map[int64]*ledger), since: make(map[int64]int64), missed: make(map[int64]int64)}
		m.books[k] = b
	}
	counted := make(map[int64]bool)
	for _, l := range own {
		b.ledgers[l.window] = l
		delete(b.since, l.window)
		delete(b.missed, l.window)
		counted[l.window] = true
	}
	aside := false
	for window := range b.ledgers {
		if _, is := b.since[window]; !is && !counted[window] {
			aside = true
		}
	}
	if aside {
		b.setAside(counted, now)
	}
	for window := range b.since {
		b.missed[window] += charged
	}
	b.seen = now
}

// setAside notes since when ledgers are not counted on, and forgets those of which all
// has left its window.
func (b *book) setAside(counted map[int64]bool, now int64) {
	for window, since := range b.since {
		if l := b.ledgers[window]; since+l.span+l.grace+clockPatience.Microseconds() < now {
			delete(b.ledgers, window)
			delete(b.since, window)
			delete(b.missed, window)
		}
	}
	for window := range b.ledgers {
		if _, is := b.since[window]; !is && !counted[window] {
			b.since[window], b.missed[window] = b.seen, 0
		}
	}
}
