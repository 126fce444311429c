package line

import (
	"slices"
	"strings"
)

// run is what a granted job occupies under running limits.
type run struct {
	of     class
	paid   int64 // until when its flow is charged, where it is by the time that it holds places
	places []place
}

// place is the units that a job occupies in one ledger.
type place struct {
	key   string
	span  Span
	at    int64 // the sub-window in which they count
	units int64
}

// Done gives back the places of grants whose jobs have ended. The places still count for a cool-down, by scopes. Done
// reports for each grant whether it occupied its places until now; if not, nothing cools down: other jobs may have
// them.
func (l *Line) Done(now int64, settings Settings, grants []Grant, cooldowns map[string]int64) []bool {
	l.begin(now, settings)
	l.readKeys(grants)
	done := make([]bool, len(grants))
	for i := range grants {
		done[i] = l.giveBack(grants[i].mark(), cooldowns, settings.Timed)
	}
	l.end()
	return done
}

// Renew makes the places of grants count from now on for a lease. It reports for each grant whether it occupied its
// places until now; if not, Renew gives back the places that the grant still occupies.
func (l *Line) Renew(now int64, settings Settings, grants []Grant) []bool {
	l.begin(now, settings)
	l.readKeys(grants)
	renewed := make([]bool, len(grants))
	for i := range grants {
		mark := grants[i].mark()
		r, all := l.placesOf(mark)
		if !all {
			l.giveBack(mark, nil, settings.Timed)
			continue
		}
		if settings.Timed && r.paid < l.now {
			l.pay(r)
		}
		for j := range r.places {
			p := &r.places[j]
			k := l.key(p.key)
			d := k.ledger(p.span)
			k.touched = true
			d.spent.add(p.at, -p.units)
			p.at = max(p.at, d.subWindow(l.now+k.shift))
			d.spent.add(p.at, p.units)
		}
		renewed[i] = true
	}
	l.end()
	return renewed
}

// readKeys reads all scope keys before the first change.
func (l *Line) readKeys(grants []Grant) {
	for i := range grants {
		if r := l.runs[grants[i].mark()]; r != nil {
			for _, p := range r.places {
				l.key(p.key)
			}
		}
	}
}

// placesOf returns the run of a grant with the places that still count, and reports whether these are all that it was
// granted. It forgets a run without places.
func (l *Line) placesOf(mark string) (r *run, all bool) {
	if r = l.runs[mark]; r == nil {
		return nil, false
	}
	given := len(r.places)
	r.places = slices.DeleteFunc(r.places, func(p place) bool { return !l.counts(p) })
	if len(r.places) == 0 {
		delete(l.runs, mark)
		return nil, false
	}
	return r, len(r.places) == given
}

// counts reports whether a place still counts. If the ledger no longer has it, since the ledger was lost or its time
// began anew, another job may occupy it.
func (l *Line) counts(p place) bool {
	k := l.key(p.key)
	d := k.ledger(p.span)
	return d != nil && p.at+d.n() > d.subWindow(l.now+k.shift) && d.spent.of(p.at) >= p.units
}

// giveBack ends a run, charges its flow for the time if the caller wants that, and reports whether the job occupied
// until now all places that it was granted.
func (l *Line) giveBack(mark string, cooldowns map[string]int64, timed bool) bool {
	r, all := l.placesOf(mark)
	if r == nil {
		return false
	}
	if timed {
		l.pay(r)
	}
	for _, p := range r.places {
		k := l.key(p.key)
		d := k.ledger(p.span)
		k.touched = true
		d.spent.add(p.at, -p.units)
		scope, _, _ := strings.Cut(p.key, ":")
		if cooldown := min(cooldowns[scope], d.Length); all && cooldown > 0 {
			d.spent.add(d.subWindow(l.now+k.shift+cooldown-d.Length), p.units)
		}
		l.hurry(p.key)
	}
	delete(l.runs, mark)
	return all
}

// pay charges a flow for the time that its job has occupied places and has not paid, or gives back the unused part of
// the second that a start charges. A scope key with two leases is paid once.
func (l *Line) pay(r *run) {
	time := float64(max(l.now-r.paid, -startsFor)) / 1e6
	paid := make(map[string]bool)
	for _, p := range r.places {
		if q := l.queues[p.key]; q != nil && !paid[p.key] {
			q.charge(r.of, float64(p.units)*time/l.share(r.of.flow), l.lower(), false)
			paid[p.key] = true
		}
	}
	r.paid = l.now
}
