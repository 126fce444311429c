package try

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// What package worker does by default, and how often the model is called at most.
const (
	maxWait   = 200 * time.Millisecond // how long a job waits in its handler
	pullEvery = 50 * time.Millisecond
	mostCalls = 12_000
)

// The kinds of events. At the same instant, those above come first.
const (
	closes = iota // the incident begins
	ends          // a job has run
	renews        // the leases of the jobs that run
	asks          // a job comes, or comes again for its slot
)

// event is what happens at an instant after the beginning.
type event struct {
	at   time.Duration
	kind int
	job  int // its index
	turn int // in the order in which events were added
}

// events is a heap.
type events []event

func (e events) Len() int      { return len(e) }
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e events) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(e[i].at, e[j].at), cmp.Compare(e[i].kind, e[j].kind), cmp.Compare(e[i].turn, e[j].turn)) < 0
}
func (e *events) Push(x any) { *e = append(*e, x.(event)) } //nolint:errcheck // the heap has events alone
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// shaped plays a plan by this library: what asynq and package worker do, with jobs that come exactly at their slots.
type shaped struct {
	*plan
	model   *throttletest.Model
	events  events
	turns   int
	now     time.Duration // after the beginning
	due     time.Duration // when to pull next
	waits   bool          // a job waits, so that there is a next pull
	pulled  time.Duration // when the last pull was
	calls   int
	index   map[string]int               // of jobs, by ID
	running map[int]throttle.Reservation // jobs under running limits, by index
	renewal bool                         // leases are renewed next by an event that is there
	played
}

// shape plays a plan by this library. The error is a *FieldError of the weight: a job that never fits.
func (p *plan) shape() (played, error) {
	s := &shaped{
		plan: p, model: throttletest.NewModel(p.scopes, p.options), pulled: -pullEvery,
		index: make(map[string]int, len(p.jobs)), running: make(map[int]throttle.Reservation),
	}
	if p.closed.until > p.closed.from {
		s.add(p.closed.from, closes, 0)
	}
	for i := range p.jobs {
		s.index[p.jobs[i].ID] = i
		s.add(p.jobs[i].comes, asks, i)
	}
	for s.calls < mostCalls && s.moves() {
		if err := s.step(); err != nil {
			return played{}, err
		}
	}
	s.noteUnstarted()
	return s.played, nil
}

// noteUnstarted says why jobs have not started.
func (s *shaped) noteUnstarted() {
	left, bound := len(s.jobs)-len(s.starts), spanText
	if s.calls >= mostCalls {
		bound = fmt.Sprintf("%d calls", mostCalls)
	}
	if left > 0 {
		s.note("This library's side ends with %d jobs not started: at most %s are played.", left, bound)
	}
}

func (s *shaped) add(at time.Duration, kind, job int) {
	s.turns++
	heap.Push(&s.events, event{max(at, s.now), kind, job, s.turns})
}

// moves goes to the next instant, and reports whether there is one that is played.
func (s *shaped) moves() bool {
	next := mostSpan + 1
	if s.waits {
		next = max(s.due, s.pulled+pullEvery)
	}
	if len(s.events) > 0 {
		next = min(next, s.events[0].at)
	}
	s.now = max(s.now, next)
	return s.now <= mostSpan
}

// step does what is due: the first events of one kind, or a pull.
func (s *shaped) step() error {
	if len(s.events) == 0 || s.events[0].at > s.now {
		return s.bring()
	}
	kind, jobs := s.events[0].kind, []int(nil)
	for len(s.events) > 0 && s.events[0].at <= s.now && s.events[0].kind == kind {
		jobs = append(jobs, heap.Pop(&s.events).(event).job) //nolint:errcheck // the heap has events alone
	}
	switch kind {
	case closes:
		return s.close()
	case ends:
		return s.end(jobs)
	case renews:
		return s.renew()
	}
	return s.ask(jobs)
}

func (s *shaped) clock() time.Time { return s.begins.Add(s.now) }

// after returns how long after the beginning an instant is.
func (s *shaped) after(at time.Time) time.Duration { return at.Sub(s.begins) }

// heed notes when to pull next, of an answer.
func (s *shaped) heed(next time.Time) {
	if s.waits = !next.IsZero(); s.waits {
		s.due = s.after(next)
	}
}

func (s *shaped) close() error {
	s.calls++
	_, err := s.model.Pause(s.clock(), s.closed.scope, s.closed.key, s.begins.Add(s.closed.until))
	if err != nil {
		return wrong("until", "%v", err)
	}
	return nil
}

// ask reserves for jobs. A job that is not granted is put back.
func (s *shaped) ask(indexes []int) error {
	jobs := make([]throttle.Job, len(indexes))
	for i, index := range indexes {
		jobs[i] = s.jobs[index].Job
	}
	s.calls += len(jobs)
	for i, answer := range s.model.ReserveAll(s.clock(), jobs) {
		if answer.Err != nil {
			return wrong("weight", "%v", answer.Err)
		}
		r, index := answer.Reservation, indexes[i]
		s.heed(r.Next)
		if r.Outcome == throttle.Granted {
			s.start(index, r)
			continue
		}
		s.putBacks++
		if r.Outcome == throttle.Booked {
			s.add(s.after(r.Start), asks, index)
		}
	}
	return nil
}

func (s *shaped) start(index int, granted throttle.Reservation) {
	at := s.after(granted.Start)
	s.starts = append(s.starts, start{job: index, at: at})
	if granted.Lease == 0 {
		return
	}
	s.running[index] = granted
	s.add(at+s.runs, ends, index)
	if !s.renewal && s.runs > granted.Lease/renewals {
		s.renewal = true
		s.add(s.now+granted.Lease/renewals, renews, 0)
	}
}

// bring pulls, and has the booked jobs ask at their slots.
func (s *shaped) bring(ended ...throttle.Reservation) error {
	s.calls++
	pulled, err := s.model.Pull(s.clock(), ended...)
	if err != nil {
		return wrong("global", "%v", err)
	}
	s.pulled = s.now
	s.heed(pulled.Next)
	for _, r := range pulled.Booked {
		s.add(s.after(r.Start), asks, s.index[r.Job.ID])
	}
	for _, r := range pulled.Overdue {
		s.add(s.now, asks, s.index[r.Job.ID])
	}
	return nil
}

// end gives back the places of jobs that have run.
func (s *shaped) end(indexes []int) error {
	var ended []throttle.Reservation
	for _, index := range indexes {
		ended = append(ended, s.running[index])
		delete(s.running, index)
	}
	return s.bring(ended...)
}

// renewals is how often a lease is renewed until it would be over.
const renewals = 3

// renew renews the leases of all jobs that run.
func (s *shaped) renew() error {
	s.renewal = false
	var granted []throttle.Reservation
	for _, index := range slices.Sorted(maps.Keys(s.running)) {
		granted = append(granted, s.running[index])
	}
	if len(granted) == 0 {
		return nil
	}
	s.calls++
	if _, err := s.model.Renew(s.clock(), granted...); err != nil {
		return wrong("runs", "%v", err)
	}
	shortest := granted[0].Lease
	for _, r := range granted {
		shortest = min(shortest, r.Lease)
	}
	s.renewal = true
	s.add(s.now+shortest/renewals, renews, 0)
	return nil
}
