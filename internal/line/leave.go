package line

// Leave removes jobs that will not come, and takes their bookings back. It reports for each job whether it waited or
// was booked.
func (l *Line) Leave(now int64, settings Settings, ids []string) []bool {
	l.begin(now, settings)
	left := make([]bool, len(ids))
	for i, id := range ids {
		known := l.jobs[id]
		if known == nil {
			continue
		}
		left[i] = known.state != overdue
		if known.state == waiting {
			l.leaveLane(id, known)
		}
		l.unbook(id, known)
		if known.state == booked {
			lane := l.lane(known.lane)
			l.charge(lane, known.costs, -1)
			for _, name := range lane.keys {
				l.hurry(name)
			}
		}
		delete(l.jobs, id)
	}
	l.end()
	return left
}
