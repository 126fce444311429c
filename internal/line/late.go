package line

// lateAfter is how long after its slot a booked job is late. As a rule a job comes before its slot.
const lateAfter = 100_000

// mostTaken is how many of a job's slots in a row are taken over. The next one is kept, so that a job that always comes
// late starts.
const mostTaken = 3

// lateFrom returns when a pull notes a booked job as late, or as overdue if its grace is over first.
func (l *Line) lateFrom(slot int64) int64 { return slot + min(lateAfter, l.settings.Grace) }

// noteLate notes a booked job as late, by its slot.
func (l *Line) noteLate(id string, known *record) {
	if l.late[known.lane] == nil {
		l.late[known.lane] = new(ranked[int64])
	}
	l.late[known.lane].set(id, known.slot)
}

func (l *Line) forgetLate(id string, known *record) {
	late := l.late[known.lane]
	if late == nil {
		return
	}
	late.delete(id)
	if late.len() == 0 {
		delete(l.late, known.lane)
	}
}

// firstLate returns the late job of a lane with the earliest slot; nil if none is late.
func (l *Line) firstLate(lane *lane) (id string, known *record) {
	late := l.late[lane.name]
	if late == nil {
		return "", nil
	}
	id, slot, _ := late.first()
	if l.lateFrom(slot) > l.now {
		return "", nil
	}
	return id, l.jobs[id]
}

// makeOverdue ends the booking of a job that has not come. The job keeps its position for a while, and its flow pays
// anew for its next booking. again: when a pull reports it, again or for the first time.
func (l *Line) makeOverdue(id string, again int64) {
	known := l.jobs[id]
	known.state, known.lost = overdue, false
	l.timers.set("="+id, l.now+forgetAfter)
	l.overdues.set(id, again)
}
