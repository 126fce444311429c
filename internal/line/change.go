package line

import (
	"strconv"
	"strings"
)

// Leave removes jobs that will not come, and takes their bookings back. It reports for each job whether it waited or
// was booked.
func (l *Line) Leave(now int64, settings Settings, ids []string) []bool {
	l.begin(now, settings)
	left := make([]bool, len(ids))
	for i, id := range ids {
		known := l.jobs[id]
		if known == nil {
			continue
		}
		left[i] = known.state != overdue
		if known.state == waiting {
			l.leaveLane(id, known)
		}
		l.unbook(id, known)
		if known.state == booked {
			lane := l.lane(known.lane)
			l.charge(lane, known.costs, -1)
			for _, name := range lane.keys {
				l.hurry(name)
			}
		}
		delete(l.jobs, id)
	}
	l.end()
	return left
}

// Grant is a start that was granted.
type Grant struct {
	ID      string
	Lane    string
	Costs   []int64
	Start   int64
	Decided int64 // when it was granted
}

// mark distinguishes the grant from other grants of its job.
func (g *Grant) mark() string { return g.ID + ":" + strconv.FormatInt(g.Start, 10) }

// Settle corrects what a grant was charged, once, within a time of its start. Rebook
// makes a booking of a grant whose start is still ahead; its places are given back then.
func (l *Line) Settle(now int64, settings Settings, g Grant, actual []int64, within int64, rebook bool) bool {
	l.begin(now, settings)
	mark := g.mark()
	done := l.marked(mark, now) || rebook && l.marked(mark+grantedAgainMark, now)
	if done || now > g.Start+within || rebook && (g.Start <= now || l.jobs[g.ID] != nil) {
		return false
	}
	lane := l.lane(g.Lane)
	for _, name := range lane.keys {
		l.key(name)
	}
	l.settled[mark] = g.Start + within
	for i, name := range lane.keys {
		k := l.key(name)
		delta := actual[i] - g.Costs[i]
		k.correct(now, g, delta)
		if q := l.queues[name]; q != nil && !rebook {
			q.charge(lane.class, float64(delta)/l.share(lane.flow), l.lower())
		}
		if delta < 0 {
			l.hurry(name)
		}
	}
	if rebook {
		l.giveBack(g.mark(), nil, false)
		l.promise(g.ID, lane, g.Costs, g.Start, g.Start)
	}
	l.end()
	return true
}

func (l *Line) marked(mark string, now int64) bool {
	until, is := l.settled[mark]
	return is && until >= now
}

// grantedAgainMark is behind the mark of a grant that was made a booking, and then granted for the same
// start: it may be settled, and not be made a booking once more.
const grantedAgainMark = "+"

// grantedAgain notes a grant for the same start at which it was made a booking.
func (l *Line) grantedAgain(g Grant) {
	if until, is := l.settled[g.mark()]; is {
		l.settled[g.mark()+grantedAgainMark] = until
		delete(l.settled, g.mark())
	}
}

// correct changes what is spent at a start, while the start still counts. After a step back of the clock, until the
// clock has caught up or the ledger is empty, units found at the start may belong to another job: then correct gives
// nothing back, and units beyond the charge count from now on. The same holds if the ledger has nothing at a start that
// would still count, and for a ledger that did not count yet at the grant. Running limits stay unchanged.
func (k *key) correct(now int64, g Grant, delta int64) {
	if delta == 0 {
		return
	}
	k.touched = true
	for _, d := range k.ledgers {
		at := d.sub(k.time(g.Start))
		_, found := d.spent.find(at)
		found = found && g.Decided >= d.since
		switch {
		case !d.Kind.Settled():
		case k.shift == 0 && found:
			d.spend(at, delta)
		case delta > 0 && (k.shift != 0 || at+d.n() > d.sub(now)):
			d.spend(d.sub(k.time(now)), delta)
		}
	}
}

// Pause closes a scope key until a time, unless it is closed for longer already, and returns when the pause ends. A
// time of 0 opens the scope key.
func (l *Line) Pause(now int64, settings Settings, name string, until int64) (before, is int64) {
	l.begin(now, settings)
	k := l.key(name)
	if before = k.paused(); before <= now {
		before = 0
	}
	if until != 0 {
		k.pause = max(k.pause, until)
	} else {
		k.pause, k.adapted.closed, k.adapted.closedAt = 0, 0, 0
	}
	is = k.paused()
	l.hurry(name)
	l.end()
	return before, is
}

// SetLimits sets the limits of a scope key, or those of a scope if the name has no colon, until
// an instant; Never: until they are taken back, by nil, as is that the scope key is served less.
func (l *Line) SetLimits(now int64, settings Settings, name string, limits []Limit, ends int64) {
	l.begin(now, settings)
	if scope, _, isKey := strings.Cut(name, ":"); isKey {
		k := l.key(name)
		k.ownEnds = ends
		if k.own = limits; limits == nil {
			k.adapted.less, k.adapted.refusals = 0, 0
		}
		l.hurry(name)
	} else {
		set := l.set[scope]
		set.limits, set.limitsEnd = limits, ends
		l.setScope(scope, set)
	}
	l.end()
}

// SetMode sets the mode of a scope, or with an empty name that of all, until an instant; Never:
// until it is taken back, by 0.
func (l *Line) SetMode(now int64, settings Settings, scope string, mode Mode, ends int64) {
	l.begin(now, settings)
	if scope == "" {
		l.all.mode, l.all.modeEnds = mode, ends
		l.forgetEnded()
		l.hurryAll("")
	} else {
		set := l.set[scope]
		set.mode, set.modeEnds = mode, ends
		l.setScope(scope, set)
	}
	l.end()
}

func (l *Line) setScope(scope string, set scopeSet) {
	l.set[scope] = set
	l.forgetEnded()
	l.hurryAll(scope + ":")
}

// forgetEnded forgets settings of scopes that have ended.
func (l *Line) forgetEnded() {
	l.all = l.all.asOf(l.now)
	for scope, set := range l.set {
		if set = set.asOf(l.now); set.mode == 0 && set.limits == nil {
			delete(l.set, scope)
		} else {
			l.set[scope] = set
		}
	}
}

// hurryAll makes all scope keys with this prefix due now, and all claims.
func (l *Line) hurryAll(prefix string) {
	var late []string
	for name, at := range l.timers.all() {
		if name[0] != '=' && (name[0] == '+' || strings.HasPrefix(name, prefix)) && at > l.now {
			late = append(late, name)
		}
	}
	for _, name := range late {
		l.timers.set(name, l.now)
	}
}

// Usage is the state of a limit of a scope key.
type Usage struct {
	Limit        Limit
	Used, Booked int64
	Free         int64 // the earliest start of one unit
}

// KeyState is the state of a scope key.
type KeyState struct {
	Paused int64
	Part   int64 // of its limits that is served, in thousandths
	Mode   Mode
	Origin byte
	Ends   int64 // when the next of what is set for it ends; 0: nothing does
	Flows  int64 // that stand under it
	Timer  int64
	Limits []Usage
}

// State returns the state of a scope key. It changes nothing.
func (l *Line) State(now int64, settings Settings, name string) KeyState {
	l.begin(now, settings)
	k := l.key(name)
	state := KeyState{Part: k.adapted.part(), Mode: k.mode, Origin: k.origin}
	if k.ends < Never {
		state.Ends = k.ends
	}
	state.Timer, _ = l.timers.get(name)
	if k.paused() > now {
		state.Paused = k.paused()
	}
	if q := l.queues[name]; q != nil {
		state.Flows = int64(q.tags.len())
	}
	for _, limit := range k.limits {
		u := Usage{Limit: limit, Free: now}
		if d := k.ledger(limit.Span); d != nil && limit.Units >= 0 {
			u.Used, u.Booked = d.uses(now + k.shift)
			if u.Free = d.earliest(now+k.shift, now+k.shift, k.room(&limit, 1), true); u.Free == Never {
				u.Free = 0
			} else {
				u.Free = k.instant(u.Free, now)
			}
		}
		state.Limits = append(state.Limits, u)
	}
	l.end()
	return state
}
