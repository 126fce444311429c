package throttle

import (
	"container/heap"
	"math"
	"slices"
	"time"
)

// simulation plays the line through, faster than it happens: the order of
// start-time fair queueing, the places of the calendar and what is set aside or held are
// those of pull.lua, as if each lane were pulled the moment that its time has come.
type simulation struct {
	throttle *Throttle
	began    int64 // us
	now      int64
	time     float64 // virtual
	highest  float64 // tag that there was
	lanes    []*simLane
	byName   map[Lane]*simLane
	fairs    map[string]*simFair
	joined   int64
	closed   int64 // until then what all share has no room
	ready    fairHeap
	aside    laneHeap
	holders  []*scopeKeyState // that have held lanes
}

// waiter is a job in line.
type waiter struct {
	id      string
	weight  int64
	arrival int64
	start   int64 // us; 0 = never, or not yet
}

type simLane struct {
	name    Lane
	call    *call
	keys    []*scopeKeyState
	jobs    int64 // that wait, by the line
	units   int64 // of those that are not read
	read    int64
	waiting []*waiter
	next    int   // of waiting
	until   int64 // set aside; 0 = it is not
	fair    *simFair
	holder  string  // scope:key that holds it, by the line
	score   float64 // its place among those that are held
	letIn   bool    // by its holder, and not served since
}

func (l *simLane) head() *waiter { return l.waiting[l.next] }

type simFair struct {
	key    string
	share  float64
	tag    float64
	served float64    // where its last work ended
	lanes  []*simLane // eligible
	place  int        // in the heap, negative if it is not ready
}

func newSimulation(t *Throttle) *simulation {
	return &simulation{throttle: t, byName: make(map[Lane]*simLane), fairs: make(map[string]*simFair)}
}

// lane finds a lane, or makes one in which nobody waits.
func (s *simulation) lane(c *call) *simLane {
	lane := s.byName[c.lane]
	if lane == nil {
		lane = &simLane{name: c.lane, call: c, fair: s.fair(c.lane.fairKey())}
		s.byName[c.lane] = lane
		s.lanes = append(s.lanes, lane)
	}
	return lane
}

func (s *simulation) fair(key string) *simFair {
	fair := s.fairs[key]
	if fair == nil {
		fair = &simFair{key: key, share: float64(s.throttle.shares.of(key)), tag: s.time, place: -1}
		s.fairs[key] = fair
	}
	return fair
}

// add takes up a lane in which jobs wait, as lanes.lua tells it.
func (s *simulation) add(told reply) error {
	met, err := s.throttle.meetingsOf(Lane(told.text(0)))
	if err != nil {
		return nil //nolint:nilerr // a lane of another configuration: others look after it
	}
	c, err := s.throttle.callOf("", met)
	if err != nil {
		return err
	}
	lane := s.lane(c)
	lane.jobs, lane.units = told.integer(1), told.integer(2)
	lane.until, lane.holder = told.integer(3), told.text(5)
	lane.score = number(told.text(4))
	lane.fair.tag = max(s.time, lane.score)
	s.highest = max(s.highest, lane.fair.tag)
	return nil
}

// take takes up a page of the jobs that wait in the lane.
func (l *simLane) take(page reply) error {
	for ; len(page) > 0; page = page[3:] {
		if !page.is("tii") {
			return badReply("waiting", page)
		}
		l.waiting = append(l.waiting, &waiter{id: page.text(0), weight: page.integer(1), arrival: page.integer(2)})
		l.read++
		l.units -= page.integer(1)
	}
	if l.read < mostWaiting {
		return nil
	}
	// Of what is behind, the mean weight.
	last := l.waiting[len(l.waiting)-1].arrival
	rest := l.jobs - l.read
	for range rest {
		l.waiting = append(l.waiting, &waiter{weight: max(1, l.units/rest), arrival: last})
	}
	return nil
}

// arrive decides for a new job as reserve.lua does: it starts now, is booked, or stands
// behind its lane's others.
func (s *simulation) arrive(lane *simLane, w *waiter) {
	contested := lane.contested()
	if lane.next == len(lane.waiting) && contested == nil {
		start, _ := lane.place(w.weight, s.now)
		if start <= s.now || start <= s.now+s.lookahead() && len(s.ready) == 0 {
			lane.charge(start, w.weight)
			w.start = start
			return
		}
	}
	s.joined++
	w.arrival = math.MaxInt64/2 + s.joined // behind all that were there
	lane.waiting = append(lane.waiting, w)
	switch {
	case lane.next < len(lane.waiting)-1 || lane.until > s.now:
	case contested != nil:
		s.hold(lane, contested, max(lane.fair.tag, s.time))
	default:
		s.enlist(lane)
		s.settle()
	}
}

func (s *simulation) lookahead() int64 { return s.throttle.options.Lookahead.Microseconds() }

// laneOf is the lane of a job, nil if nobody waits in it.
func (s *simulation) laneOf(job Job) *simLane {
	met, err := s.throttle.meetings(job)
	if err != nil {
		return nil
	}
	return s.byName[s.throttle.laneOf(met)]
}

// unread are the jobs of the lane of which only the mean weight is known.
func (l *simLane) unread() []*waiter { return l.waiting[min(l.read, int64(len(l.waiting))):] }

// ids are the jobs in line by their IDs.
func (s *simulation) ids() map[string]*waiter {
	ids := make(map[string]*waiter)
	for _, lane := range s.lanes {
		for _, w := range lane.waiting {
			ids[w.id] = w
		}
	}
	return ids
}

// begin makes those ready who are.
func (s *simulation) begin() {
	s.now = s.began
	for _, lane := range s.lanes {
		switch {
		case len(lane.waiting) == 0:
			lane.until = 0
		case lane.holder != "":
			key := lane.keys[slices.IndexFunc(lane.keys, func(k *scopeKeyState) bool { return k.met.name() == lane.holder })]
			key.until = lane.until
			s.hold(lane, key, lane.score)
		case lane.until > s.now:
			heap.Push(&s.aside, lane)
		default:
			s.enlist(lane)
		}
	}
	s.settle()
}

// run starts everybody. Lanes that are set aside come back together, with a sweep: one
// that came a moment before the others would take all that they wait for.
func (s *simulation) run() {
	for {
		next := int64(math.MaxInt64)
		if len(s.aside) > 0 {
			next = s.aside[0].until
		}
		for _, key := range s.holders {
			if len(key.held) > 0 {
				next = min(next, key.until)
			}
		}
		if next < math.MaxInt64 {
			next += sweepEvery.Microseconds() - 1
			next -= next % sweepEvery.Microseconds()
		}
		if len(s.ready) > 0 {
			next = min(next, s.closed)
		}
		if next == math.MaxInt64 {
			return
		}
		s.now = max(s.now, next)
		s.settle()
	}
}

// settle pulls all whose time has come.
func (s *simulation) settle() {
	s.pullAll()
	for _, key := range s.holders {
		for len(key.held) > 0 && key.until <= s.now {
			lane := key.first()
			lane.letIn = true
			s.enlist(lane)
			s.pullAll()
			if len(s.ready) > 0 {
				// It is not its turn, since all wait for what they share.
				key.until = s.now + time.Second.Microseconds()
			}
		}
	}
}

func (s *simulation) pullAll() {
	for len(s.aside) > 0 && s.aside[0].until <= s.now {
		if lane, is := heap.Pop(&s.aside).(*simLane); is {
			s.enlist(lane)
		}
	}
	for len(s.ready) > 0 && s.closed <= s.now {
		s.pull(s.ready[0])
	}
}

// enlist makes a lane eligible, and its fair key ready.
func (s *simulation) enlist(lane *simLane) {
	fair := lane.fair
	lane.until = 0
	fair.lanes = append(fair.lanes, lane)
	if fair.place >= 0 {
		return
	}
	fair.tag = max(fair.tag, s.time)
	heap.Push(&s.ready, fair)
}

// front is the eligible lane with the oldest head.
func (f *simFair) front() int {
	front := 0
	for i, lane := range f.lanes {
		if lane.head().arrival < f.lanes[front].head().arrival {
			front = i
		}
	}
	return front
}

// pull starts the job whose turn it is, or sets its lane aside.
func (s *simulation) pull(fair *simFair) {
	front := fair.front()
	lane := fair.lanes[front]
	job := lane.head()
	start, holder := lane.place(job.weight, s.now)
	switch {
	case start < math.MaxInt64:
		if again, alone, far := lane.far(job.weight, start, holder, s.now, s.lookahead()); far {
			s.setAside(fair, front, holder, max(again, s.now+1), alone)
			return
		}
		lane.charge(start, job.weight)
		job.start = start
		s.serve(lane, float64(job.weight))
	case !lane.tooHeavy(job.weight):
		s.leave(fair, front) // never
		return
	}
	if lane.next++; lane.next == len(lane.waiting) {
		s.leave(fair, front)
	} else if key := lane.outstripped(); key != nil {
		s.leave(fair, front)
		s.hold(lane, key, fair.tag)
	}
}

// serve moves the tags on for some work.
func (s *simulation) serve(lane *simLane, work float64) {
	fair := lane.fair
	started := fair.tag
	fair.tag += work / fair.share
	fair.served = fair.tag
	lane.letIn = false
	s.highest = max(s.highest, fair.tag)
	most := s.highest + work
	if lane.next < len(lane.waiting)-1 {
		most = min(most, fair.tag)
	}
	for _, key := range lane.keys {
		for _, other := range key.held {
			most = min(most, max(other.score, other.fair.served))
		}
	}
	s.time = max(started, min(s.time+work/float64(len(s.ready)+1), most))
	heap.Fix(&s.ready, fair.place)
}

// far tells whether a place is too far ahead to be booked, and when to look again, as
// pull.lua does; alone, that there is room for lighter jobs.
func (l *simLane) far(weight, start int64, holder *simLedger, now, lookahead int64) (again int64, alone, far bool) {
	if start <= now+lookahead {
		return 0, false, false
	}
	if weight > 1 {
		light, _ := l.place(1, now)
		if light > now+lookahead {
			return light - lookahead, false, true
		}
	}
	span := int64(0)
	if holder != nil && weight > 1 {
		span = holder.span
	}
	return start - lookahead - span, weight > 1, start > now+lookahead+span
}

// tooHeavy tells that a limit was set below a weight: the job is told so when it comes,
// and those behind it go on.
func (l *simLane) tooHeavy(weight int64) bool {
	for _, key := range l.keys {
		for _, ledger := range key.ledgers {
			if ledger.units > 0 && ledger.units < weight {
				return true
			}
		}
	}
	return false
}

// setAside leaves a lane alone until then, all of its fair key's where that has no
// room, or everybody where all share what has none. One that is not alone waits with
// the others for what they share.
func (s *simulation) setAside(fair *simFair, front int, holder *simLedger, until int64, alone bool) {
	if holder != nil && holder.class == classShared {
		s.closed = until
		return
	}
	lane := fair.lanes[front]
	if holder != nil && holder.class == classOther && !alone {
		score := fair.tag
		if lane.letIn {
			score = min(lane.score, score)
		}
		s.leave(fair, front)
		s.hold(lane, holder.key, score)
		holder.key.until = until
		return
	}
	lane.until = until
	s.leave(fair, front)
	if holder != nil && holder.class == classFair && fair.place >= 0 {
		heap.Remove(&s.ready, fair.place)
		fair.place = -1
	}
	heap.Push(&s.aside, lane)
}

// leave takes a lane out of its fair key's eligible ones.
func (s *simulation) leave(fair *simFair, i int) {
	fair.lanes = slices.Delete(fair.lanes, i, i+1)
	if len(fair.lanes) == 0 && fair.place >= 0 {
		heap.Remove(&s.ready, fair.place)
		fair.place = -1
	}
}

// place is the earliest start from now on for a weight, and the ledger that moved it
// last; MaxInt64 if there is none.
func (l *simLane) place(weight, now int64) (start int64, holder *simLedger) {
	start = now
	for _, key := range l.keys {
		if key.opens > start {
			start, holder = key.opens, &simLedger{class: key.class, key: key}
		}
	}
	for moved := true; moved; {
		moved = false
		for _, key := range l.keys {
			for _, ledger := range key.ledgers {
				if at := ledger.earliest(weight, start, now); at > start {
					start, holder, moved = at, ledger, true
				}
				if start == math.MaxInt64 {
					return start, holder
				}
			}
		}
	}
	return start, holder
}

func (l *simLane) charge(start, weight int64) {
	for _, key := range l.keys {
		for _, ledger := range key.ledgers {
			ledger.charge(start, weight)
		}
	}
}

// scopeKeyState is what a forecast knows of one scope key.
type scopeKeyState struct {
	met     meets
	class   byte
	opens   int64
	ledgers []*simLedger
	held    []*simLane
	until   int64 // when to look at the first of them
}

// read takes up what entries.lua tells.
func (k *scopeKeyState) read(c *call, told reply) error {
	if !told.is("ii") {
		return badReply("entries", told)
	}
	k.opens = told.integer(1)
	rest := told[2:]
	for i := range c.holds {
		if !rest.is("iii") || int64(len(rest)) < 3+2*rest.integer(2) {
			return badReply("entries", told)
		}
		ledger := &simLedger{
			units: c.holds[i].Limit.Units, span: rest.integer(0), precision: rest.integer(1),
			class: k.class, key: k,
		}
		count := int(rest.integer(2))
		entries := rest[3 : 3+2*count]
		rest = rest[3+2*count:]
		for e := 0; e < 2*count; e += 2 {
			ledger.charge(entries.integer(e), entries.integer(e+1))
		}
		if !c.free[i] {
			k.ledgers = append(k.ledgers, ledger)
		}
	}
	return nil
}

// fairHeap are the fair keys that are ready, the lowest tag first.
type fairHeap []*simFair

func (h fairHeap) Len() int { return len(h) }
func (h fairHeap) Less(i, j int) bool {
	if h[i].tag == h[j].tag {
		return h[i].key < h[j].key
	}
	return h[i].tag < h[j].tag
}
func (h fairHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *fairHeap) Push(x any) {
	if fair, is := x.(*simFair); is {
		fair.place = len(*h)
		*h = append(*h, fair)
	}
}

// Pop implements heap.Interface.
func (h *fairHeap) Pop() any {
	old := *h
	fair := old[len(old)-1]
	*h = old[:len(old)-1]
	return fair
}

// laneHeap are the lanes that are set aside, the first to come back first.
type laneHeap []*simLane

func (h laneHeap) Len() int           { return len(h) }
func (h laneHeap) Less(i, j int) bool { return h[i].until < h[j].until }
func (h laneHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *laneHeap) Push(x any) {
	if lane, is := x.(*simLane); is {
		*h = append(*h, lane)
	}
}

// Pop implements heap.Interface.
func (h *laneHeap) Pop() any {
	old := *h
	lane := old[len(old)-1]
	*h = old[:len(old)-1]
	return lane
}
