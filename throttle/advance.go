package throttle

import (
	"sync"
	"time"
)

const (
	// advanceParts is how many advances a busy lane asks for in a sub-window, or in a second of a longer one. An advance
	// has the units that the lane is likely to start until it asks again. Units that are left when the sub-window ends
	// count as started.
	advanceParts = 30
	// countFor is for how long the units of a lane are counted to know its rate.
	countFor = 100 * time.Millisecond
	// clockDrift bounds how much faster Redis' clock runs than the local clock: by less than one part in clockDrift.
	clockDrift = 2000
)

// advances are the units that this process has charged for jobs to come, by lane. Such a job starts without a call, as
// long as the sub-windows are open to which the units are charged. A nil *advances has none.
type advances struct {
	lasts   time.Duration // Options.Advance
	timeout time.Duration

	mu      sync.Mutex
	lanes   map[string]*advance // of the lanes whose jobs came after turned
	before  map[string]*advance // of the lanes whose jobs came in the second or more before turned
	turned  time.Time           // when lanes last became before
	dropped time.Time           // when all advances were last ended
}

// advance is the advance of one lane.
type advance struct {
	subWindow time.Duration // the shortest of its configured limits; 0: the lane gets no advance

	units   int64     // left to start
	charged time.Time // when the first of them were charged, by Redis' clock
	ends    time.Time // when the first of their sub-windows ends, by Redis' clock, or sooner

	now   time.Time // when the advance was granted, by Redis' clock
	asked time.Time // a time before that, by the local clock

	asksUntil time.Time // until then no other job asks for an advance: one asks now, and its answer may be lost

	counted int64     // units of the jobs that came after since
	since   time.Time // when counting began
	rate    float64   // units per second, as counted before since
}

// broughtAdvance is the advance that an answer brings; no units if it brings none.
type broughtAdvance struct {
	units int64
	ends  time.Time // of the first of their sub-windows, by Redis' clock; zero: the lane has no limits
}

func newAdvances(options Options) *advances {
	if options.Advance == 0 {
		return nil
	}
	return &advances{lasts: options.Advance, timeout: options.Timeout}
}

// start starts a job out of its lane's advance, if there is one. If not, it notes in the order how many units the job
// shall ask for.
func (a *advances) start(o *order) (r Reservation, started bool) {
	if a == nil || o.job.Plan || len(o.job.Costs) > 0 || !o.job.Deadline.IsZero() {
		return Reservation{}, false
	}
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	lane := a.of(o, now)
	lane.count(o.job.Weight, now)
	at := lane.instant(now)
	if at.Before(lane.ends) && lane.units >= o.job.Weight {
		lane.units -= o.job.Weight
		return Reservation{Job: o.job, Outcome: Granted, Start: at, Now: lane.charged, Lane: o.lane, Advanced: true}, true
	}
	if now.Before(lane.asksUntil) {
		return Reservation{}, false
	}
	if o.advance = lane.wants(at); o.advance > 0 {
		lane.asksUntil = now.Add(a.timeout)
	}
	return Reservation{}, false
}

// heard takes the advance of an answer. began is when the job asked, by the local clock, or before. An answer that
// grants nothing ends the lane's advance: jobs wait, or Redis cannot decide.
func (a *advances) heard(o *order, answer Answer, began time.Time) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	lane := a.of(o, began)
	r := &answer.Reservation
	switch {
	case answer.Err != nil || r.Outcome != Granted:
		lane.units = 0
	case answer.advance.units > 0 && !r.Replayed && began.After(a.dropped):
		ends := answer.advance.ends
		if latest := r.Now.Add(a.lasts); ends.IsZero() || latest.Before(ends) {
			ends = latest
		}
		if lane.units == 0 || !lane.ends.Equal(ends) { // what is left is of other sub-windows
			lane.units, lane.charged, lane.ends = 0, r.Now, ends
		}
		lane.units += answer.advance.units
		lane.now, lane.asked = r.Now, began
	}
	if o.advance > 0 {
		lane.asksUntil = time.Time{}
	}
}

// drop ends all advances, and those that are being asked for: this process has changed what is in force.
func (a *advances) drop() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lanes, a.before, a.dropped = nil, nil, time.Now()
}

// of returns a lane's advance. A lane is forgotten when none of its jobs has come for a second or two.
func (a *advances) of(o *order, now time.Time) *advance {
	if a.lanes == nil || now.Sub(a.turned) > longestAdvance {
		a.before, a.lanes, a.turned = a.lanes, make(map[string]*advance), now
	}
	lane := a.lanes[o.lane]
	if lane == nil {
		if lane = a.before[o.lane]; lane == nil {
			lane = &advance{subWindow: o.shortestSubWindow(), since: now}
		}
		a.lanes[o.lane] = lane
	}
	return lane
}

// instant returns the latest time that Redis' clock may show; now, if there was no advance yet. Time passed by the
// monotonic clock, which stands still while the machine sleeps, or by the wall clock, which may step: the longer time
// counts.
func (l *advance) instant(now time.Time) time.Time {
	if l.asked.IsZero() {
		return now
	}
	passed := max(now.Sub(l.asked), now.Round(0).Sub(l.asked.Round(0)))
	return l.now.Add(passed + passed/clockDrift + time.Microsecond).Truncate(time.Microsecond)
}

// count counts the units of a job that asks.
func (l *advance) count(units int64, now time.Time) {
	if passed := now.Sub(l.since); passed >= countFor {
		l.rate = 0
		if passed < 2*countFor {
			l.rate = float64(l.counted) / passed.Seconds()
		}
		l.counted, l.since = 0, now
	}
	l.counted += units
}

// wants is how many units the lane is likely to start until it asks for an advance again: within a part of a
// sub-window, and not after the end of the advance that is open at an instant.
func (l *advance) wants(at time.Time) int64 {
	part := min(l.subWindow, longestAdvance) / advanceParts
	if at.Before(l.ends) {
		part = min(part, l.ends.Sub(at))
	}
	return int64(l.rate * part.Seconds())
}

// shortestSubWindow is the shortest sub-window of the job's configured windows, at most longestAdvance; 0 if a running
// limit is among the job's limits.
func (o *order) shortestSubWindow() time.Duration {
	shortest := longestAdvance
	for i := range o.charges {
		for _, limit := range o.charges[i].scope.Limits {
			switch {
			case limit.Running:
				return 0
			case limit.Window > 0:
				shortest = min(shortest, limit.precision())
			}
		}
	}
	return shortest
}
