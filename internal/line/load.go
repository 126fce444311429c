package line

import (
	"maps"
	"slices"
	"strings"
)

// Snapshot is all jobs that wait, the state of their scope keys, and the settings of run time.
type Snapshot struct {
	Now    int64
	Keys   []KeySnapshot
	Set    []Setting
	Queues []QueueSnapshot
	Lanes  []LaneSnapshot // the lanes that stand in a queue
	Claims []ClaimSnapshot
	Shares map[string]int64 // of the flows whose share is not 1
}

// KeySnapshot is the state of a scope key.
type KeySnapshot struct {
	Name    string
	Paused  int64
	Part    int64 // the served share of the limits, in thousandths
	Ledgers []LedgerSnapshot
}

// Setting is a mode, or else a list of limits, that is set at run time.
type Setting struct {
	Name   string // of a scope key or a scope; empty: the mode of all scopes
	Mode   Mode   // 0: the setting is the limits
	Limits []Limit
	Ends   int64 // Never: the setting stays until it is taken back
}

// LedgerSnapshot is the content of one ledger.
type LedgerSnapshot struct {
	Span
	Precision, N  int64
	Shift         int64 // the ledger's time minus the clock's
	Spent, Booked []Entry
}

// Entry is how many units are in one sub-window.
type Entry struct{ At, Units int64 }

// QueueSnapshot is the queue of one scope key.
type QueueSnapshot struct {
	Name    string // of the scope key
	Timer   int64
	Virtual float64
	Flows   []FlowSnapshot
	Finish  map[string]float64   // finish tags of flows that stand in another queue
	HadTurn []string             // flows that have had their turn here and now stand in another queue
	Classes map[string]ClassTags // of flows that have had lanes of a lower priority here
}

// FlowSnapshot is a flow that stands in a queue, with its lanes there.
type FlowSnapshot struct {
	Flow  string
	Tag   float64
	Lanes []Standing
}

// Standing is a lane in a queue.
type Standing struct {
	Lane    string
	Arrival int64 // of its first job
}

// LaneSnapshot is a lane with its jobs in order.
type LaneSnapshot struct {
	Name string
	Jobs []Waiter
}

// Waiter is a job in a lane. It has a cost for each scope key of the lane, or one cost for all of them.
type Waiter struct {
	ID      string
	Arrival int64
	Costs   []int64
}

// ClaimSnapshot is a job that is booked beyond the lookahead.
type ClaimSnapshot struct {
	Key string
	At  int64
	ID  string
}

// Load returns a line that goes on from a snapshot. Load turns bookings into starts: it assumes that booked jobs start
// at their slots.
func Load(s Snapshot) *Line {
	l := New()
	for _, k := range s.Keys {
		l.keys[k.Name] = k.load(s.Now)
	}
	for _, set := range s.Set {
		l.loadSetting(set)
	}
	l.now = s.Now
	for flow, share := range s.Shares {
		l.setShare(flow, share)
	}
	for i := range s.Lanes {
		l.loadLane(&s.Lanes[i])
	}
	for i := range s.Queues {
		l.loadQueue(&s.Queues[i])
	}
	for _, c := range s.Claims {
		l.claims[c.Key] = claim{c.At, c.ID}
	}
	for _, k := range l.keys {
		for _, d := range k.ledgers {
			d.startBooked(s.Now + k.offset)
		}
	}
	return l
}

func (l *Line) loadSetting(s Setting) {
	set := l.set[s.Name]
	switch k := l.keys[s.Name]; {
	case k != nil:
		k.own, k.ownEnds = s.Limits, s.Ends
	case s.Name == "":
		l.all.mode, l.all.modeEnds = s.Mode, s.Ends
	case s.Mode != 0:
		set.mode, set.modeEnds = s.Mode, s.Ends
		l.set[s.Name] = set
	default:
		set.limits, set.limitsEnd = s.Limits, s.Ends
		l.set[s.Name] = set
	}
}

// load returns the scope key of a snapshot.
func (s *KeySnapshot) load(now int64) *key {
	k := &key{name: s.Name, pause: s.Paused, ownEnds: Never, adapted: adapted{less: whole - s.Part, changed: now}}
	for _, w := range s.Ledgers {
		k.offset = w.Shift
		k.seen = now + w.Shift
		d := &ledger{Span: w.Span, precision: w.Precision, edges: edges{offset: w.Shift}}
		for _, e := range w.Spent {
			d.spent.add(e.At, e.Units)
		}
		for _, e := range w.Booked {
			d.booked.add(e.At, e.Units)
		}
		k.ledgers = append(k.ledgers, d)
	}
	return k
}

func (l *Line) loadLane(s *LaneSnapshot) {
	if len(s.Jobs) == 0 {
		return
	}
	lane := l.lane(s.Name)
	for _, w := range s.Jobs {
		if l.jobs[w.ID] != nil {
			continue
		}
		costs := w.Costs
		if len(costs) == 1 && len(lane.keys) > 1 {
			costs = slices.Repeat(costs, len(lane.keys))
		}
		lane.jobs = append(lane.jobs, element{w.Arrival, costs, w.ID})
		l.jobs[w.ID] = &record{state: waiting, arrival: w.Arrival, costs: costs, lane: s.Name}
	}
	if len(lane.jobs) > 0 {
		l.lanes[s.Name] = lane
	}
}

// loadQueue puts those lanes that have jobs into a queue.
func (l *Line) loadQueue(s *QueueSnapshot) {
	q := newQueue()
	q.virtual = s.Virtual
	for flow, tag := range s.Finish {
		q.finish.set(flow, tag)
	}
	for flow, tags := range s.Classes {
		q.classes[flow] = &tags
	}
	for _, flow := range s.HadTurn {
		q.let[flow] = true
	}
	for _, f := range s.Flows {
		for _, standing := range f.Lanes {
			if lane := l.lanes[standing.Lane]; lane != nil {
				q.add(lane, standing.Arrival)
				q.tags.set(f.Flow, f.Tag)
			}
		}
	}
	if q.tags.len() > 0 {
		l.timers.set(s.Name, s.Timer)
	}
	l.queues[s.Name] = q
}

// startBooked turns all bookings into starts at their slots, or now where the slot has passed.
func (d *ledger) startBooked(now int64) {
	booked := d.booked
	d.booked = nil
	for _, e := range booked {
		d.spent.add(max(e.at, d.subWindow(now)), e.units)
	}
}

// Snapshot returns the waiting jobs, their scope keys and the settings of run time.
func (l *Line) Snapshot(now int64, settings Settings) Snapshot {
	s := Snapshot{Now: now, Shares: make(map[string]int64, l.shares.len())}
	for flow, score := range l.shares.all() {
		s.Shares[flow] = score % shareSecond
	}
	for _, name := range slices.Sorted(maps.Keys(l.lanes)) {
		lane := LaneSnapshot{Name: name}
		for _, p := range l.lanes[name].jobs {
			if l.waits(l.lanes[name], p) {
				lane.Jobs = append(lane.Jobs, Waiter{p.id, p.arrival, p.costs})
			}
		}
		s.Lanes = append(s.Lanes, lane)
	}
	for _, name := range slices.Sorted(maps.Keys(l.queues)) {
		s.Queues = append(s.Queues, l.queueSnapshot(name))
	}
	slices.SortFunc(s.Queues, func(a, b QueueSnapshot) int { return strings.Compare(a.Name, b.Name) })
	for _, name := range slices.Sorted(maps.Keys(l.claims)) {
		c := l.claims[name]
		s.Claims = append(s.Claims, ClaimSnapshot{name, c.at, c.id})
	}
	concerned := make(map[string]bool)
	for _, lane := range l.lanes {
		for _, name := range lane.keys {
			concerned[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(concerned)) {
		s.Keys = append(s.Keys, l.KeySnapshot(now, settings, name))
		if k := l.keys[name]; k != nil && k.own != nil {
			s.Set = append(s.Set, Setting{Name: name, Limits: k.own, Ends: k.ownEnds})
		}
	}
	s.Set = append(s.Set, l.all.settings("")...)
	for _, scope := range slices.Sorted(maps.Keys(l.set)) {
		s.Set = append(s.Set, l.set[scope].settings(scope)...)
	}
	return s
}

// settings returns the settings of a scope, or of all scopes with an empty name.
func (s scopeSet) settings(name string) (all []Setting) {
	if s.mode != 0 {
		all = append(all, Setting{Name: name, Mode: s.mode, Ends: s.modeEnds})
	}
	if s.limits != nil {
		all = append(all, Setting{Name: name, Limits: s.limits, Ends: s.limitsEnd})
	}
	return all
}

func (l *Line) queueSnapshot(name string) QueueSnapshot {
	q := l.queues[name]
	s := QueueSnapshot{Name: name, Virtual: q.virtual, Finish: maps.Collect(q.finish.all()),
		HadTurn: slices.Sorted(maps.Keys(q.let)),
		Classes: make(map[string]ClassTags, len(q.classes))}
	for flow, tags := range q.classes {
		s.Classes[flow] = *tags
	}
	s.Timer, _ = l.timers.get(name)
	for _, flow := range q.tags.sorted() {
		f := FlowSnapshot{Flow: flow}
		f.Tag, _ = q.tags.get(flow)
		for i := range q.lanes[flow] {
			lanes := &q.lanes[flow][i]
			for _, lane := range lanes.sorted() {
				arrival, _ := lanes.get(lane)
				f.Lanes = append(f.Lanes, Standing{lane, arrival})
			}
		}
		s.Flows = append(s.Flows, f)
	}
	return s
}

// KeySnapshot returns the state of a scope key, with all of its ledgers.
func (l *Line) KeySnapshot(now int64, settings Settings, name string) KeySnapshot {
	l.begin(now, settings)
	k := l.key(name)
	s := KeySnapshot{Name: name, Paused: k.paused(), Part: k.adapted.part()}
	for _, d := range k.ledgers {
		s.Ledgers = append(s.Ledgers, LedgerSnapshot{
			Span: d.Span, Precision: d.precision, N: d.n(), Shift: k.shift, Spent: d.spent.list(), Booked: d.booked.list(),
		})
	}
	l.end()
	return s
}

// JobState is what the line knows of one job.
type JobState struct {
	Slot    int64  // 0: the job is not booked, or did not come to its slot
	Arrival int64  // 0: the job is not known
	Before  int64  // how many jobs of its lane come before it
	Jobs    int64  // how many jobs its lane has; 0: the job does not wait
	Queue   string // the scope key under which its lane stands
	Timer   int64  // when that scope key is looked at
}

// Job returns what the line knows of a job of this lane.
func (l *Line) Job(id, lane string) JobState {
	known := l.jobs[id]
	switch {
	case known == nil:
		return JobState{}
	case known.state == overdue:
		return JobState{Arrival: known.arrival}
	case known.state == booked:
		return JobState{Slot: known.slot, Arrival: known.arrival}
	}
	s := JobState{Arrival: known.arrival}
	for name, q := range l.queues {
		if q.has(l.lane(lane)) {
			s.Queue = name
		}
	}
	s.Timer, _ = l.timers.get(s.Queue)
	s.Jobs = int64(len(l.lane(lane).jobs))
	s.Before = int64(slices.IndexFunc(l.lane(lane).jobs, func(p element) bool { return p.id == id }))
	return s
}
