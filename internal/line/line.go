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

// scopeSet is what is set for a whole scope; a Mode of 0 or nil Limits: nothing.
type scopeSet struct {
	mode      Mode
	modeEnds  int64 // Never: it is set until it is taken back
	limits    []Limit
	limitsEnd int64 // as modeEnds
}

// asOf returns what is left of the set at an instant.
func (s scopeSet) asOf(now int64) scopeSet {
	if s.mode == 0 || s.modeEnds <= now {
		s.mode, s.modeEnds = 0, Never
	}
	if s.limits == nil || s.limitsEnd <= now {
		s.limits, s.limitsEnd = nil, Never
	}
	return s
}

// inForce are the settings in force for the keys of a scope that have no limits of their own.
type inForce struct {
	mode   Mode
	limits []Limit
	origin byte
	after  []Limit // that follow the limits when they end
	ends   int64   // when the next of what is set ends; Never: nothing does
}

// Line is the state of one throttle.
type Line struct {
	keys     map[string]*key
	jobs     map[string]*record
	lanes    map[string]*lane
	queues   map[string]*queue
	overdues ranked[int64] // when an overdue job is reported again
	timers   ranked[int64] // when a scope key is looked at; of a booking, "=" and its job, when its grace is over
	// scores of flows whose share is not 1: the second in which a job last stated it times shareSecond, plus the share
	shares ranked[int64]
	claims map[string]claim // by scope key
	set    map[string]scopeSet
	all    scopeSet // its mode is set for all scopes

	pulled  int64            // when it was pulled last
	settled map[string]int64 // marks of settled grants, and until when they are kept
	runs    map[string]*run  // of grants that occupy places

	playing bool // a forecast: a booked job is taken to start at its slot

	// Looks is how many first jobs pulls have looked at so far.
	Looks int
	// Ends is the check at which a pull ends, as reported by a script that has taken its steps; 0: pulls do not end early.
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
		queues: make(map[string]*queue),
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
}

type state int

const (
	waiting state = iota + 1
	booked
	overdue // its units count no more; it still has its entry in the lane
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

// claim is the slot of a heavy job that is booked beyond the lookahead. It counts until the slot is within that.
type claim struct {
	at int64
	id string
}

// begin prepares the line for one call.
func (l *Line) begin(now int64, settings Settings) {
	l.now, l.settings, l.looked = now, settings, make(map[string]*key)
}

// end forgets scope keys of which nothing is left to remember.
func (l *Line) end() {
	for name, k := range l.looked {
		k.forget(l.now, l.settings.Grace)
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

// key is a scope key, ready for this call.
func (l *Line) key(name string) *key {
	if k := l.looked[name]; k != nil {
		return k
	}
	k := l.keys[name]
	if k == nil {
		k = &key{name: name, ownEnds: Never}
		l.keys[name] = k
	}
	scope, _, _ := strings.Cut(name, ":")
	k.look(l.now, l.settings.Grace, l.settings.Lookahead, l.inForce(scope))
	l.looked[name] = k
	return k
}

func (l *Line) inForce(scope string) inForce {
	configured, set, all := l.settings.Scopes[scope], l.set[scope].asOf(l.now), l.all.asOf(l.now)
	f := inForce{mode: configured.Mode, limits: configured.Limits, origin: 'c', ends: min(set.modeEnds, set.limitsEnd)}
	if configured.Mode == 0 {
		f.mode = Off // no scope of this process
	} else if all.mode != 0 {
		f.mode, f.ends = all.mode, min(f.ends, all.modeEnds)
	}
	if set.mode != 0 {
		f.mode = set.mode
	}
	if set.limitsEnd < Never {
		f.after = f.limits
	}
	if set.limits != nil {
		f.limits, f.origin = set.limits, 's'
	}
	return f
}

// ends returns when the first setting of a lane's scope keys ends.
func (l *Line) ends(lane *lane) int64 {
	next := Never
	for _, name := range lane.keys {
		next = min(next, l.key(name).ends)
	}
	return next
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

func (l *Line) queue(name string) *queue {
	if l.queues[name] == nil {
		l.queues[name] = newQueue()
	}
	return l.queues[name]
}

func (l *Line) lower() float64 { return float64(cmp.Or(l.settings.Lower, defaultLower)) }

// shareSecond is the weight of a second in the score of a share. A share is kept for a limited number of seconds: a
// waiting job asks again within that time, and states its share anew.
const (
	shareSecond = 1 << 20
	shareKept   = 864_000
	// mostShares is how many are kept, about a megabyte. The share of a flow beyond them is 1 until its next job asks.
	mostShares = 10_000
)

func (l *Line) share(flow string) float64 {
	score, _ := l.shares.get(flow)
	return float64(max(1, score%shareSecond))
}

// forgetShares forgets some of the shares that no job has stated for long.
func (l *Line) forgetShares() {
	for range forgottenAtOnce {
		flow, score, is := l.shares.first()
		if !is || score > (l.now/1_000_000-shareKept)*shareSecond {
			return
		}
		l.shares.delete(flow)
	}
}

// due sets a timer; an earlier timer stays. The timer also covers the lanes that a walk has passed.
func (l *Line) due(name string, at int64) {
	if t, set := l.timers.get(name); !set || at < t {
		l.timers.set(name, at)
	}
	if q := l.queues[name]; q != nil && q.walking {
		q.again = min(q.again, at)
	}
}

// hurry makes a scope key due now if lanes stand under it, and the job that has a claim there.
func (l *Line) hurry(name string) {
	for _, timer := range []string{name, "+" + l.claims[name].id} {
		if t, set := l.timers.get(timer); set && t > l.now {
			l.timers.set(timer, l.now)
		}
	}
	if q := l.queues[name]; q != nil && q.walking {
		q.again = l.now
	}
}

// Next returns when the next pull is due, 0 if nothing waits.
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

// earliest returns the first start at or after at that the scope keys of a lane allow: those that enforce their
// limits, or those in shadow.
func (l *Line) earliest(lane *lane, costs []int64, at int64, promises bool, mode Mode) fit {
	f, asked := fit{at: at}, 0
	for again := true; again; {
		again = false
		for i, name := range lane.keys {
			k := l.key(name)
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

// costOf returns what a job costs under one of its lane's scope keys.
func costOf(lane *lane, costs []int64, name string) int64 {
	return costs[slices.Index(lane.keys, name)]
}

// contended is a scope key of a lane, but for one, under which flows stand whose turn is
// before this flow's; empty if there is none. A job that comes anew may go before
// flows for which no look has room until later.
func (l *Line) contended(lane *lane, but string) string {
	for _, name := range lane.keys {
		q := l.queues[name]
		if name == but || q == nil || l.key(name).mode != Enforce {
			continue
		}
		if look, _ := l.timers.get(name); but == "" && look > l.now {
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

// stand puts a lane into the queue of a scope key, which becomes due by then.
func (l *Line) stand(name string, lane *lane, look int64) {
	l.queue(name).stand(lane, lane.jobs[0].arrival)
	l.due(name, look)
}

// leave takes a lane out of its queue.
func (l *Line) leave(name string, lane *lane) {
	q := l.queues[name]
	q.leave(lane)
	l.tidy(name)
}

// tidy deletes a scope key's queue, and its tags, when no flow stands there.
func (l *Line) tidy(name string) {
	if !l.stands(name) {
		delete(l.queues, name)
	}
}

// stands reports whether flows stand in a queue.
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

// lookedAtAfter is the longest time between two looks at a scope key without room: another process may have other
// limits, or the clock may have been set.
const lookedAtAfter = 300_000_000

// soon is when something is looked at that has room then, also what never has, and not after
// what is set at run time ends. A forecast knows that nothing else changes.
func (l *Line) soon(at, ends int64) int64 {
	if l.playing {
		return min(at, ends)
	}
	return min(at, ends, l.now+lookedAtAfter)
}
