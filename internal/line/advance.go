package line

// shortestAdvance is the shortest time for which an advance is worth charging, us.
const shortestAdvance = 5000

// advance charges a granted job's advance to the sub-windows in which the job starts. It returns the units of the
// advance, and its end: when the first of these sub-windows ends or hours close. There is no advance
//   - while any job waits or is booked;
//   - under a scope key that has limits of its own, is paused, follows its upstream or does not enforce its limits;
//   - under a running limit, or a limit of unlimited units.
func (l *Line) advance(job Job, lane *lane, at int64) (units, ends int64) {
	units, ends = job.Advance, Never
	if units == 0 || at > l.now || l.timers.len() > 0 {
		return 0, 0
	}
	for i, name := range lane.keys {
		k := l.key(name)
		if job.Costs[i] != job.Costs[0] || k.mode != Enforce || k.own != nil || k.offset != 0 || k.paused() > 0 ||
			k.adapted != (adapted{}) {
			return 0, 0
		}
		for i := range k.limits {
			limit := &k.limits[i]
			switch d := k.ledger(limit.Span); {
			case limit.Kind.opens():
				closes := turnsAt(limit.Calendar, l.now)
				if closes == 0 {
					closes = l.now
				}
				ends = min(ends, closes)
			case limit.Kind.Renewed() || limit.Units < 0:
				return 0, 0
			default:
				used, booked := d.uses(l.now)
				units, ends = min(units, (k.unitsAt(limit, l.now)-used-booked)/10), min(ends, d.startOf(d.subWindow(l.now)+1))
			}
		}
	}
	if units < 1 || ends-l.now < shortestAdvance {
		return 0, 0
	}
	for _, name := range lane.keys {
		l.key(name).spend(at, units)
	}
	return units, ends
}
