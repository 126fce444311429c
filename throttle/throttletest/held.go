package throttletest

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// What the scripts keep to themselves about lanes that a scope key holds: how long at
// most such a lane is set aside, how many are looked at to find the first, and how many
// are let in for one that was served.
const (
	heldAtMost  = 240 * time.Second
	firstLooked = 8
	letInAtOnce = 2
)

// place is where a lane stands among those that a scope key holds.
type place struct {
	tag     float64
	arrival int64
}

func (p place) compare(other place) int {
	return cmp.Or(cmp.Compare(p.tag, other.tag), cmp.Compare(p.arrival, other.arrival))
}

// hold sets a lane aside, for a scope key to let it in.
func (l *line) hold(holder string, lane *lane, at place, now int64) {
	l.letGo(lane.name)
	if l.held[holder] == nil {
		l.held[holder] = make(map[throttle.Lane]place)
	}
	l.held[holder][lane.name] = at
	l.since[lane.name] = true
	l.agenda["/"+string(lane.name)] = now + heldAtMost.Microseconds()
	delete(l.heads[fairOf(lane.name)], lane.name)
}

// letGo takes a lane out of those that are held.
func (l *line) letGo(name throttle.Lane) {
	if !l.since[name] {
		return
	}
	delete(l.since, name)
	for holder, lanes := range l.held {
		if delete(lanes, name); len(lanes) == 0 {
			delete(l.held, holder)
		}
	}
}

// holders are the scope keys of the call that may hold lanes.
func (v *visit) holders() []string {
	var holders []string
	for _, k := range v.met {
		if k.scope != throttle.Global && k.scope != v.model.options.FairScope {
			holders = append(holders, k.scope+":"+k.key)
		}
	}
	return holders
}

// contested is the first of the call's scope keys that holds lanes.
func (v *visit) contested() string {
	for _, holder := range v.holders() {
		if len(v.model.line.held[holder]) > 0 {
			return holder
		}
	}
	return ""
}

// contender is the lowest tag of the other lanes that the call's scope keys hold.
func (v *visit) contender(name throttle.Lane) (tag float64, holder string) {
	for _, h := range v.holders() {
		for other, at := range v.model.line.held[h] {
			if other != name && (holder == "" || at.tag < tag) {
				tag, holder = at.tag, h
			}
		}
	}
	return tag, holder
}

// sorted are the first of the lanes that a scope key holds.
func (l *line) sorted(holder string) []throttle.Lane {
	lanes := l.held[holder]
	sorted := slices.SortedFunc(maps.Keys(lanes), func(a, b throttle.Lane) int {
		return cmp.Or(lanes[a].compare(lanes[b]), cmp.Compare(a, b))
	})
	return sorted[:min(len(sorted), firstLooked)]
}

// firstHeld are the first of them, as first_held.lua finds them.
func (l *line) firstHeld(holder string, most int) []throttle.Lane {
	for _, name := range l.sorted(holder) {
		at := l.held[holder][name]
		if tag, known := l.tags[fairOf(name)]; known && tag >= l.time {
			at.tag = max(at.tag, tag)
		}
		l.held[holder][name] = at
	}
	var found, others []throttle.Lane
	lanes := l.sorted(holder)
	for _, name := range lanes {
		_, aside := l.agenda["/"+string(name)]
		switch {
		case !aside:
			others = append(others, name)
		case len(found) < most:
			found = append(found, name)
		}
	}
	if len(others) == len(lanes) {
		for _, name := range others {
			delete(l.held[holder], name)
		}
	}
	if len(l.held[holder]) == 0 {
		delete(l.held, holder)
	}
	return found
}

// afterTurn lets others in where a lane was served or leaves those that are held, and
// returns the first of them.
func (v *visit) afterTurn(lane *lane, served bool, class byte, holder string) (letIn throttle.Lane) {
	l := v.model.line
	leaves := l.since[lane.name] && holder == "" && (len(lane.waiting) == 0 || class != 0 && class != shared)
	if holder == "" && (len(lane.waiting) == 0 || (served || class != 0) && class != shared) {
		l.letGo(lane.name)
	}
	for _, h := range v.holders() {
		if len(l.held[h]) == 0 || !served && !leaves || class != 0 && h == holder {
			continue
		}
		start, by := v.place(1, v.now, false)
		if _, full := v.class(by); start > v.now+v.model.options.Lookahead.Microseconds() && full == h {
			l.agenda["&"+h] = v.lookAgain(start-v.model.options.Lookahead.Microseconds(), 1, start, asideAtMost)
			continue
		}
		for _, other := range l.firstHeld(h, letInAtOnce) {
			l.agenda["/"+string(other)] = v.now
			letIn = cmp.Or(letIn, other)
		}
	}
	return letIn
}

// soonest is a time of the agenda, or now where it has none.
func soonest(agenda map[string]int64, name string, now int64) int64 {
	if at, is := agenda[name]; is {
		return at
	}
	return now
}

// makeRoom has those looked at again that may have room now.
func (v *visit) makeRoom() {
	agenda, holds := v.model.line.agenda, false
	for _, k := range v.met {
		name := "&" + k.scope + ":" + k.key
		if _, is := agenda[name]; is {
			agenda[name] = v.now
			holds = true
		}
	}
	delete(agenda, "*")
	if !holds || !v.model.line.since[v.lane] {
		delete(agenda, "/"+string(v.lane))
	}
}

// AdmitStep names the first of the lanes that a scope key holds, as admit.lua does; empty
// if there is none.
func (m *Model) AdmitStep(holder string) throttle.Lane {
	lanes := m.line.firstHeld(holder, 1)
	if len(lanes) > 0 {
		return lanes[0]
	}
	if len(m.line.held[holder]) == 0 {
		delete(m.line.agenda, "&"+holder)
	}
	return ""
}
