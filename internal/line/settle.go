package line

import (
	"slices"
	"strconv"
)

// Grant is a start that was granted.
type Grant struct {
	ID      string
	Lane    string
	Costs   []int64
	Start   int64
	Decided int64 // when it was granted
	Waited  bool  // its job waited for its start, and so moved its flow's tags by what it was charged
}

// mark distinguishes the grant from other grants of its job.
func (g *Grant) mark() string { return g.ID + ":" + strconv.FormatInt(g.Start, 10) }

// Settle corrects what a grant was charged, once, within a time of its start. Rebook
// makes a booking, a microsecond later, of a grant whose start is still ahead; its places are given back then.
func (l *Line) Settle(now int64, settings Settings, g Grant, actual []int64, within int64, rebook bool) bool {
	l.begin(now, settings)
	mark := g.mark()
	if l.marked(mark, now) || now > g.Start+within || rebook && (g.Start <= now || l.jobs[g.ID] != nil) {
		return false
	}
	lane := l.lane(g.Lane)
	for _, name := range lane.keys {
		l.key(name)
	}
	l.settled[mark] = g.Start + within
	turns := slices.Clone(actual) // what moves the flow's tags
	for i, name := range lane.keys {
		k := l.key(name)
		delta := actual[i] - g.Costs[i]
		k.correct(now, g, delta)
		if delta < 0 {
			l.hurry(name)
		}
		if !g.Waited {
			turns[i] = max(actual[i], g.Costs[i])
		}
	}
	if rebook {
		l.giveBack(g.mark(), nil, false)
		slot := g.Start + 1 // so that the mark of this start concerns no other grant
		l.promise(g.ID, lane, g.Costs, slot, g.Decided)
	} else {
		l.chargeDifference(lane, g.Costs, turns)
	}
	l.end()
	return true
}

func (l *Line) marked(mark string, now int64) bool {
	until, is := l.settled[mark]
	return is && until >= now
}

// correct corrects the units that each ledger has at the job's start, while the start still counts. Where a ledger
// cannot be corrected, units beyond the charge count from now on, and no units are given back. That is so if the ledger
// has no entry at the start, or began to count after the grant. After a step back of the clock no ledger can be
// corrected, until the clock has caught up or the ledgers are empty: the units at the start may belong to another job.
// Running limits stay unchanged.
func (k *key) correct(now int64, g Grant, delta int64) {
	if delta == 0 {
		return
	}
	k.touched = true
	for _, d := range k.ledgers {
		at := d.subWindow(k.time(g.Start))
		_, found := d.spent.find(at)
		found = found && g.Decided >= d.since
		switch {
		case !d.Kind.Settled():
		case k.shift == 0 && found:
			d.spend(at, delta)
		case delta > 0 && (k.shift != 0 || at+d.n() > d.subWindow(now)):
			d.spend(d.subWindow(k.time(now)), delta)
		}
	}
}
