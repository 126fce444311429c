package line

import "slices"

// Job is a job that asks for a start.
type Job struct {
	ID      string
	Lane    string  // "<flow>|<scope key>,<scope key>", the scope keys sorted; "<flow>#1|..." of priority 1
	Costs   []int64 // of each scope key
	MaxWait int64   // us
	Latest  int64   // us from now until the last useful start, Never if there is none; negative: it has passed
	Plan    bool
	Share   int64 // of the flow
}

// Outcome is the kind of an Answer.
type Outcome int

// The outcomes, as the scripts number them.
const (
	Granted Outcome = iota + 1
	Booked
	Waiting
	TooLate // its place is after its last useful start
	TooHeavy
)

// Answer is the decision for a job.
type Answer struct {
	Outcome Outcome
	Start   int64
	Lease   int64 // of the places that a granted job occupies: the shortest; 0 if it occupies none
	Waited  int64 // of a granted job: us from its arrival to its start
	// Uncharged are, for a granted job, the scope keys that are off.
	Uncharged []string
	Held      *Held // what held it back
	Shadow    *Held // for a granted job, what would have held it if it were not in shadow
	Until     int64 // of Shadow
	Ahead     int64 // jobs before it in its lane
	Flows     int64 // that stand where its lane stands
}

// Held is a limit, or a pause, that holds a job back.
type Held struct {
	Key          string
	Limit        *Limit // nil: the pause
	Origin       byte
	Used, Booked int64
}

// Reserve decides for jobs, one after the other.
func (l *Line) Reserve(now int64, settings Settings, jobs []Job) []Answer {
	l.begin(now, settings)
	// All scope keys are read before the first decision.
	for _, job := range jobs {
		for _, name := range l.lane(job.Lane).keys {
			l.key(name)
		}
	}
	answers := make([]Answer, len(jobs))
	for i, job := range jobs {
		answers[i] = l.decide(job, now+int64(i))
	}
	l.end()
	return answers
}

func (l *Line) decide(job Job, arrival int64) Answer {
	lane := l.lane(job.Lane)
	known, back := l.jobs[job.ID], false
	l.overdues.delete(job.ID)
	if known != nil && known.state == waiting {
		if known.lane == lane.name && job.Latest >= 0 && l.tooHeavy(lane, job.Costs) == nil {
			return l.stillWaiting(job, lane, known.arrival)
		}
		l.leaveLane(job.ID, known)
		l.forgetJob(job.ID)
		known = nil
	}
	if known != nil && known.lane == lane.name && job.Latest >= 0 {
		if answer, done := l.redeem(job, lane, known); done {
			return answer
		}
		arrival, back = known.arrival, true
	} else if known != nil {
		l.unbook(job.ID, known)
	}
	if known != nil && known.state == booked { // its room is free
		for _, name := range l.lane(known.lane).keys {
			l.hurry(name)
		}
	}
	if heavy := l.tooHeavy(lane, job.Costs); heavy != nil {
		l.forgetJob(job.ID)
		return Answer{Outcome: TooHeavy, Held: heavy}
	}
	return l.place(job, lane, arrival, back)
}

// redeem exchanges a booking for a start. The ledgers decide by real starts, not by promised slots, until the job is
// late by more than its longest wait: then the job takes what is free now, and leaves promised slots to other jobs. A
// booking further ahead than the lookahead allows was made before the clock stepped back. A caller that only plans a
// booked job gets the booking again: only the caller that delivers the job gets its start. A grant that was made a
// booking again may be granted for the same start: it can be settled then.
func (l *Line) redeem(job Job, lane *lane, known *record) (Answer, bool) {
	if known.state == overdue {
		return Answer{}, false
	}
	slot := known.slot
	if slot > l.now+l.settings.Lookahead+steppedBack && !l.hasClaim(job.ID) {
		slot = l.now
	}
	if job.Plan || l.now < slot-job.MaxWait {
		f := l.earliest(lane, job.Costs, l.now, false, Enforce)
		return Answer{Outcome: Booked, Start: known.slot, Held: l.held(f)}, true
	}
	l.unbook(job.ID, known)
	f := l.earliest(lane, job.Costs, max(l.now, slot), false, Enforce)
	latest := max(l.now, min(l.now, slot)+job.MaxWait)
	if f.at > latest || !l.mayStart(lane, job.Costs, f.at) {
		return Answer{}, false
	}
	l.forgetJob(job.ID)
	if known.arrival == f.at {
		l.grantedAgain(Grant{ID: job.ID, Start: f.at})
	}
	return l.grant(job, lane, f.at, known.arrival), true
}

// place gives a job a start, a booking, or an entry in its lane: at the front if the job had one before.
func (l *Line) place(job Job, lane *lane, arrival int64, back bool) Answer {
	f := l.earliest(lane, job.Costs, l.now, true, Enforce)
	if min(f.at, l.ends(lane)) > l.now+job.Latest { // when other limits are in force, it may be sooner
		l.forgetJob(job.ID)
		return Answer{Outcome: TooLate, Start: f.at, Held: l.held(f)}
	}
	other := ""
	if len(lane.jobs) == 0 || back {
		if !back {
			other = l.contended(lane, "")
		}
		if other == "" && f.at <= l.now+l.settings.Lookahead {
			l.shareOf(lane.flow, job.Share)
			if !back {
				l.charge(lane, job.Costs, 1)
			}
			l.forgetJob(job.ID)
			if f.at <= l.now+job.MaxWait && !job.Plan && l.mayStart(lane, job.Costs, f.at) {
				return l.grant(job, lane, f.at, arrival)
			}
			answer := Answer{Outcome: Booked, Start: f.at, Held: l.held(f)}
			l.promise(job.ID, lane, job.Costs, f.at, arrival)
			if job.Plan && f.at > l.now {
				l.timers.set("="+job.ID, l.now) // a pull tells of it who brings jobs
			}
			return answer
		}
	}
	return l.wait(job, lane, f, other, arrival, back)
}

// wait puts a job into its lane, and the lane into a queue if it does not stand in one.
func (l *Line) wait(job Job, lane *lane, f fit, other string, arrival int64, back bool) Answer {
	l.shareOf(lane.flow, job.Share)
	stands := len(lane.jobs) > 0
	own := place{arrival, job.Costs, job.ID}
	if back {
		lane.jobs = slices.Insert(lane.jobs, 0, own)
	} else {
		lane.jobs = append(lane.jobs, own)
	}
	l.lanes[lane.name] = lane
	l.jobs[job.ID] = &record{state: waiting, arrival: arrival, costs: job.Costs, lane: lane.name}
	l.timers.delete("=" + job.ID)
	switch {
	case !stands && other != "":
		l.stand(other, lane, l.now)
	case !stands:
		name, look := l.blocked(lane, job.Costs, f)
		l.stand(name, lane, look)
	}
	answer := l.waitingAnswer(lane, f, int64(len(lane.jobs)))
	if stands && back {
		l.lead(lane, arrival)
	}
	return answer
}

// lead makes a lane due whose first job has changed.
func (l *Line) lead(lane *lane, arrival int64) {
	for _, name := range lane.keys {
		if q := l.queues[name]; q != nil && q.leads(lane, arrival) {
			l.due(name, l.now)
		}
	}
	l.anew(lane)
}

// leaveLane marks a job as gone from its lane: the next pull that reaches its entry passes over it.
func (l *Line) leaveLane(id string, known *record) {
	if lane := l.lanes[known.lane]; lane != nil && lane.jobs[0].id == id {
		l.anew(lane)
	}
}

// anew makes a lane due whose first job has changed: the new first job may be lighter.
func (l *Line) anew(lane *lane) {
	for _, name := range lane.keys {
		if q := l.queues[name]; q != nil && q.has(lane) {
			l.due(name, l.now)
		}
	}
}

// stillWaiting answers a waiting job that asks again. A job older than the first of its lane goes to the front, and so
// does a job whose lane was lost.
func (l *Line) stillWaiting(job Job, lane *lane, arrival int64) Answer {
	f := l.earliest(lane, job.Costs, l.now, true, Enforce)
	if arrival < lane.jobs[0].arrival {
		return l.wait(job, lane, f, "", arrival, true)
	}
	return l.waitingAnswer(lane, f, int64(len(lane.jobs)))
}

func (l *Line) waitingAnswer(lane *lane, f fit, jobs int64) Answer {
	answer := Answer{Outcome: Waiting, Start: min(f.at, l.ends(lane)), Held: l.held(f), Ahead: max(0, jobs-1)}
	for _, name := range lane.keys {
		if q := l.queues[name]; q != nil {
			answer.Flows = max(answer.Flows, int64(q.tags.len()))
		}
	}
	return answer
}

// grant charges a job. The answer names what scope keys in shadow would have done.
func (l *Line) grant(job Job, lane *lane, at, arrival int64) Answer {
	answer := Answer{Outcome: Granted, Start: at, Waited: max(0, at-arrival)}
	if f := l.earliest(lane, job.Costs, at, true, Shadow); f.at > at {
		answer.Shadow, answer.Until = l.held(f), f.at
	}
	l.spend(lane, job.Costs, at, 1)
	for _, name := range lane.keys {
		if l.key(name).mode == Off {
			answer.Uncharged = append(answer.Uncharged, name)
		}
	}
	answer.Lease = l.hold(job, lane, at)
	return answer
}

// promise books a job.
func (l *Line) promise(id string, lane *lane, costs []int64, at, arrival int64) {
	if l.playing {
		l.spend(lane, costs, at, 1)
		l.forgetJob(id)
		return
	}
	l.book(lane, costs, at, 1)
	l.jobs[id] = &record{state: booked, slot: at, costs: costs, arrival: arrival, lane: lane.name}
	l.timers.set("="+id, at+l.settings.Grace)
}

// unbook takes a booking back.
func (l *Line) unbook(id string, known *record) {
	if known.state == booked {
		l.book(l.lane(known.lane), known.costs, known.slot, -1)
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

// hasClaim reports whether a job is booked behind the lookahead.
func (l *Line) hasClaim(id string) bool {
	_, is := l.timers.get("+" + id)
	return is
}

func (l *Line) forgetJob(id string) {
	delete(l.jobs, id)
	l.timers.delete("=" + id)
}

func (l *Line) shareOf(flow string, share int64) {
	if share > 1 {
		l.shares.set(flow, l.now/1_000_000*shareSecond+share)
		if first, _, _ := l.shares.first(); l.shares.len() > mostShares {
			l.shares.delete(first)
		}
	} else {
		l.shares.delete(flow)
	}
}

// tooHeavy returns a limit that the job can never fit. A limit of 0 does not count: it acts like a pause.
func (l *Line) tooHeavy(lane *lane, costs []int64) *Held {
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

func (l *Line) held(f fit) *Held {
	if f.key == nil {
		return nil
	}
	h := &Held{Key: f.key.name, Limit: f.holder, Origin: f.key.origin}
	if h.Limit != nil {
		d := f.key.ledger(h.Limit.Span)
		h.Used, h.Booked = d.uses(l.now + f.key.shift)
	}
	return h
}
