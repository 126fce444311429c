package line

// forgetAfter is how long a job that did not come to its slot keeps its position.
const forgetAfter = 600_000_000

// toldAgain is the shortest time between two reports of an overdue job. It grows with how long the job is overdue.
const toldAgain = 1_000_000

// mostDropped bounds the work of one pull where a backlog was deleted.
const mostDropped = 2000

// Told is a job that a pull books, finds overdue, or throws out.
type Told struct {
	ID   string
	Slot int64
	Lane string
}

// Pulled is what a pull did.
type Pulled struct {
	Booked, Overdue []Told
	Next            int64
}

// puller is what one pull may still do, and what it returns.
type puller struct {
	*Line
	bookings, looks int  // how many are left
	drops           int  // how many jobs that have left it may still take out of their lanes
	checks          int  // how often it has checked whether the script has taken its steps
	delivers        bool // whether the caller delivers jobs
	told            Pulled
}

// reportOverdue reports a job that should ask again.
func (p *puller) reportOverdue(told Told) {
	again := p.now
	if p.delivers {
		p.told.Overdue = append(p.told.Overdue, told)
		again += toldAgain
	}
	p.makeOverdue(told.ID, again)
	p.jobs[told.ID].taken = 0
}

// reportAgain reports a job again that has still not come.
func (p *puller) reportAgain(id string) {
	known := p.jobs[id]
	forgotten, is := p.timers.get("=" + id)
	if known == nil || known.state != overdue || !is {
		p.overdues.delete(id)
		return
	}
	p.told.Overdue = append(p.told.Overdue, Told{id, known.arrival, known.lane})
	p.overdues.set(id, p.now+max(toldAgain, p.now+forgetAfter-forgotten))
}

// lookAtBooking ends a booking whose grace is over, or that was made before the clock stepped back. The job keeps its
// position for a while. Else lookAtBooking notes that the job is late or, if its timer was set for an instant before
// its slot, reports a plan.
func (p *puller) lookAtBooking(id string) {
	known := p.jobs[id]
	if known == nil || known.state != booked {
		delete(p.jobs, id)
		p.timers.delete("=" + id)
		p.overdues.delete(id)
		return
	}
	ends := known.slot + p.settings.Grace
	if p.now < ends && !p.isOfLaterClock(known.slot) {
		if timer, _ := p.timers.get("=" + id); timer > known.slot {
			if p.takenOver(id) < mostTaken {
				p.noteLate(id, known)
			}
			p.timers.set("="+id, ends)
			return
		}
		p.told.Booked = append(p.told.Booked, Told{id, known.slot, known.lane})
		p.bookings--
		p.timers.set("="+id, p.lateFrom(known.slot))
		return
	}
	p.unbook(id, known)
	p.reportOverdue(Told{id, known.slot, known.lane})
	p.hurryLane(p.lane(known.lane))
}
