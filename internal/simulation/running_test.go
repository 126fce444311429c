package simulation_test

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// place is the room that a charge occupies under a running limit of a scope key, by the account.
type place struct {
	name   string // the scope key's name
	units  int64
	lease  int64
	most   int64     // how many units may run with it, by the limit at its grant
	since  int       // how many grants came before its limit was in force
	signed time.Time // the last sign of life, by the local clock
	until  int64     // when its lease is over, by Redis' clock
}

// drawRunning draws running limits beside the windows, handlers that run for some leases, and
// changes of running limits. Redis' clock mostly steps by less than a lease.
func (p *plan) drawRunning(d dice) {
	p.options.FairByTime = d.chance(0.5)
	lease := one(d, 20*time.Second, 30*time.Second)
	// With a longer lookahead than the lease, jobs are booked for the ends of leases, and a
	// place that comes back sooner stays empty until then.
	p.options.Lookahead = min(p.options.Lookahead, 5*time.Second)
	for i := range p.scopes {
		if p.running && d.chance(0.5) {
			continue
		}
		p.running = true
		p.scopes[i].Limits = append(p.scopes[i].Limits,
			throttle.Limit{Units: max(p.heaviest(p.scopes[i].Name), int64(d.count(1, 8))), Running: true, Lease: lease})
		p.scopes[i].Cooldown = one(d, 0, 0, 300*time.Millisecond)
	}
	for _, j := range p.jobs {
		if d.chance(0.02) {
			j.handle = d.between(lease/2, 2*lease)
		}
	}
	for i := range p.faults {
		f := &p.faults[i]
		if f.step > lease && d.chance(0.8) {
			f.step = d.between(0, lease)
		}
		if f.verb == "settle" || f.verb == "reserve" && d.chance(0.5) {
			f.verb = "running"
		}
		p.drawPlaces(d, f)
	}
}

// drawPlaces draws what is set at run time for a scope with a running limit: another running limit, or no
// running limit for a while.
func (p *plan) drawPlaces(d dice, f *fault) {
	for _, scope := range p.scopes {
		i := slices.IndexFunc(scope.Limits, func(l throttle.Limit) bool { return l.Running })
		if f.does != limits || scope.Name != f.scope || i < 0 || d.chance(0.3) {
			continue
		}
		limit := scope.Limits[i]
		limit.Units = one(d, 0, 1, d.Int64N(limit.Units)+1, limit.Units, 2*limit.Units)
		limit.Lease = one(d, limit.Lease, limit.Lease, limit.Lease/2)
		if f.limits = append(f.limits, limit); d.chance(0.3) {
			f.limits = f.limits[len(f.limits)-1:]
		}
	}
}

// occupy notes the places of a charge under a scope key. In shadow more units may run than the limit allows.
func (a *account) occupy(c *charge, of int, mode throttle.Mode) {
	name := c.names[of]
	for _, l := range a.inForce(name) {
		if l.kind != lease {
			continue
		}
		p := &place{name: name, units: c.costs[of], lease: l.length, since: a.since[name][l.span],
			most: min(l.units, a.mostOf(name, l.units, c.costs[of])), signed: time.Now(), until: c.at + l.length}
		if mode == throttle.Shadow {
			p.most = math.MaxInt64
		}
		c.places = append(c.places, p)
	}
}

// signs takes up a call that says which jobs run on or have ended. The reply must not say that a job's places
// are lost before a lease is over.
func (a *account) signs(renews bool, grants []string, reply []any) {
	now := number(text(reply[0]))
	for ; len(grants) > 0; grants, reply = grants[3:], reply[1:] {
		held := text(reply[2]) == "1"
		for _, c := range a.charges[chargeName(grants[0], number(grants[1]))] {
			if renews && !held && !c.ended && !c.gone && !slices.ContainsFunc(c.places,
				func(p *place) bool { return p.until <= now }) {
				a.world.errorf("told that its places are lost before a lease is over: %s", c)
			}
			c.ended = c.ended || !renews || !held
			for _, p := range c.places {
				if renews && held && now+p.lease > p.until {
					p.signed, p.until = time.Now(), now+p.lease
				}
			}
		}
	}
}

// occupied is a place, for as long as a handler ran in it by its own record, its process lived, and the
// lease was not over by Redis' clock.
type occupied struct {
	*place
	n        int // the number of its grant
	job      string
	from, to time.Time
}

// occupied returns the places under all scope keys.
func (w *world) occupied() (all []occupied) {
	for _, j := range w.plan.jobs {
		for _, c := range w.runs[j.id] {
			if c.charge == nil {
				continue
			}
			for _, p := range c.charge.places {
				all = append(all, occupied{p, c.charge.n, j.id, c.charge.answered.Add(c.charge.delay),
					earliest(c.until(), w.reaches(p.until, p.signed))})
			}
		}
	}
	return all
}

// until returns when a handler stopped running.
func (c *call) until() time.Time {
	switch died := c.on.died; {
	case c.ends.IsZero() && died.IsZero():
		return time.Now()
	case c.ends.IsZero() || !died.IsZero() && died.Before(c.ends):
		return died
	}
	return c.ends
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// reaches returns the local time at which Redis' clock reached an instant, after the local time after.
func (w *world) reaches(at int64, after time.Time) time.Time {
	for i, turned := range w.turns {
		local := time.UnixMicro(at).Add(-turned.by)
		if local.Before(turned.at) {
			local = turned.at // the clock stepped over the instant
		}
		if local.After(after) && (i+1 == len(w.turns) || local.Before(w.turns[i+1].at)) {
			return local
		}
	}
	return time.UnixMicro(at)
}

// turned is how far Redis' clock is ahead of the local one, and from when on.
type turned struct {
	at time.Time
	by time.Duration
}

// checkRunning checks that, by the handlers' own record, no more units ran at once than a running limit allows:
// from each grant on, of all that was granted before it while the limit was in force. The limit in force at
// the grant applies. A job whose lease was over does not count; lostBy bounds the number of these jobs for each
// process.
func (w *world) checkRunning() {
	if !w.plan.running {
		return
	}
	all := w.occupied()
	for _, last := range all {
		var beside []occupied // the places granted before last, and last itself
		for _, o := range all {
			if o.name == last.name && o.lease == last.lease && o.n <= last.n && o.n > last.since && o.to.After(last.from) {
				beside = append(beside, o)
			}
		}
		for _, at := range beside {
			var units int64
			for _, o := range beside {
				if !o.from.After(at.from) && o.to.After(at.from) {
					units += o.units
				}
			}
			if !at.from.Before(last.from) && at.from.Before(last.to) && units > last.most {
				w.errorf("%d units run under %s, lease %d us, at %s, want at most %d: %s was granted then for %s", units,
					last.name, last.lease, at.from.Sub(w.began), last.most, last.job, last.from.Sub(w.began))
			}
		}
	}
	for _, r := range w.processes {
		if most, lost := w.lostBy(r), r.shaper.Stats().Lost; lost > most && r.died.IsZero() {
			w.errorf("%d tasks of process %d were told that their place was lost, want at most %d", lost, r.n, most)
		}
	}
}

// lostBy returns how many tasks of a process may have lost their places: their leases were over while they ran, or
// nearly over, since a process ends a handler's context a little before.
func (w *world) lostBy(r *running) (n int64) {
	for _, j := range w.plan.jobs {
		for _, c := range w.runs[j.id] {
			if c.on == r && c.charge != nil && slices.ContainsFunc(c.charge.places, func(p *place) bool {
				return w.reaches(p.until, p.signed).Add(-3 * time.Second).Before(c.until())
			}) {
				n++
			}
		}
	}
	return n
}

// grantsOf reads from a command which jobs have ended, or run on.
func grantsOf(argv []string) (renews bool, grants []string) {
	return strings.HasPrefix(argv[3], "renew "), argv[4:]
}
