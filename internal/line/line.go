package line

import (
	"slices"
	"strings"
)

// Line is the state of one throttle.
type Line struct {
	keys     map[string]*key
	jobs     map[string]*record
	lanes    map[string]*lane
	queues   map[string]*queue
	late     map[string]*ranked[int64] // by lane: the late jobs, by slot
	overdues ranked[int64]             // by job: when the overdue job is reported again
	// by scope key: when a pull looks at it; by "=" and a job: when it is late or overdue
	timers ranked[int64]
	// by flow, if its share is not 1: the second in which a job last stated the share times shareSecond, plus the share
	shares ranked[int64]
	claims map[string]claim // by scope key
	set    map[string]scopeSet
	all    scopeSet // what is set for all scopes, which is only a mode

	pulled  int64            // when the last pull was
	settled map[string]int64 // marks of settled grants, and until when they are kept
	runs    map[string]*run  // of grants that occupy places

	playing bool // true in a forecast, which assumes that each booked job starts at its slot

	// Looks is how many first jobs pulls have looked at so far.
	Looks int
	// Ends is the number of the check at which a pull ends early, because a script that took all its steps ended there; 0:
	// pulls do not end early.
	Ends int

	// Of one call:
	settings Settings
	now      int64
	looked   map[string]*key
}

// New returns an empty line.
func New() *Line {
	return &Line{
		keys: make(map[string]*key), jobs: make(map[string]*record), lanes: make(map[string]*lane),
		queues: make(map[string]*queue), late: make(map[string]*ranked[int64]),
		claims: make(map[string]claim), set: make(map[string]scopeSet),
		settled: make(map[string]int64),
		runs:    make(map[string]*run), all: scopeSet{}.asOf(0),
	}
}

// record is what the line knows of a job that waits, is booked, or did not come to its slot.
type record struct {
	state   state
	slot    int64
	costs   []int64
	arrival int64
	lane    string
	lost    bool // whether it has lost a slot for which its flow was charged, and not the next slot, which is free
	taken   int  // how many of its slots in a row were taken over
	counted bool // whether the job counts in the lengths of its scope keys' lines
}

type state int

const (
	waiting state = iota + 1
	booked
	overdue // the job's units count no more; the job still has its element in the lane
)

// element is a job's entry in its lane.
type element struct {
	arrival int64
	costs   []int64
	id      string
}

// lane is the jobs of one flow that have the same scope keys and priority.
type lane struct {
	class
	name string
	keys []string
	jobs []element
}

// begin prepares the line for one call.
func (l *Line) begin(now int64, settings Settings) {
	l.now, l.settings, l.looked = now, settings, make(map[string]*key)
}

// end forgets scope keys of which nothing is left to remember.
func (l *Line) end() {
	for name, k := range l.looked {
		k.dropEmpty(l.now, l.settings.Grace)
		if len(k.ledgers) == 0 && k.own == nil && k.paused() <= l.now && k.adapted.asOf(l.now) == (adapted{}) {
			delete(l.keys, name)
			continue
		}
		if k.touched {
			k.seen, k.offset = l.now+k.shift, k.goesOn
		}
		for _, d := range k.ledgers {
			d.coarsen(k.limits)
		}
	}
}

// lane returns the lane with this name, "<flow>|<scope key>,<scope key>"; with a lower priority
// "<flow>#<priority>|<scope key>,<scope key>".
func (l *Line) lane(name string) *lane {
	if known := l.lanes[name]; known != nil {
		return known
	}
	of, rest, _ := strings.Cut(name, "|")
	var keys []string
	if rest != "" {
		keys = strings.Split(rest, ",")
	}
	return &lane{name: name, class: classOf(of), keys: keys}
}

// ends returns when the first setting of a lane's scope keys ends.
func (l *Line) ends(lane *lane) int64 {
	next := Never
	for _, name := range lane.keys {
		next = min(next, l.key(name).ends)
	}
	return next
}

// costOf returns what a job costs under one of its lane's scope keys.
func costOf(lane *lane, costs []int64, name string) int64 {
	return costs[slices.Index(lane.keys, name)]
}

// lookAnew makes the next pull look at a lane whose first job has changed: the new first job may be lighter.
func (l *Line) lookAnew(lane *lane) {
	for _, name := range lane.keys {
		if q := l.queues[name]; q != nil && q.leads(lane, lane.jobs[0].arrival) {
			l.due(name, l.now)
		}
	}
}

// leaveLane makes the next pull look at the lane of a job that leaves, if the job was the first. The job's element
// stays until a pull reaches and skips it.
func (l *Line) leaveLane(id string, known *record) {
	if lane := l.lanes[known.lane]; lane != nil && lane.jobs[0].id == id {
		l.lookAnew(lane)
	}
}

// neverFits returns a limit that the job can never fit. A limit of 0 does not count: it acts like a pause.
func (l *Line) neverFits(lane *lane, costs []int64) *Held {
	for i, name := range lane.keys {
		k := l.key(name)
		if k.mode != Enforce {
			continue
		}
		for j := range k.limits {
			if u := k.limits[j].Units; u > 0 && costs[i] > u {
				return &Held{Key: name, Limit: &k.limits[j], Origin: k.origin}
			}
		}
	}
	return nil
}

// blocked returns the scope key under which a job has to wait whose earliest start is f, and when a pull should look
// at that key. Of the scope keys that would have no room for the job even alone, it is the key in which room comes
// last. If each key alone would have room, it is the key that moved the start last.
func (l *Line) blocked(lane *lane, costs []int64, f fit) (name string, look int64) {
	last := int64(-1)
	for i, n := range lane.keys {
		k := l.key(n)
		if k.mode != Enforce {
			continue
		}
		own, _, _ := k.earliest(l.now, l.now, costs[i])
		if own > l.now+l.settings.Lookahead && own > last {
			one, _, _ := k.earliest(l.now, l.now, 1)
			last, name, look = own, n, one
		}
	}
	if name == "" {
		name, look = f.key.name, f.at
	}
	return name, l.soon(look-l.settings.Lookahead, l.ends(lane))
}

func (l *Line) spend(lane *lane, costs []int64, at, sign int64) {
	for i, name := range lane.keys {
		if k := l.key(name); k.mode != Off {
			k.spend(at, sign*costs[i])
		}
	}
}

// book books a job in every ledger, whatever the modes are: the modes may have changed when the booking is taken back.
func (l *Line) book(lane *lane, costs []int64, at, sign int64) {
	for i, name := range lane.keys {
		l.key(name).book(at, sign*costs[i])
	}
}

// promise books a job.
func (l *Line) promise(id string, lane *lane, costs []int64, at, arrival int64) {
	if l.playing {
		l.spend(lane, costs, at, 1)
		l.forgetJob(id)
		return
	}
	l.book(lane, costs, at, 1)
	l.note(id, &record{state: booked, slot: at, costs: costs, arrival: arrival, lane: lane.name})
	l.timers.set("="+id, l.lateFrom(at))
}

// unbook takes a booking back.
func (l *Line) unbook(id string, known *record) {
	if known.state == booked {
		l.book(l.lane(known.lane), known.costs, known.slot, -1)
		l.forgetLate(id, known)
	}
	l.overdues.delete(id)
	l.timers.delete("=" + id)
	if !l.hasClaim(id) {
		return
	}
	l.timers.delete("+" + id)
	for _, name := range l.lane(known.lane).keys {
		if l.claims[name].id == id {
			delete(l.claims, name)
		}
	}
}

// leaveLine takes a job out of line, if it is known, and its booking back. Its flow gets back what was charged for it.
func (l *Line) leaveLine(id string) {
	known := l.jobs[id]
	if known == nil {
		return
	}
	lane := l.lane(known.lane)
	if known.state == booked || known.lost {
		l.charge(lane, known.costs, -1)
	}
	if known.state == waiting {
		l.leaveLane(id, known)
	}
	l.unbook(id, known)
	if known.state == booked {
		l.hurryLane(lane)
	}
	delete(l.jobs, id)
}
