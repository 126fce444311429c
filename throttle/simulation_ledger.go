package throttle

import (
	"math"
	"slices"
)

// mostSlid is up to how many entries a ledger is gone through as slide.lua does. With
// more, what is ahead of a start counts as if it were in its window: that errs on the
// late side, by less than the lookahead.
const mostSlid = 512

// simLedger is one limit's units by time.
type simLedger struct {
	units, span, precision int64
	class                  byte // which jobs share it
	key                    *scopeKeyState
	at, amount             []int64
	first                  int   // that counts
	total                  int64 // from first on
}

// earliest is the earliest start at or after from with room for a weight.
func (l *simLedger) earliest(weight, from, now int64) int64 {
	for l.first < len(l.at) && l.at[l.first] <= now-now%l.precision-l.span {
		l.total -= l.amount[l.first]
		l.first++
	}
	if weight > l.units {
		return math.MaxInt64
	}
	left := l.total
	if left+weight <= l.units {
		return from
	}
	if len(l.at)-l.first <= mostSlid {
		return l.slide(l.units-weight, from)
	}
	for i := l.first; i < len(l.at); i++ {
		left -= l.amount[i]
		if left+weight <= l.units {
			return max(from, l.at[i]+l.span)
		}
	}
	return from
}

// slide is slide.lua: the earliest sub-window such that every window that contains it
// holds at most room units.
func (l *simLedger) slide(room, from int64) int64 {
	candidate := from - from%l.precision
	stop, sum := candidate, int64(0)
	first, next := l.first, l.first
	for {
		for next < len(l.at) && l.at[next] <= stop {
			sum += l.amount[next]
			next++
		}
		for first < next && l.at[first] <= stop-l.span {
			sum -= l.amount[first]
			first++
		}
		switch {
		case sum > room:
			candidate = l.at[first] + l.span
			stop = candidate
		case next == len(l.at) || l.at[next] >= candidate+l.span:
			return max(candidate, from)
		default:
			stop = l.at[next]
		}
	}
}

// charge enters units, mostly behind all others.
func (l *simLedger) charge(start, units int64) {
	at := start - start%l.precision
	i := len(l.at)
	for i > l.first && l.at[i-1] > at {
		i--
	}
	l.total += units
	if i > l.first && l.at[i-1] == at {
		l.amount[i-1] += units
		return
	}
	l.at, l.amount = slices.Insert(l.at, i, at), slices.Insert(l.amount, i, units)
}
