package simulation_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// advance is what a grant charged for jobs of its lane that come soon (throttle.Options.Advance). Its charge counts the
// units that no job has taken yet.
type advance struct {
	*charge
	lane   string
	ends   int64              // when the first of its sub-windows ends, or hours close, by Redis' clock
	limits map[string][]limit // by scope key: the limits in force when it was charged
}

// drawAdvances draws processes with advances, and streams. A stream is many light jobs of one lane; most come together,
// and start in a second or less where there is room. Some streams meet full windows, so that their jobs stand in line.
func (p *plan) drawAdvances(d dice) {
	p.advances = true
	drawAdvance := func(r *process) {
		r.advance = one(d, 0, time.Second, time.Second, d.between(5*time.Millisecond, time.Second))
		r.concurrency = d.count(4, 16)
		r.lag = one(d, 0, 0, d.between(0, 2*time.Millisecond))
	}
	for i := range p.processes {
		drawAdvance(&p.processes[i])
	}
	p.processes[0].advance = max(p.processes[0].advance, time.Second/2)
	for i := range p.faults {
		drawAdvance(&p.faults[i].process)
	}
	var streams []time.Duration
	for range d.count(1, 3) {
		streams = append(streams, p.drawStream(d))
	}
	p.sortJobs()
	least := one(d, 0.5, 1, 1)
	for i := range p.scopes {
		p.drawRoom(d, &p.scopes[i], least)
	}
	if p.kind == rough {
		p.drawStreamFaults(d, streams)
	}
}

// drawStream draws the jobs of one stream, and returns when it begins.
func (p *plan) drawStream(d dice) time.Duration {
	at := d.between(0, d.between(0, p.span))
	first := job{tenant: one(d, p.tenants...), arrives: at, how: one(d, plain, spare), retries: 25}
	if len(p.domains) > 0 && d.chance(0.7) {
		first.domain = one(d, p.domains...)
	}
	heaviest := one[int64](d, 1, 2, 4)
	slow := d.between(10*time.Millisecond, 30*time.Millisecond)
	bounded := p.bounded && p.kind == calm
	if bounded {
		first.how = planned // as all other jobs
	}
	for range d.count(120, 220) {
		j := first
		j.id, j.weight = fmt.Sprintf("j%05d", len(p.jobs)), d.Int64N(heaviest)+1
		j.handle = d.between(slow/2, slow)
		if d.chance(0.15) { // it may find what is left of an advance
			j.arrives += d.between(0, 3*time.Second)
		}
		if d.chance(0.1) && !bounded {
			j.outcomes = []outcome{{does: settles, units: d.Int64N(2*j.weight + 1)}}
		}
		p.jobs = append(p.jobs, &j)
	}
	return at
}

func (p *plan) sortJobs() {
	slices.SortStableFunc(p.jobs, func(a, b *job) int { return cmp.Compare(a.arrives, b.arrives) })
}

// drawRoom replaces a scope's windows by windows that are long enough for advances. They have room for at least the
// part "least" of the units of the busiest key.
func (p *plan) drawRoom(d dice, scope *throttle.Scope, least float64) {
	var busiest int64
	for _, key := range p.keys(scope.Name) {
		busiest = max(busiest, p.demand(scope.Name, key))
	}
	windows := []time.Duration{10 * time.Second, 30 * time.Second, 2 * time.Minute}
	d.Shuffle(len(windows), func(i, j int) { windows[i], windows[j] = windows[j], windows[i] })
	for i := range scope.Limits {
		limit := &scope.Limits[i]
		if limit.Window == 0 {
			continue
		}
		part := least * one(d, 1.0, 1, 2, 4)
		limit.Window, limit.Units = windows[0], max(p.heaviest(scope.Name), int64(part*float64(busiest))+1)
		limit.Precision = (limit.Window / time.Duration(d.count(10, 60))).Truncate(time.Microsecond)
		windows = windows[1:]
	}
}

// drawStreamFaults draws the settings of run time anew, since drawRoom has changed the windows. It adds faults while
// the jobs of streams start.
func (p *plan) drawStreamFaults(d dice, streams []time.Duration) {
	for i := range p.faults {
		if f := &p.faults[i]; f.does == pause || f.does == limits || f.does == mode {
			p.drawCoarseControl(d, f)
		}
	}
	for _, at := range streams {
		for range d.IntN(3) {
			f := fault{at: at + d.between(0, 1500*time.Millisecond), lasts: d.between(100*time.Millisecond, 3*time.Second),
				does: one(d, crash, restart, stall, stall, loss, loss, clock, pause, limits, mode), which: d.IntN(1 << 16),
				process: drawProcess(d)}
			f.process.advance = one(d, 0, time.Second)
			switch f.does {
			case clock:
				f.step = d.between(0, time.Minute)
				if !p.stepsBack() && d.chance(0.5) {
					f.step = -d.between(0, 29*time.Second)
				}
			case loss:
				f.verb, f.replies = "reserve", one(d, 1, 1, 4)
			case pause, limits, mode:
				p.drawCoarseControl(d, &f)
			}
			p.faults = append(p.faults, f)
		}
	}
}

// drawCoarseControl replaces a setting of run time by another. The windows of its limits have sub-windows, as advances
// need them.
func (p *plan) drawCoarseControl(d dice, f *fault) {
	f.key, f.limits = "", nil
	p.drawControl(d, f)
	for i := range f.limits {
		if limit := &f.limits[i]; limit.Window > 0 {
			limit.Precision = (limit.Window / time.Duration(d.count(10, 60))).Truncate(time.Microsecond)
		}
	}
}

// charged takes up the advance in an answer to a process, "+units ends". It is charged under the job's scope keys.
func (a *account) charged(wire *wire, lane string, granted *charge, now int64, units, ends int64) {
	v := &advance{lane: lane, ends: ends, limits: map[string][]limit{}, charge: &charge{
		job: "the advance of " + lane, at: now, names: granted.names, answered: time.Now()}}
	for _, name := range v.names {
		v.costs, v.units = append(v.costs, units), append(v.units, units)
		v.limits[name] = a.limitsOf(name)
	}
	a.checkAdvance(v, wire, now)
	a.count(v.charge, now)
	a.advances[wire] = append(a.advances[wire], v)
	a.advanced.charged++
}

// checkAdvance checks that an advance may be given: to a process with Options.Advance, while no job waits or is booked.
// Its scope keys must be enforced, not paused and wholly served, without a running limit or limits set for the key
// alone. It is at most a tenth of what each limit has left, and ends with the first of the sub-windows, periods and
// hours in which it is charged.
func (a *account) checkAdvance(v *advance, wire *wire, now int64) {
	refuse := func(format string, args ...any) {
		a.world.errorf("an advance of %d units: "+format, append([]any{v.costs[0]}, args...)...)
	}
	if wire.advance == 0 {
		refuse("its process has none")
	}
	for _, line := range a.lines {
		if len(line) > 0 {
			refuse("%d jobs wait", len(line))
		}
	}
	for id, slot := range a.slots {
		if number(slot)+a.world.plan.grace().Microseconds() > now {
			refuse("%s is booked", id)
		}
	}
	for i, name := range v.names {
		scope, _ := a.scopeOf(name)
		least, _ := a.partsOf(name)
		if _, own := a.set[name]; own || a.modeOf(scope.Name) != throttle.Enforce || a.paused[name] > now || least < 1000 ||
			v.costs[i] != v.costs[0] {
			refuse("%s has limits of its own, a mode, a pause or is not wholly served", name)
		}
		for _, l := range a.inForce(name) {
			if left := a.wall.unitsAt(l, now) - a.used(name, l, now); l.countsStarts() && 10*v.costs[i] > left {
				refuse("%s has %d units left of %+v", name, left, l)
			}
			if !a.lastsUntil(name, l, now, v.ends-1) {
				refuse("of %d it lasts until %d, in another sub-window of %s, %+v", now, v.ends, name, l)
			}
			if l.kind == lease {
				refuse("%s has a running limit", name)
			}
		}
	}
}

// lastsUntil reports whether two instants lie in the same sub-window or period of a limit, or the second in hours. It
// does not compare sub-windows once limits were set: the ledger of an earlier window may have another precision.
func (a *account) lastsUntil(name string, l limit, now, last int64) bool {
	switch {
	case l.kind == quota:
		return a.wall.beganAt(l.calendar, now) == a.wall.beganAt(l.calendar, last)
	case l.kind == hours:
		return a.wall.isOpen(l.calendar, last)
	case l.kind == window && l.precision > 0 && !a.inexact[name]:
		return now/l.precision == last/l.precision
	}
	return true
}

// used returns how many units the current period or the window that ends now holds.
func (a *account) used(name string, l limit, now int64) (units int64) {
	for _, e := range a.byKey[name] {
		if e.n > a.since[name][l.span] && !a.hasLeft(l, e.at, now) {
			units += e.counts()
		}
	}
	return units
}

// started takes up a start out of the advances of a process. It moves the job's units from the instant of the charge to
// the job's start. The start has the time of the process, which may not know yet of a step of Redis' clock. It must be
// in the sub-windows of the charge and within Options.Advance. No window that contains it may be over the limit that
// was in force at the charge, unless limits or modes changed or charges grew meanwhile.
func (a *account) started(r *running, granted throttle.Reservation) *charge {
	c := &charge{job: granted.Job.ID, at: granted.Start.UnixMicro(), answered: time.Now(), advanced: true}
	left := granted.Job.Weight
	for _, v := range a.advances[r.wire] {
		at := v.at + time.Since(v.answered).Microseconds()
		if v.lane != granted.Lane || at >= v.ends || time.Since(v.answered) > r.advance || left == 0 {
			continue
		}
		if c.n == 0 {
			c.n, c.names, c.charged = v.n, v.names, v.charged
			c.costs, c.units = make([]int64, len(v.names)), make([]int64, len(v.names))
		}
		take := min(left, v.costs[0]-v.taken)
		left, v.taken = left-take, v.taken+take
		for i, name := range v.names {
			v.units[i], c.costs[i], c.units[i] = v.units[i]-take, c.costs[i]+take, c.units[i]+take
			if left == 0 {
				a.startsIn(v, name, entry{charge: c, of: i, at: at})
			}
		}
	}
	if left > 0 {
		a.world.errorf("%s of %d starts out of advances of %s that have %d units too few", c.job, granted.Job.Weight,
			granted.Lane, left)
	}
	a.advanced.started++
	return c
}

// startsIn enters a start out of an advance under a scope key, and checks the windows that contain it.
func (a *account) startsIn(v *advance, name string, e entry) {
	a.byKey[name] = append(a.byKey[name], e)
	if a.disturbed[name] >= v.n {
		return
	}
	for _, l := range v.limits[name] {
		if held, units := a.held(name, e, l), a.wall.unitsAt(l, v.at); held > units {
			a.world.errorf("window over its limit: %s holds %d units of %+v, with %s, started for %d out of an advance of %d",
				name, held, l, e.job, e.at, v.at)
		}
		a.advanced.checked++
	}
}

// disturb notes that from now on a scope key may hold more units than its earlier limits allowed.
func (a *account) disturb(name string) { a.disturbed[name] = a.grants }

// advanceIn reads the advance from an answer that grants a job. Without an advance, units is 0.
func advanceIn(words []string) (units, ends int64) {
	for i, word := range words {
		if of, is := strings.CutPrefix(word, "+"); is && i+1 < len(words) {
			return number(of), number(words[i+1])
		}
	}
	return 0, 0
}
