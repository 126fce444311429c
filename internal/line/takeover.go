package line

// takeOver starts a job now with the room and the turn of a late job of its lane that weighs as much or more. It
// reports false if there is none, if starts leave no room, or if now is after the job's deadline. The late job is
// overdue from now on.
func (l *Line) takeOver(job Job, lane *lane, arrival int64) (Answer, bool) {
	id, late := l.firstLate(lane)
	if late == nil || job.Plan || job.Latest < 0 {
		return Answer{}, false
	}
	for i := range lane.keys {
		if job.Costs[i] > late.costs[i] {
			return Answer{}, false
		}
	}
	if l.earliest(lane, job.Costs, l.now, false, Enforce).at > l.now || !l.mayStart(lane, job.Costs, l.now) {
		return Answer{}, false
	}
	l.unbook(id, late)
	l.makeOverdue(id, late.slot+l.settings.Grace)
	late.taken++
	l.chargeDifference(lane, late.costs, job.Costs)
	if known := l.jobs[job.ID]; known != nil {
		if known.lost { // it has paid for another slot
			l.charge(lane, known.costs, -1)
		}
		if known.state == waiting {
			l.leaveLane(job.ID, known)
		}
		l.forgetJob(job.ID)
	}
	return l.grant(job, lane, l.now, arrival), true
}
