package line

import "slices"

// Length is how long a line is, or may be.
type Length struct{ Jobs, Units int64 }

// Full is a scope key whose line has no room for a job.
type Full struct {
	Key    string
	Length Length
}

// note gives a job a record. A first record is counted if the process bounds any line; a later one as the first was.
// That the job has lost a slot is forgotten when it is overdue.
func (l *Line) note(id string, r *record) {
	r.counted = l.settings.Counts
	if before := l.jobs[id]; before != nil {
		r.counted, r.taken, r.lost = before.counted, before.taken, before.lost && r.state != overdue
	}
	l.jobs[id] = r
}

// hasLost reports whether a job has lost a slot for which its flow was charged.
func (l *Line) hasLost(id string) bool { return l.jobs[id] != nil && l.jobs[id].lost }

// takenOver returns how many of a job's slots in a row were taken over.
func (l *Line) takenOver(id string) int { return l.jobs[id].taken }

// Length returns how long the line of a scope key is: the jobs that wait, are booked or overdue, and are counted.
func (l *Line) Length(name string) (length Length) {
	for _, r := range l.jobs {
		if at := slices.Index(l.lane(r.lane).keys, name); r.counted && at >= 0 {
			length.Jobs++
			length.Units = min(Never, length.Units+r.costs[at])
		}
	}
	return length
}

// full returns the first scope key whose line has no room for a job; nil if all have room.
func (l *Line) full(lane *lane, job Job) *Full {
	for i, bound := range job.Bounds {
		name := lane.keys[i]
		length := l.Length(name)
		tooLong := bound.Jobs > 0 && length.Jobs+1 > bound.Jobs || bound.Units > 0 && length.Units+job.Costs[i] > bound.Units
		if tooLong && l.key(name).mode == Enforce {
			return &Full{Key: name, Length: length}
		}
	}
	return nil
}
