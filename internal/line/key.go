package line

import (
	"slices"
)

// Mode is how far a scope's limits are in force.
type Mode byte

// The modes, by their letters in Redis.
const (
	Enforce Mode = 'e'
	Shadow  Mode = 's'
	Off     Mode = 'o'
)

// steppedBack is up to what step back of the clock a ledger stands still; after a larger
// one it goes on.
const steppedBack = 30_000_000

// key is one scope key.
type key struct {
	name    string
	pause   int64   // until when it is closed at run time
	own     []Limit // set for it at run time; nil: none
	ownEnds int64   // until when; Never: until they are taken back
	adapted adapted
	ledgers []*ledger

	seen   int64 // the latest time of its ledgers
	offset int64 // of its ledgers' time from the clock's, as of then

	// Of one call:
	mode    Mode
	limits  []Limit // in force
	origin  byte    // c configuration, s set for the scope, k set for the key
	ends    int64   // when the next of what is set for it ends; Never: nothing does
	horizon int64   // until when jobs are booked
	shift   int64   // of its ledgers' time from the clock's
	goesOn  int64   // the offset from now on
	touched bool    // something was charged or booked, or has left
}

// look makes a scope key ready for one call: its limits in force, its time, and what has
// left its windows forgotten.
func (k *key) look(now, grace, lookahead int64, of inForce) {
	k.mode, k.limits, k.origin, k.ends, k.touched = of.mode, of.limits, of.origin, of.ends, false
	if k.ownEnds <= now {
		k.own = nil
	}
	counted := [][]Limit{of.limits, of.after}
	if k.own != nil {
		k.limits, k.origin, k.ends = k.own, 'k', min(k.ends, k.ownEnds)
		if k.ownEnds == Never {
			counted = nil
		}
		counted = slices.Insert(counted, 0, k.own)
	}
	k.adapted = k.adapted.asOf(now)
	k.goesOn, k.horizon = k.offset, now+lookahead
	if k.seen-now-k.offset > steppedBack {
		k.goesOn, k.touched = k.seen-now, true // kept, so that it goes on also while nobody is charged
	}
	k.shift = max(now+k.goesOn, k.seen) - now
	k.forget(now, grace)
	if len(k.ledgers) == 0 {
		k.offset, k.goesOn, k.shift, k.seen = 0, 0, 0, 0
	}
	if k.mode == Off {
		return
	}
	for _, limits := range counted {
		k.count(limits, now)
	}
	slices.SortFunc(k.ledgers, func(a, b *ledger) int { return a.Compare(b.Span) })
}

// count adds the ledgers that limits need.
func (k *key) count(limits []Limit, now int64) {
	for _, limit := range limits {
		if limit.Units >= 0 && k.ledger(limit.Span) == nil {
			k.ledgers = append(k.ledgers, &ledger{Span: limit.Span, precision: limit.Precision, since: now + k.shift})
		}
	}
}

// forget drops what counts no more, and the ledgers in which nothing is left.
func (k *key) forget(now, grace int64) {
	for _, d := range k.ledgers {
		if d.trim(now+k.shift, grace) {
			k.touched = true // its time does not go back behind that
		}
	}
	k.ledgers = slices.DeleteFunc(k.ledgers, (*ledger).empty)
}

func (k *key) ledger(span Span) *ledger {
	for _, d := range k.ledgers {
		if d.Span == span {
			return d
		}
	}
	return nil
}

// mostAsked is how many limits one search asks, over and over until none of them moves the start.
// What it has not found until then is taken to be behind the horizon.
const mostAsked = 500

// earliest is the first start at or after at that the scope key allows by itself, and the
// limit that moved it last, nil for the pause. Promises to others count.
func (k *key) earliest(at, now, cost int64) (start int64, holder *Limit, moved bool) {
	asked := 0
	return k.search(at, now, cost, true, &asked)
}

// search is earliest as a part of a search that has asked so many limits.
func (k *key) search(at, now, cost int64, promises bool, asked *int) (start int64, holder *Limit, moved bool) {
	start = at
	if k.paused() > start {
		start, moved = k.paused(), true
	}
	for again := true; again; {
		again = false
		for i := range k.limits {
			limit := &k.limits[i]
			if limit.Units < 0 {
				continue
			}
			if *asked++; *asked > mostAsked {
				if holder == nil && k.paused() <= at {
					holder = limit
				}
				return max(start, k.horizon+1), holder, true
			}
			d := k.ledger(limit.Span)
			at := k.time(start)
			s := d.earliest(at, now+k.shift, k.room(limit, cost), promises)
			if s == Never {
				return Never, limit, true
			}
			if s != at {
				s -= k.goesOn
				start, holder, moved, again = s, limit, true, true
			}
		}
	}
	return start, holder, moved
}

// paused is until when it is closed, at run time or by its upstream.
func (k *key) paused() int64 { return max(k.pause, k.adapted.closed) }

// time is that of the ledgers at an instant. While it stands still, it does so for all
// instants until the clock has caught up: what is granted for one of them starts no sooner
// than the ledger has it.
func (k *key) time(at int64) int64 {
	if k.shift != k.goesOn {
		return max(at+k.goesOn, k.seen)
	}
	return at + k.goesOn
}

// instant is the clock's time when the ledgers' time is that; now while they stand still.
func (k *key) instant(time, now int64) int64 {
	if time == now+k.shift {
		return now
	}
	return time - k.goesOn
}

// spend charges a start, book books one; negative units take it back.
func (k *key) spend(at, units int64) {
	k.touched = true
	for _, d := range k.ledgers {
		d.spend(d.sub(k.time(at)), units)
	}
}

func (k *key) book(at, units int64) {
	k.touched = true
	for _, d := range k.ledgers {
		d.book(d.sub(k.time(at)), units)
	}
}

// fewest is the smallest number of units of its limits, of which a claim can be made.
func (k *key) fewest() int64 {
	units := Never
	for _, limit := range k.limits {
		if limit.Units >= 0 {
			units = min(units, k.served(&limit))
		}
	}
	return units
}

// longest is how long a start counts under its limits.
func (k *key) longest() int64 {
	length := int64(0)
	for _, limit := range k.limits {
		if limit.Units >= 0 {
			length = max(length, limit.Length)
		}
	}
	return length
}
