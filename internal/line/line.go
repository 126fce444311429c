package line

import (
	"cmp"
	"slices"
	"strings"
)

// Scope is what a process has configured for the keys of a scope.
type Scope struct {
	Mode   Mode
	Limits []Limit // by window, ascending
}

// Settings are what a process has configured.
type Settings struct {
	Scopes    map[string]Scope
	Lookahead int64 // us
	Grace     int64 // us
	Timed     bool  // flows are charged for the time that they hold places of running limits
	Lower     int64 // units of a priority for each of the next lower one, while jobs of both wait; 0: nine
}

// Line is the state of one throttle.
type Line struct {
	keys     map[string]*key
	jobs     map[string]*record
	lanes    map[string]*lane
	queues   map[string]*queue
	overdues ranked[int64]     // when a job that did not come is told of again
	timers   ranked[int64]     // when a scope key is looked at; of a booking, "=" and its job, when its grace is over
	shares   map[string]int64  // of flows that have another one than 1
	claims   map[string]*claim // by lane
	leads    map[string]string // by job the lane that is parked or has a claim, and whose first it is
	claimers map[string]string // the lane that has a scope key's claim
	set      map[string]Scope  // what is set for whole scopes; a Mode of 0 or nil Limits: nothing
	mode     Mode              // set for all scopes; 0: nothing

	pulled  int64            // when it was pulled last
	settled map[string]int64 // marks of settled grants, and until when they are kept
	runs    map[string]*run  // of grants that hold places

	playing bool // a forecast: who is booked is taken to start at its slot

	// Looks is how many first jobs pulls have looked at so far.
	Looks int

	// Of one call:
	settings Settings
	now      int64
	looked   map[string]*key
}

// New returns an empty line.
func New() *Line {
	return &Line{
		keys: make(map[string]*key), jobs: make(map[string]*record), lanes: make(map[string]*lane),
		queues: make(map[string]*queue), shares: make(map[string]int64),
		claims: make(map[string]*claim), leads: make(map[string]string), claimers: make(map[string]string), set: make(map[string]Scope), settled: make(map[string]int64),
		runs: make(map[string]*run),
	}
}

// record is what is known of a job that stands in line, is booked, or was and did not
// come.
type record struct {
	state   state
	slot    int64
	costs   []int64
	arrival int64
	lane    string
}

type state int

const (
	waiting state = iota + 1
	booked
	overdue // its units count no more; it has its place in the lane still
)

// place is a job's in its lane.
type place struct {
	arrival int64
	costs   []int64
	id      string
}

// lane is the jobs of one flow that have the same scope keys and priority.
type lane struct {
	class
	name string
	keys []string
	jobs []place
}

// claim is what is booked for a heavy job that still waits.
type claim struct {
	at    int64
	costs []int64
	names []string // of the scope keys in which it is booked
}

// begin prepares the line for one call.
func (l *Line) begin(now int64, settings Settings) {
	l.now, l.settings, l.looked = now, settings, make(map[string]*key)
}

// end forgets scope keys of which nothing is left to remember.
func (l *Line) end() {
	for name, k := range l.looked {
		k.forget(l.now, l.settings.Grace)
		if len(k.ledgers) == 0 && k.own == nil && k.paused <= l.now && k.adapted == (adapted{}) {
			delete(l.keys, name)
			continue
		}
		if k.touched {
			k.seen, k.offset = l.now+k.shift, k.goesOn
		}
	}
}

// key is a scope key, ready for this call.
func (l *Line) key(name string) *key {
	if k := l.looked[name]; k != nil {
		return k
	}
	k := l.keys[name]
	if k == nil {
		k = &key{name: name}
		l.keys[name] = k
	}
	scope, _, _ := strings.Cut(name, ":")
	configured := l.settings.Scopes[scope]
	mode, limits, origin := configured.Mode, configured.Limits, byte('c')
	if mode == 0 {
		mode = Off // no scope of this process
	}
	set := l.set[scope]
	switch {
	case set.Mode != 0:
		mode = set.Mode
	case l.mode != 0 && configured.Mode != 0:
		mode = l.mode
	}
	if set.Limits != nil {
		limits, origin = set.Limits, 's'
	}
	k.look(l.now, l.settings.Grace, mode, limits, origin)
	l.looked[name] = k
	return k
}

// lane is the one of this name, "<flow>|<scope key>,<scope key>"; with a lower priority
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

func (l *Line) queue(name string) *queue {
	if l.queues[name] == nil {
		l.queues[name] = newQueue()
	}
	return l.queues[name]
}

func (l *Line) lower() float64 { return float64(cmp.Or(l.settings.Lower, defaultLower)) }

func (l *Line) share(flow string) float64 { return float64(max(1, l.shares[flow])) }

// due sets a timer; an earlier one stays.
func (l *Line) due(name string, at int64) {
	if t, set := l.timers.get(name); !set || at < t {
		l.timers.set(name, at)
	}
}

// hurry has a scope key looked at now, if lanes stand under it.
func (l *Line) hurry(name string) {
	for _, timer := range []string{name, name + parked, "+" + l.claimers[name]} {
		if t, set := l.timers.get(timer); set && t > l.now {
			l.timers.set(timer, l.now)
		}
	}
}

// Next is when the line is to be pulled, 0 if nothing waits.
func (l *Line) Next() int64 {
	_, next, _ := l.timers.first()
	return next
}

// fit is where a job has a place.
type fit struct {
	at     int64
	key    *key   // that moved it last; nil if nothing did
	holder *Limit // of that scope key; nil: its pause
}

// earliest is the first start at or after at that all scope keys of a lane allow, of those
// that enforce their limits or of those that are in shadow.
func (l *Line) earliest(lane *lane, costs []int64, at int64, promises bool, mode Mode) fit {
	f := fit{at: at}
	for again := true; again; {
		again = false
		for i, name := range lane.keys {
			k := l.key(name)
			if k.mode != mode {
				continue
			}
			start, holder, moved := k.earliest(f.at, l.now, costs[i], promises)
			if !moved || start <= f.at {
				continue
			}
			f = fit{start, k, holder}
			if f.at == Never {
				return f
			}
			again = true
		}
	}
	return f
}

func (l *Line) spend(lane *lane, costs []int64, at, sign int64) {
	for i, name := range lane.keys {
		if k := l.key(name); k.mode != Off {
			k.spend(at, sign*costs[i])
		}
	}
}

func (l *Line) book(lane *lane, costs []int64, at, sign int64) {
	for i, name := range lane.keys {
		if k := l.key(name); k.mode != Off {
			k.book(at, sign*costs[i])
		}
	}
}

// costOf is what a job costs under one of its lane's scope keys.
func costOf(lane *lane, costs []int64, name string) int64 {
	return costs[slices.Index(lane.keys, name)]
}

// contended is a scope key of a lane, but for one, under which flows stand whose turn is
// before this flow's; empty if there is none.
func (l *Line) contended(lane *lane, but string) string {
	for _, name := range lane.keys {
		q := l.queues[name]
		if name == but || q == nil || l.key(name).mode != Enforce {
			continue
		}
		_, tag, stands := q.first()
		if stands && !q.let[lane.flow] && tag <= q.startTag(lane.flow) {
			return name
		}
	}
	return ""
}

// charge moves a flow's tags on where somebody stands. One that is served moves the virtual
// time of its classes.
func (l *Line) charge(lane *lane, costs []int64, sign float64) {
	for i, name := range lane.keys {
		if q := l.queues[name]; q != nil {
			if sign > 0 {
				delete(q.let, lane.flow)
				q.classes[lane.flow].serve(lane.priority)
			}
			q.charge(lane.class, sign*float64(costs[i])/l.share(lane.flow), l.lower())
		}
	}
}

// stand has a lane wait under a scope key, which is looked at by then.
func (l *Line) stand(name string, lane *lane, look int64) {
	l.queue(name).stand(lane, lane.jobs[0].arrival)
	l.due(name, look)
}

// leave ends that.
func (l *Line) leave(name string, lane *lane) {
	q := l.queues[name]
	q.leave(lane)
	under, isParked := strings.CutSuffix(name, parked)
	if isParked {
		delete(q.finish, lane.flow)
		if q.tags.len() == 0 {
			delete(l.queues, name)
		}
	}
	l.tidy(under)
}

// tidy deletes a scope key's queue, and its tags, when no flow stands there, and none has a
// claim or a parked lane there.
func (l *Line) tidy(name string) {
	if !l.stands(name) && l.queues[name+parked] == nil && l.claimers[name] == "" {
		delete(l.queues, name)
	}
}

// stands tells whether flows stand in a queue.
func (l *Line) stands(name string) bool {
	q := l.queues[name]
	return q != nil && q.tags.len() > 0
}

// blocked is the scope key under which a job has to wait that has its place at f: of those
// that have no room for it by themselves the one whose room comes last, and when to look.
// If each has room by itself, it is the one that moved the job last.
func (l *Line) blocked(lane *lane, costs []int64, f fit) (name string, look int64) {
	last := int64(-1)
	for i, n := range lane.keys {
		k := l.key(n)
		if k.mode != Enforce {
			continue
		}
		own, _, _ := k.earliest(l.now, l.now, costs[i], true)
		if own > l.now+l.settings.Lookahead && own > last {
			one, _, _ := k.earliest(l.now, l.now, 1, true)
			last, name, look = own, n, one
		}
	}
	if name == "" {
		name, look = f.key.name, f.at
	}
	return name, l.soon(look - l.settings.Lookahead)
}

// lookedAtAfter is after how long what has no room is looked at again at the latest: another
// process may have other limits, or the clock may have been set.
const lookedAtAfter = 300_000_000

// soon is when something is looked at that has room then, also what never has. A forecast
// knows that nothing changes.
func (l *Line) soon(at int64) int64 {
	if l.playing {
		return at
	}
	return min(at, l.now+lookedAtAfter)
}
