package line

import (
	"cmp"
	"math"
)

// The served share of a scope key's limits, in thousandths, goes down by a factor and up by a step, as in AIMD (Chiu
// and Jain 1989).
const (
	whole = 1000 // all units are served
	keeps = 700  // the part of the share that remains after a refusal that nothing else explains
	step  = 100  // how much the share grows, at most once in the shortest window
)

// How long a refusal closes its scope key if the upstream does not say, in us: at first, and at most. Each further
// refusal doubles the time.
const (
	firstClosing = 1_000_000
	mostClosing  = 300_000_000
)

// Report is what an upstream said.
type Report struct {
	Refused bool
	Started int64 // when the request to the upstream was sent; 0: now
	Wait    int64 // for how many us the upstream asks to wait; 0: it does not say
	Floor   int64 // the smallest served share, in thousandths
	Margin  int64 // by how many us each window is longer than the upstream's
	Limits  []ReportedLimit
}

// ReportedLimit is what an upstream said of one of its windows.
type ReportedLimit struct {
	Window    int64 // us; 0: the shortest
	Units     int64
	Remaining int64 // -1: the upstream does not say
}

// Report lets a scope key follow its upstream. It returns the served share of its limits before and after, in
// thousandths, and until when the key is closed.
func (l *Line) Report(now int64, settings Settings, name string, r Report) (before, is, paused int64) {
	l.begin(now, settings)
	k := l.key(name)
	a := &k.adapted
	before = a.part()
	said, ceiling := k.said(now, r)
	if ceiling < before {
		a.less, a.changed = whole-ceiling, now
	}
	owed := k.enterDebts(now, said)
	if r.Refused {
		k.refused(now, r, before, owed)
	} else {
		k.answered(now, r, before, ceiling)
	}
	if is = a.part(); is > before {
		l.hurry(name)
	}
	if k.paused() > now {
		paused = k.paused()
	}
	l.end()
	return before, is, paused
}

// said returns what the upstream says of the key's limits, in their order, and the share of these limits that the
// upstream serves.
func (k *key) said(now int64, r Report) (said []ReportedLimit, ceiling int64) {
	said, ceiling = make([]ReportedLimit, len(k.limits)), whole
	for i := range said {
		said[i].Remaining = -1
	}
	if k.mode == Off {
		return nil, whole
	}
	for _, reported := range r.Limits {
		for i := range k.limits {
			limit := &k.limits[i]
			if !k.isMeant(limit, reported.Window, r.Margin) || k.unitsAt(limit, now) <= 0 {
				continue
			}
			if said[i].Remaining < 0 || reported.Remaining >= 0 && reported.Remaining < said[i].Remaining {
				said[i] = reported
			}
			if units := k.unitsAt(limit, now); reported.Units < units {
				ceiling = min(ceiling, max(r.Floor, int64(math.Floor(float64(reported.Units)/float64(units)*whole))))
			}
		}
	}
	return said, ceiling
}

// isMeant reports whether an upstream that names a window means a limit. Only windows are longer by a margin.
func (k *key) isMeant(limit *Limit, window, margin int64) bool {
	switch {
	case !limit.Kind.Settled():
		return false
	case window == 0:
		shortest, _ := k.shortest()
		return limit.Length == shortest
	case limit.Kind.Slides():
		return limit.Length == window+margin
	}
	return limit.Length == window
}

// enterDebts charges the units that other clients of the upstream have used, so that no more units start than the
// upstream says remain. It reports whether other clients have used any.
func (k *key) enterDebts(now int64, said []ReportedLimit) (owed bool) {
	for i, reported := range said {
		if reported.Remaining < 0 {
			continue
		}
		limit := &k.limits[i]
		d := k.ledger(limit.Span)
		used, _ := d.uses(now + k.shift)
		if debt := k.served(limit, now) - reported.Remaining - used; debt > 0 {
			k.touched, owed = true, true
			d.spent.add(d.subWindow(k.time(now)), debt)
		}
	}
	return owed
}

// refused lowers the served share, once in a round trip: a request that was sent before the last refusal tells nothing
// new.
func (k *key) refused(now int64, r Report, before int64, owed bool) {
	a := &k.adapted
	if r.Wait > 0 {
		a.close(now, r.Wait)
	}
	if r.Started != 0 && r.Started <= a.down {
		return
	}
	if a.part() == before && !owed {
		a.less = whole - max(r.Floor, before*keeps/whole)
	}
	if r.Wait == 0 {
		a.close(now, min(mostClosing, int64(firstClosing)<<min(a.refusals, 9)))
	}
	a.down, a.changed, a.refusals = now, now, a.refusals+1
}

func (a *adapted) close(now, length int64) {
	if now+length > a.closed {
		a.closed, a.closedAt = now+length, now
	}
}

// answered forgets earlier refusals, and raises the served share by a step, once in each shortest window.
func (k *key) answered(now int64, r Report, before, ceiling int64) {
	a := &k.adapted
	if r.Started == 0 || r.Started > a.down {
		a.refusals = 0
	}
	if _, pace := k.shortest(); before < ceiling && now-a.changed >= pace {
		a.less, a.changed = whole-min(ceiling, before+step), now
	}
}

// shortest returns the length of the key's shortest window, without windows that of its shortest quota; 0 without both.
// pace is once in which time the share grows: in that window, without windows in the lease; without limits, 0.
func (k *key) shortest() (window, pace int64) {
	for _, limit := range k.limits {
		switch {
		case limit.Units <= 0:
		case limit.Kind.Slides():
			return limit.Length, limit.Length
		case limit.Kind.Settled():
			return limit.Length, cmp.Or(pace, limit.Length)
		case pace == 0:
			pace = limit.Length
		}
	}
	return 0, pace
}
