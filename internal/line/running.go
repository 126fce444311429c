package line

import (
	"slices"
	"strings"
)

// run is what a granted job occupies under running limits.
type run struct {
	of     class
	paid   int64 // until when its flow is charged, where it is by the time that it holds places
	places []held
}

// held are the units that a job occupies in one ledger.
type held struct {
	key   string
	span  Span
	at    int64 // the sub-window in which they count
	units int64
}

// startsFor is the time that a start charges in advance, where flows are charged by time.
const startsFor = 1_000_000

// pay charges a flow for the time that its job has occupied places and has not paid, or gives back the unused part of
// the second that a start charges. A scope key with two leases is paid once.
func (l *Line) pay(r *run) {
	time := float64(max(l.now-r.paid, -startsFor)) / 1e6
	paid := make(map[string]bool)
	for _, p := range r.places {
		if q := l.queues[p.key]; q != nil && !paid[p.key] {
			q.charge(r.of, float64(p.units)*time/l.share(r.of.flow), l.lower())
			paid[p.key] = true
		}
	}
	r.paid = l.now
}

// hold notes the places that a granted job occupies. It returns the shortest lease, 0 if the job occupies none.
func (l *Line) hold(job Job, lane *lane, at int64) int64 {
	r := run{of: lane.class, paid: at + startsFor}
	lease := int64(0)
	for i, name := range lane.keys {
		k := l.key(name)
		for _, d := range k.ledgers {
			if k.mode == Off || !d.Kind.Renewed() || job.Costs[i] == 0 {
				continue
			}
			r.places = append(r.places, held{name, d.Span, d.sub(k.time(at)), job.Costs[i]})
			if lease == 0 || d.Length < lease {
				lease = d.Length
			}
		}
	}
	if lease > 0 {
		g := Grant{ID: job.ID, Start: at}
		l.runs[g.mark()] = &r
	}
	return lease
}

// mayStart reports whether a job that has room may be granted its start now. Places that only the end of a lease frees
// are not granted before that end: their job may renew the lease. If the clock steps back before a job granted for
// later has started, its entry lies behind that start. So no start is granted a window or more ahead, where other jobs
// could still start a window before the entry. No start is granted while a ledger's time stands still, since that time
// goes on after a far step, and none for an instant at which other limits are in force.
func (l *Line) mayStart(lane *lane, costs []int64, at int64) bool {
	for i, name := range lane.keys {
		k := l.key(name)
		if at > l.now && at >= k.ends {
			return false
		}
		if at > l.now && k.mode != Off {
			stands := k.shift != k.goesOn
			isWindowAhead := func(d *ledger) bool { return d.sub(k.time(at)) >= d.sub(k.time(l.now))+d.n() }
			if stands || slices.ContainsFunc(k.ledgers, isWindowAhead) {
				return false
			}
		}
		if k.mode != Enforce {
			continue
		}
		for j := range k.limits {
			limit := &k.limits[j]
			if limit.Kind.Renewed() && limit.Units >= 0 && k.ledger(limit.Span).spent.total() > k.room(limit, costs[i]) {
				return false
			}
		}
	}
	return true
}

// Done gives back the places of grants whose jobs have ended. The places still count for a cool-down, by scopes. Done
// reports for each grant whether it occupied its places until now; if not, nothing cools down: other jobs may have
// them.
func (l *Line) Done(now int64, settings Settings, grants []Grant, cooldowns map[string]int64) []bool {
	l.begin(now, settings)
	l.lookAt(grants)
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
	l.lookAt(grants)
	renewed := make([]bool, len(grants))
	for i := range grants {
		mark := grants[i].mark()
		r, all := l.stillHeld(mark)
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
			p.at = max(p.at, d.sub(l.now+k.shift))
			d.spent.add(p.at, p.units)
		}
		renewed[i] = true
	}
	l.end()
	return renewed
}

// lookAt reads all scope keys before the first change.
func (l *Line) lookAt(grants []Grant) {
	for i := range grants {
		if r := l.runs[grants[i].mark()]; r != nil {
			for _, p := range r.places {
				l.key(p.key)
			}
		}
	}
}

// stillHeld returns the run of a grant with the places that still count, and reports whether these are all that it was
// granted. It forgets a run without places.
func (l *Line) stillHeld(mark string) (r *run, all bool) {
	if r = l.runs[mark]; r == nil {
		return nil, false
	}
	given := len(r.places)
	r.places = slices.DeleteFunc(r.places, func(p held) bool { return !l.counts(p) })
	if len(r.places) == 0 {
		delete(l.runs, mark)
		return nil, false
	}
	return r, len(r.places) == given
}

// counts reports whether a place still counts. If the ledger no longer has it, since the ledger was lost or its time
// began anew, another job may occupy it.
func (l *Line) counts(p held) bool {
	k := l.key(p.key)
	d := k.ledger(p.span)
	return d != nil && p.at+d.n() > d.sub(l.now+k.shift) && d.spent.of(p.at) >= p.units
}

// giveBack ends a run, charges its flow for the time if the caller wants that, and reports whether the job occupied
// until now all places that it was granted.
func (l *Line) giveBack(mark string, cooldowns map[string]int64, timed bool) bool {
	r, all := l.stillHeld(mark)
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
			d.spent.add(d.sub(l.now+k.shift+cooldown-d.Length), p.units)
		}
		l.hurry(p.key)
	}
	delete(l.runs, mark)
	return all
}

func (r *run) equal(other *run) bool {
	return r.of == other.of && r.paid == other.paid && slices.Equal(r.places, other.places)
}
