package throttletest

import (
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// ledger is one limit of one scope key: units by sub-window, in microseconds.
type ledger struct {
	units, window, precision, span, grace int64
	spent, booked                         map[int64]int64
}

func newLedger(limit throttle.Limit, grace time.Duration) *ledger {
	l := newLedgerOf(limit.Window.Microseconds(), precision(limit).Microseconds(), grace.Microseconds())
	l.units = limit.Units
	return l
}

func newLedgerOf(window, precision, grace int64) *ledger {
	l := &ledger{
		window:    window,
		precision: precision,
		grace:     grace,
		spent:     make(map[int64]int64),
		booked:    make(map[int64]int64),
	}
	l.span = l.window
	if l.precision > 1 {
		// A start counts until its whole sub-window has left.
		l.span = (l.window+l.precision-1)/l.precision*l.precision + l.precision
	}
	return l
}

// precision is the documented default, written down a second time.
func precision(limit throttle.Limit) time.Duration {
	switch {
	case limit.Precision != 0:
		return limit.Precision
	case limit.Units <= 100:
		return time.Microsecond
	}
	return (limit.Window / 100).Truncate(time.Microsecond)
}

func (l *ledger) bucket(at int64) int64 { return at - at%l.precision }

// edge is the newest sub-window that has left every window from now on.
func (l *ledger) edge(now int64) int64 { return l.bucket(now) - l.span }

// stale is the newest instant whose bookings count no more.
func (l *ledger) stale(now int64) int64 { return now - l.grace - l.precision }

func (l *ledger) add(entries map[int64]int64, at, units int64) {
	entries[l.bucket(at)] = max(0, entries[l.bucket(at)]+units)
}

func (l *ledger) total(entries map[int64]int64, after int64) int64 {
	var total int64
	for at, units := range entries {
		if at > after {
			total += units
		}
	}
	return total
}

// earliest tries every start at which something changes, in order, and takes the
// first with room in every window that contains it.
func (l *ledger) earliest(weight, from, now int64, spentOnly bool) int64 {
	entries := make(map[int64]int64)
	for at, units := range l.spent {
		if at > l.edge(now) && units > 0 {
			entries[at] += units
		}
	}
	for at, units := range l.booked {
		if at > l.stale(now) && units > 0 && !spentOnly {
			entries[at] += units
		}
	}
	held := newTally(entries)
	if l.roomAt(held, from, weight) {
		return from
	}
	for _, at := range held.times {
		if start := at + l.span; start > from && l.roomAt(held, start, weight) {
			return start
		}
	}
	panic("throttletest: the last start has no room")
}

// roomAt tells whether every window that contains start has room for weight: the
// one that ends at start and each that ends at a later entry and still reaches it.
func (l *ledger) roomAt(held tally, start, weight int64) bool {
	first := l.bucket(start)
	for _, later := range held.between(first, first+l.span-1) {
		if held.sum(later-l.span, later)+weight > l.units {
			return false
		}
	}
	return held.sum(first-l.span, first)+weight <= l.units
}
