package line

import (
	"cmp"
	"slices"
)

func (l *Line) decide(job Job, arrival int64) Answer {
	lane := l.lane(job.Lane)
	known := l.jobs[job.ID]
	l.overdues.delete(job.ID)
	if known != nil {
		job.Bounds = nil // it waits already
	}
	comes := known != nil && known.lane == lane.name && !l.misses(job, known)
	if comes && known.state == waiting && l.neverFits(lane, job.Costs) == nil {
		return l.stillWaiting(job, lane, known.arrival)
	}
	back := comes && known.state != waiting
	if back {
		if answer, done := l.redeem(job, lane, known); done {
			return answer
		}
		arrival = known.arrival
		if known.state == booked { // its room is free
			l.hurryLane(lane)
		}
	} else {
		l.leaveLine(job.ID)
	}
	if heavy := l.neverFits(lane, job.Costs); heavy != nil {
		l.leaveLine(job.ID)
		return Answer{Outcome: NeverFits, Held: heavy}
	}
	return l.assign(job, lane, arrival, back)
}

// misses reports whether a job's last useful start has passed, or is before its slot.
func (l *Line) misses(job Job, known *record) bool {
	return job.Latest < 0 || known.state == booked && known.slot > l.now+job.Latest
}

// redeem exchanges a booking for a start. The ledgers decide by real starts, not by promised slots: the job starts
// within its longest wait, which begins at the slot, or now if the job is early; later than that, it starts at once. If
// it cannot, it is placed anew, around promised slots. A caller that only plans a booked job gets the booking again:
// only the caller that delivers the job gets its start.
func (l *Line) redeem(job Job, lane *lane, known *record) (Answer, bool) {
	if known.state == overdue {
		return Answer{}, false
	}
	slot := known.slot
	if l.isOfLaterClock(slot) && !l.hasClaim(job.ID) {
		slot = l.now
	}
	if job.Plan || l.now < slot-job.MaxWait {
		f := l.earliest(lane, job.Costs, l.now, false, Enforce)
		return Answer{Outcome: Booked, Start: known.slot, Held: l.holdOf(f)}, true
	}
	l.unbook(job.ID, known)
	if !slices.Equal(job.Costs, known.costs) {
		l.chargeDifference(lane, known.costs, job.Costs)
	}
	f := l.earliest(lane, job.Costs, max(l.now, slot), false, Enforce)
	latest := max(l.now, min(l.now, slot)+job.MaxWait)
	if f.at > latest || !l.mayStart(lane, job.Costs, f.at) {
		known.lost = !known.lost // to lose a slot again costs a turn
		l.note(job.ID, &record{state: waiting, arrival: known.arrival, costs: job.Costs, lane: lane.name})
		return Answer{}, false
	}
	l.forgetJob(job.ID)
	return l.grant(job, lane, f.at, known.arrival), true
}

// isOfLaterClock reports whether a slot, not that of a claim, was promised before the clock stepped far back. A slot
// that is less far ahead may be that of a process with a longer lookahead.
func (l *Line) isOfLaterClock(slot int64) bool { return slot > l.now+l.settings.Lookahead+steppedBack }

// assign gives a job a start, a booking, or an entry in its lane: at the front if the job had one before.
func (l *Line) assign(job Job, lane *lane, arrival int64, back bool) Answer {
	f := l.earliest(lane, job.Costs, l.now, true, Enforce)
	other, near := "", false
	if len(lane.jobs) == 0 || back {
		if !back {
			other = l.contended(lane, "")
		}
		near = other == "" && f.at <= l.now+l.settings.Lookahead
	}
	tooLate := min(f.at, l.ends(lane)) > l.now+job.Latest // when other limits are in force, it may be sooner
	starts := near && !tooLate && f.at <= l.now+job.MaxWait && !job.Plan && l.mayStart(lane, job.Costs, f.at)
	if !starts {
		if answer, done := l.takeOver(job, lane, arrival); done {
			return answer
		}
	}
	if tooLate {
		l.leaveLine(job.ID)
		return Answer{Outcome: TooLate, Start: f.at, Held: l.holdOf(f)}
	}
	if full := l.full(lane, job); full != nil && !starts {
		return l.refuse(lane, f, full)
	}
	if !near {
		return l.wait(job, lane, f, other, arrival, back)
	}
	l.setShare(lane.flow, job.Share)
	if !l.hasLost(job.ID) {
		l.charge(lane, job.Costs, 1)
	}
	if starts {
		l.forgetJob(job.ID)
		answer := l.grant(job, lane, f.at, arrival)
		answer.Advance, answer.AdvanceEnds = l.advance(job, lane, f.at)
		return answer
	}
	answer := Answer{Outcome: Booked, Start: f.at, Held: l.holdOf(f)}
	l.promise(job.ID, lane, job.Costs, f.at, arrival)
	if job.Plan && f.at > l.now {
		l.timers.set("="+job.ID, l.now) // the next pull reports it
	}
	return answer
}

// refuse answers a job that would make a line longer than its bound.
func (l *Line) refuse(lane *lane, f fit, full *Full) Answer {
	answer := l.waitingAnswer(lane, f, int64(len(lane.jobs))+1)
	answer.Outcome, answer.Full = LineFull, full
	return answer
}

// wait puts a job into its lane, and the lane into a queue if it does not stand in one. No job there is older than the
// one before it, even if the clock has stepped back.
func (l *Line) wait(job Job, lane *lane, f fit, other string, arrival int64, back bool) Answer {
	l.setShare(lane.flow, job.Share)
	stands := len(lane.jobs) > 0
	rank := len(lane.jobs)
	if back {
		rank = lane.firstSince(arrival)
	} else if stands {
		arrival = max(arrival, lane.jobs[rank-1].arrival)
	}
	lane.jobs = slices.Insert(lane.jobs, rank, element{arrival, job.Costs, job.ID})
	l.lanes[lane.name] = lane
	l.note(job.ID, &record{state: waiting, arrival: arrival, costs: job.Costs, lane: lane.name})
	l.timers.delete("=" + job.ID)
	switch {
	case !stands && other != "":
		l.stand(other, lane, l.now)
	case !stands:
		name, look := l.blocked(lane, job.Costs, f)
		l.stand(name, lane, look)
	}
	answer := l.waitingAnswer(lane, f, int64(len(lane.jobs)))
	if stands && rank == 0 {
		l.lookAnew(lane)
	}
	return answer
}

// firstSince returns the rank of the first job that is not older than an instant.
func (l *lane) firstSince(arrival int64) int {
	rank, _ := slices.BinarySearchFunc(l.jobs, arrival, func(e element, t int64) int { return cmp.Compare(e.arrival, t) })
	return rank
}

// stillWaiting answers a waiting job that asks again. If it is older than the first job of its lane, the lane was lost
// and other jobs have come since: the job goes to the front.
func (l *Line) stillWaiting(job Job, lane *lane, arrival int64) Answer {
	if answer, done := l.takeOver(job, lane, arrival); done {
		return answer
	}
	f := l.earliest(lane, job.Costs, l.now, true, Enforce)
	if arrival < lane.jobs[0].arrival {
		return l.wait(job, lane, f, "", arrival, true)
	}
	return l.waitingAnswer(lane, f, int64(len(lane.jobs)))
}

func (l *Line) waitingAnswer(lane *lane, f fit, jobs int64) Answer {
	answer := Answer{Outcome: Waiting, Start: min(f.at, l.ends(lane)), Held: l.holdOf(f), Ahead: max(0, jobs-1)}
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
		answer.Shadow, answer.Until = l.holdOf(f), f.at
	}
	l.spend(lane, job.Costs, at, 1)
	for _, name := range lane.keys {
		if l.key(name).mode == Off {
			answer.Uncharged = append(answer.Uncharged, name)
		}
	}
	answer.Lease = l.occupy(job, lane, at)
	return answer
}

// startsFor is the time that a start charges in advance, where flows are charged by time.
const startsFor = 1_000_000

// occupy notes the places that a granted job occupies. It returns the shortest lease, 0 if the job occupies none.
func (l *Line) occupy(job Job, lane *lane, at int64) int64 {
	r := run{of: lane.class, paid: at + startsFor}
	lease := int64(0)
	for i, name := range lane.keys {
		k := l.key(name)
		for _, d := range k.ledgers {
			if k.mode == Off || !d.Kind.Renewed() || job.Costs[i] == 0 {
				continue
			}
			r.places = append(r.places, place{name, d.Span, d.subWindow(k.time(at)), job.Costs[i]})
			if lease == 0 || d.Length < lease {
				lease = d.Length
			}
		}
	}
	if lease > 0 {
		g := Grant{ID: job.ID, Start: at}
		l.runs[g.mark()] = &r
	}
	return lease
}

func (l *Line) forgetJob(id string) {
	delete(l.jobs, id)
	l.timers.delete("=" + id)
}

func (l *Line) holdOf(f fit) *Held {
	if f.key == nil {
		return nil
	}
	h := &Held{Key: f.key.name, Limit: f.key.quota(f.holder, l.now), Origin: f.key.origin}
	if h.Limit != nil && !h.Limit.Kind.opens() {
		d := f.key.ledger(h.Limit.Span)
		h.Used, h.Booked = d.uses(l.now + f.key.shift)
	}
	return h
}
