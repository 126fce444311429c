package simulation_test

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/wallclock"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// wall remembers what the wall clock of a zone shows at each minute: no edge lies within a minute.
type wall struct {
	began map[minuteOf]int64
	open  map[minuteOf]bool
	units map[minuteOf]int64
}

// minuteOf is a minute by Redis' clock, and a calendar, hours or a ramp.
type minuteOf struct {
	text   string
	minute int64
}

func newWall() *wall { return &wall{map[minuteOf]int64{}, map[minuteOf]bool{}, map[minuteOf]int64{}} }

// beganAt returns when the period of an instant began, us, by the text of its calendar.
func (w *wall) beganAt(text string, at int64) int64 {
	of := minuteOf{text, at / time.Minute.Microseconds()}
	began, known := w.began[of]
	if !known {
		unit, days, hours, zone := calendarIn(text)
		began = wallclock.Began(unit, days, hours, zone, time.UnixMicro(at)).UnixMicro()
		w.began[of] = began
	}
	return began
}

// isOpen reports whether hours are open at an instant.
func (w *wall) isOpen(text string, at int64) bool {
	of := minuteOf{text, at / time.Minute.Microseconds()}
	open, known := w.open[of]
	if !known {
		open = wallclock.IsOpen(text, time.UnixMicro(at))
		w.open[of] = open
	}
	return open
}

// calendarIn reads "month+14d+3h@Europe/Paris".
func calendarIn(text string) (unit string, days, hours int, zone *time.Location) {
	begins, name, _ := strings.Cut(text, "@")
	zone, err := time.LoadLocation(name)
	if err != nil {
		panic(err)
	}
	parts := strings.Split(begins, "+")
	for _, part := range parts[1:] {
		n, _ := strconv.Atoi(part[:len(part)-1])
		if strings.HasSuffix(part, "d") {
			days = n
		} else {
			hours = n
		}
	}
	return parts[0], days, hours, zone
}

// checkOpen checks that hours are open at a start, by Redis' clock.
func (a *account) checkOpen(name string, c *charge) {
	for _, l := range a.inForce(name) {
		if l.kind == hours && !a.wall.isOpen(l.calendar, c.at) {
			a.world.errorf("%s starts at %s under %s, outside of %s", c.job, a.world.clockAt(c.at), name, l.calendar)
		}
	}
	a.starts++
}

// clockAt returns an instant of Redis' clock as a text in UTC.
func (w *world) clockAt(at int64) string { return time.UnixMicro(at).UTC().Format(time.RFC3339Nano) }

// inPeriod returns how many units the period of a charge holds under a quota, out of the units that were charged while
// the quota was in force, by the time of the ledgers.
func (a *account) inPeriod(name string, e entry, l limit) (units int64) {
	began := a.wall.beganAt(l.calendar, e.at)
	for _, other := range a.byKey[name] {
		if other.n > a.since[name][l.span] && a.wall.beganAt(l.calendar, other.at) == began {
			units += other.counts()
		}
	}
	return units
}

// compareQuota compares the used units of the current period with the grants. A grant whose start is in a later period
// counts as booked.
func (a *account) compareQuota(name string, l limit, now, used, booked int64) {
	if a.told[name] == nil {
		a.told[name] = map[span]int64{}
	}
	a.told[name][l.span] = used + booked
	began := a.wall.beganAt(l.calendar, now)
	var units, later int64
	for _, e := range a.byKey[name] {
		switch at := a.wall.beganAt(l.calendar, e.at); {
		case e.n <= a.since[name][l.span] || at < began:
		case at > began:
			later += e.counts()
		default:
			units += e.counts()
		}
	}
	a.compareUnits(name, l, used, units, booked, later)
}

// isFull reports whether a scope key has no room for cost units under a quota, by the last usage that Redis reported.
func (a *account) isFull(name string, of throttle.Limit, cost int64) bool {
	l := limitOf(of)
	least, _ := a.partsOf(name)
	told, units := a.told[name][l.span], a.wall.unitsAt(l, a.world.now().UnixMicro())
	return cost > units || told > 0 && told+cost > served(units, float64(least)/1000)
}

// checkPeriods checks, by the handlers' own record, that in no period of Redis' clock more units started than a quota
// of the configuration has. After each step back over an edge, the period may have the units of the quota once more,
// since starts count in the period that had begun; under a ramp, the units of its last step. A settled charge counts
// with its lowest value. Scopes are left out whose limits or mode were set at run time.
func (w *world) checkPeriods() {
	for _, scope := range w.plan.scopes {
		if w.plan.isSet(scope.Name) {
			continue
		}
		for _, l := range scope.Limits {
			if isQuota(l) {
				w.checkQuota(scope.Name, limitOf(l))
			}
		}
	}
}

// isSet reports whether limits or modes of a scope are set at some time.
func (p *plan) isSet(scope string) bool {
	return slices.ContainsFunc(p.faults, func(f fault) bool {
		return f.does == mode || f.does == limits && f.scope == scope
	})
}

func (w *world) checkQuota(scope string, l limit) {
	type period struct {
		name  string
		began int64
	}
	started := map[period]int64{}
	for _, calls := range w.runs {
		for _, c := range calls {
			if c.charge == nil || c.charge.gone {
				continue
			}
			for i, name := range c.charge.names {
				if of, _, _ := strings.Cut(name, ":"); of == scope {
					started[period{name, w.account.wall.beganAt(l.calendar, c.charge.at)}] += min(c.charge.costs[i], c.charge.units[i])
				}
			}
		}
	}
	for in, units := range started {
		if most := w.account.wall.unitsAt(l, in.began) + l.units*w.stepsBackOver(l.calendar); units > most {
			w.errorf("%d units of %s started in the period of %s from %s on, want at most %d", units, in.name, l.calendar,
				w.clockAt(in.began), most)
		}
	}
}

// stepsBackOver returns how often Redis' clock stepped back over an edge of a calendar.
func (w *world) stepsBackOver(text string) (n int64) {
	for i, turned := range w.turns {
		if i == 0 {
			continue
		}
		before, after := turned.at.Add(w.turns[i-1].by).UnixMicro(), turned.at.Add(turned.by).UnixMicro()
		if w.account.wall.beganAt(text, after) < w.account.wall.beganAt(text, before) {
			n++
		}
	}
	return n
}

// mostEdges returns the most edges that Redis keeps of a quota or of hours. They cover the next two months and the
// ramps of the world: two periods before the first that was asked for, and 16 after the last.
func (p *plan) mostEdges() int { return 4*(64+int(p.climbs()/(24*time.Hour))) + 20 }

// checkEdges checks that Redis keeps edges of the calendars and hours of the world alone, and no more of each than its
// bound.
func (a *account) checkEdges() {
	reply, err := a.world.redis.do(encode("HGETALL", "thr:{"+a.world.name+"}:4:edges"))
	a.world.must("HGETALL", err)
	values := decode(reply)
	if most := 2 * a.world.plan.calendars(); len(values) > most {
		a.world.errorf("Redis has edges of %d calendars, want at most %d", len(values)/2, most/2)
	}
	for ; len(values) > 0; values = values[2:] {
		_, edges, _ := strings.Cut(text(values[1]), " ")
		a.edges = max(a.edges, len(edges)/16)
		if most := a.world.plan.mostEdges(); len(edges)/16 > most {
			a.world.errorf("Redis has %d edges of %s, want at most %d", len(edges)/16, text(values[0]), most)
		}
	}
}

// calendars returns how many different calendars and hours a world has, including those that are set at run time.
func (p *plan) calendars() int {
	all := map[string]bool{}
	note := func(limits []throttle.Limit) {
		for _, l := range limits {
			if isScheduled(l) {
				all[limitOf(l).calendar] = true
			}
		}
	}
	for _, scope := range p.scopes {
		note(scope.Limits)
	}
	for _, f := range p.faults {
		note(f.limits)
	}
	return len(all)
}
