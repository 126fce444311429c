package line

import (
	"slices"
	"strings"
)

// Mode is how far a scope's limits are in force.
type Mode byte

// The modes, by their letters in Redis.
const (
	Enforce Mode = 'e'
	Shadow  Mode = 's'
	Off     Mode = 'o'
)

// steppedBack is the largest step back of the clock after which a ledger stands still; after a
// larger step the ledger's time goes on.
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
	offset int64 // its ledgers' time minus the clock's, when seen was set

	// Of one call:
	mode    Mode
	limits  []Limit // in force
	origin  byte    // c configuration, s set for the scope, k set for the key
	ends    int64   // when the next of what is set for it ends; Never: nothing does
	horizon int64   // until when jobs are booked
	shift   int64   // its ledgers' time minus the clock's
	goesOn  int64   // the offset from now on
	touched bool    // something was charged or booked, or has left
}

// key is a scope key, ready for this call.
func (l *Line) key(name string) *key {
	if k := l.looked[name]; k != nil {
		return k
	}
	k := l.keys[name]
	if k == nil {
		k = &key{name: name, ownEnds: Never}
		l.keys[name] = k
	}
	scope, _, _ := strings.Cut(name, ":")
	k.refit(l.now, l.settings.Grace, l.settings.Lookahead, l.inForce(scope))
	l.looked[name] = k
	return k
}

// refit makes a scope key ready for one call: it sets the limits in force and the ledgers' time, and
// forgets what has left the windows.
func (k *key) refit(now, grace, lookahead int64, of inForce) {
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
	for _, d := range k.ledgers {
		d.shift(k.goesOn)
	}
	k.dropEmpty(now, grace)
	if len(k.ledgers) == 0 {
		k.offset, k.goesOn, k.shift, k.seen = 0, 0, 0, 0
	}
	if k.mode == Off {
		return
	}
	for _, limits := range counted {
		k.addLedgers(limits, now)
	}
	slices.SortFunc(k.ledgers, func(a, b *ledger) int { return a.Compare(b.Span) })
}

// addLedgers adds the ledgers that limits need.
func (k *key) addLedgers(limits []Limit, now int64) {
	for _, limit := range limits {
		if limit.Units >= 0 && k.ledger(limit.Span) == nil {
			k.ledgers = append(k.ledgers, &ledger{Span: limit.Span, precision: limit.Precision, since: now + k.shift,
				edges: edges{offset: k.goesOn}})
		}
	}
}

// dropEmpty drops what counts no more, and the ledgers in which nothing is left.
func (k *key) dropEmpty(now, grace int64) {
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

// paused is until when it is closed, at run time or by its upstream.
func (k *key) paused() int64 { return max(k.pause, k.adapted.closed) }

// time returns the ledgers' time at an instant. While it stands still, it does so for all
// instants until the clock has caught up: a job that is granted a start at one of them starts no sooner
// than the ledger has it.
func (k *key) time(at int64) int64 {
	if k.shift != k.goesOn {
		return max(at+k.goesOn, k.seen)
	}
	return at + k.goesOn
}

// spend charges a start, book books one; negative units take it back.
func (k *key) spend(at, units int64) {
	k.touched = true
	for _, d := range k.ledgers {
		d.spend(d.subWindow(k.time(at)), units)
	}
}

func (k *key) book(at, units int64) {
	k.touched = true
	for _, d := range k.ledgers {
		d.book(d.subWindow(k.time(at)), units)
	}
}

// adaptedFor is for how long after its last change a served share is remembered.
const adaptedFor = 86_400_000_000

// adapted is how a scope key follows its upstream. The zero value means that all units are served.
type adapted struct {
	less     int64 // thousandths of its limits that are not served
	down     int64 // when it was refused last
	changed  int64
	refusals int64 // in succession
	closed   int64 // until when the upstream has closed it
	closedAt int64 // when that was reported
}

// asOf is what is left at an instant: nothing a day after the last change. What was reported
// before the clock stepped back goes back with it, so that nothing is reported in the future.
func (a adapted) asOf(now int64) adapted {
	a.closed -= max(0, a.closedAt-now)
	a.down, a.changed, a.closedAt = min(a.down, now), min(a.changed, now), min(a.closedAt, now)
	if a.closed > now || (a.less > 0 || a.refusals > 0) && a.changed+adaptedFor > now {
		return a
	}
	return adapted{}
}

func (a adapted) part() int64 { return whole - a.less }
