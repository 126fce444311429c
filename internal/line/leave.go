package line

// Leave removes jobs that will not come, and takes their bookings back. It reports for each job whether it waited or
// was booked.
func (l *Line) Leave(now int64, settings Settings, ids []string) []bool {
	l.begin(now, settings)
	left := make([]bool, len(ids))
	for i, id := range ids {
		left[i] = l.jobs[id] != nil && l.jobs[id].state != overdue
		l.leaveLine(id)
	}
	l.end()
	return left
}
