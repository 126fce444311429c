package line

import "slices"

// mostAsked is how many limits one search asks. It asks all limits in turn until it comes back to the one that moved
// the start last. A start that is not found by then is taken to be behind the horizon.
const mostAsked = 500

// fit is the earliest start of a job.
type fit struct {
	at     int64
	key    *key   // the scope key that moved the start last; nil if none did
	holder *Limit // the limit of key that moved it; nil: its pause
}

// earliest returns the first start at or after at that the scope keys of a lane allow: those that enforce their
// limits, or those in shadow.
func (l *Line) earliest(lane *lane, costs []int64, at int64, promises bool, mode Mode) fit {
	f, asked := fit{at: at}, 0
	for again := true; again; {
		again = false
		for i, name := range lane.keys {
			k := l.key(name)
			if k == f.key {
				break // all others have been asked since it moved the start
			}
			if k.mode != mode {
				continue
			}
			start, holder, moved := k.search(f.at, l.now, costs[i], promises, &asked)
			if !moved || start <= f.at {
				continue
			}
			f = fit{start, k, holder}
			if f.at == Never || asked > mostAsked {
				return f
			}
			again = true
		}
	}
	return f
}

// earliest returns the first start at or after at that the scope key alone allows, and the limit that moved the start
// last, nil for the pause. Bookings of other jobs count.
func (k *key) earliest(at, now, cost int64) (start int64, holder *Limit, moved bool) {
	asked := 0
	return k.search(at, now, cost, true, &asked)
}

// search is earliest for a search over several scope keys. asked counts the limits that it has asked.
func (k *key) search(at, now, cost int64, promises bool, asked *int) (start int64, holder *Limit, moved bool) {
	start = at
	if k.paused() > start {
		start, moved = k.paused(), true
	}
	for again := true; again; {
		again = false
		for i := range k.limits {
			limit := &k.limits[i]
			if limit == holder {
				break // all others have been asked since it moved the start
			}
			if limit.Units < 0 && !limit.Kind.opens() {
				continue
			}
			if *asked++; *asked > mostAsked {
				if holder == nil && k.paused() <= at {
					holder = limit
				}
				return max(start, k.horizon+1), holder, true
			}
			s := k.under(limit, start, now, cost, promises)
			if s == Never {
				return Never, limit, true
			}
			if s != start {
				start, holder, moved, again = s, limit, true, true
			}
		}
	}
	return start, holder, moved
}

// under returns the first start at or after at that one limit allows.
func (k *key) under(limit *Limit, at, now, cost int64, promises bool) int64 {
	if limit.Kind.opens() {
		return opensAt(limit.Calendar, at)
	}
	if limit.Ramp != "" {
		return k.climb(limit, at, now, cost, promises)
	}
	time := k.time(at)
	switch start := k.ledger(limit.Span).earliest(time, now+k.shift, k.room(limit, cost), promises); start {
	case Never:
		return Never
	case time:
		return at
	default:
		return start - k.goesOn
	}
}

// earliest returns the first start at or after at so that every window that contains it holds at most room units of
// other jobs. With promises, bookings count too.
func (d *ledger) earliest(at, now, room int64, promises bool) int64 {
	if room < 0 {
		return Never
	}
	all := d.spent
	if promises && len(d.booked) > 0 {
		d.merged = merge(d.merged[:0], d.spent, d.booked, d.subWindow(now))
		all = d.merged
	}
	if all.total() <= room {
		return at
	}
	n, first := d.n(), d.subWindow(at)
	x := first
	if d.Kind.Renewed() {
		x = max(first, placesFrom(d.spent, n, room))
	}
	sum, in, out := int64(0), 0, 0 // of the window that ends at x or, checking, at a later entry
	for {
		for in < len(all) && all[in].at <= x {
			sum += all[in].units
			in++
		}
		for out < in && all[out].at+n <= x {
			sum -= all[out].units
			out++
		}
		if sum > room {
			x = all[out].at + n
			continue
		}
		// The windows that end later and still contain x.
		y, fits := x, true
		laterSum, laterOut := sum, out
		for i := in; i < len(all) && all[i].at < x+n; i++ {
			y = all[i].at
			laterSum += all[i].units
			for all[laterOut].at+n <= y {
				laterSum -= all[laterOut].units
				laterOut++
			}
			if laterSum > room && (i+1 == len(all) || all[i+1].at > y) {
				fits = false
				break
			}
		}
		if fits {
			break
		}
		x = y
	}
	if x == first {
		return at
	}
	return d.startOf(x)
}

// climb returns the first start at or after at that a ramp allows: in the first period that takes so heavy a job, and
// has room for it beside what is charged there.
func (k *key) climb(limit *Limit, at, now, cost int64, promises bool) int64 {
	d, steps := k.ledger(limit.Span), mustSteps(limit.Ramp)
	first := d.subWindow(k.time(at))
	period, takes := steps.Takes(cost, first)
	for takes && d.inPeriod(period, now+k.shift, promises) > max(0, k.servedOf(steps.Of(period))-cost) {
		period, takes = steps.Takes(cost, period+1)
	}
	switch {
	case !takes:
		return Never
	case period == first:
		return at
	}
	return d.startOf(period) - k.goesOn
}

// inPeriod returns the units of a period. What is booked for a period that is over counts now.
func (d *ledger) inPeriod(period, now int64, promises bool) int64 {
	units := d.spent.of(period)
	if !promises {
		return units
	}
	units += d.booked.of(period)
	if current := d.subWindow(now); period == current {
		for _, e := range d.booked {
			if e.at < current {
				units += e.units
			}
		}
	}
	return units
}

// placesFrom returns the sub-window from which on running jobs occupy no more than room. A job that
// starts later has its place already, since running jobs may renew until then.
func placesFrom(all entries, n, room int64) int64 {
	sum := int64(0)
	for _, e := range slices.Backward(all) {
		if sum += e.units; sum > room {
			return e.at + n
		}
	}
	return 0
}

// uses returns how many units the window that ends at now holds, and how many are booked. A start that
// was granted for later counts as booked until then.
func (d *ledger) uses(now int64) (used, booked int64) {
	for _, e := range d.spent {
		if e.at <= d.subWindow(now) {
			used += e.units
		} else {
			booked += e.units
		}
	}
	return used, booked + d.booked.total()
}

// unitsAt returns the units of a limit that are in force at an instant.
func (k *key) unitsAt(limit *Limit, at int64) int64 {
	if limit.Ramp == "" {
		return limit.Units
	}
	d := k.ledger(limit.Span)
	if d == nil {
		return mustSteps(limit.Ramp).Of((&ledger{Span: limit.Span}).subWindow(at))
	}
	return mustSteps(limit.Ramp).Of(d.subWindow(k.time(at)))
}

// served returns how many units of a limit the upstream serves at an instant.
func (k *key) served(limit *Limit, at int64) int64 { return k.servedOf(k.unitsAt(limit, at)) }

// servedOf returns how many of so many units the upstream serves, at least one.
func (k *key) servedOf(units int64) int64 {
	part := k.adapted.part()
	if part == whole || units <= 0 {
		return units
	}
	return max(1, units/whole*part+units%whole*part/whole)
}

// room returns how many units of a limit without a ramp may count beside a job, -1 if the job never fits. A job that is
// heavier than the served share starts where nothing else counts.
func (k *key) room(limit *Limit, cost int64) int64 {
	if cost > limit.Units {
		return -1
	}
	return max(0, k.servedOf(limit.Units)-cost)
}

// fewest returns the units of the smallest limit, as it is served, until the horizon.
func (k *key) fewest() int64 {
	units := Never
	for _, limit := range k.limits {
		if limit.Units >= 0 {
			units = min(units, k.served(&limit, k.horizon))
		}
	}
	return units
}

// mayStart reports whether a job that has room may be granted its start now. The answer is no if only the end of a
// lease frees its place, since the running job may renew the lease. For a start that is later than now, the answer is
// also no
//   - if other limits are in force then;
//   - while the time of a scope key stands still: a far step of the clock lets it go on, and the start would be too
//     soon;
//   - if the start is a window or more ahead. If the clock steps back meanwhile, the job starts before the ledger has
//     it: a job that the ledger has a window earlier would start less than a window before it.
func (l *Line) mayStart(lane *lane, costs []int64, at int64) bool {
	for i, name := range lane.keys {
		k := l.key(name)
		if at > l.now && at >= k.ends {
			return false
		}
		if at > l.now && k.mode != Off {
			stands := k.shift != k.goesOn
			isWindowAhead := func(d *ledger) bool { return d.subWindow(k.time(at)) >= d.subWindow(k.time(l.now))+d.n() }
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
