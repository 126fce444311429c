package line

import "math"

const (
	// pullEvery is how often a line is pulled at most as it is played.
	pullEvery = 50_000
	// mostIdle is how many pulls in a row may book no job until the rest is taken never to
	// start: a lane under a limit too low for its job becomes due for ever.
	mostIdle = 20_000
)

// Foresee reserves jobs now, one after the other, and tells what becomes of each: the
// start of a job that is granted or booked is certain then.
func (l *Line) Foresee(now int64, settings Settings, jobs []Job) []Answer {
	l.playing = true
	return l.Reserve(now, settings, jobs)
}

// Play lets the line go on in virtual time, with nobody else coming, until these jobs have
// started, and tells when they do: each comes to its slot. Those that never start, and
// those that are not in line, are not there.
func (l *Line) Play(now int64, settings Settings, ids []string) map[string]int64 {
	l.playing = true
	l.begin(now, settings)
	for id, known := range l.jobs {
		if known.state == booked {
			l.startBooked(id, known)
		}
	}
	l.end()
	starts, wanted := make(map[string]int64, len(ids)), make(map[string]bool, len(ids))
	for _, id := range ids {
		if l.Waits(id) {
			wanted[id] = true
		}
	}
	for idle := 0; len(starts) < len(wanted) && idle < mostIdle; idle++ {
		next := l.Next()
		if next == 0 || next >= Never {
			break
		}
		now = max(now, next)
		for _, told := range l.Pull(now, settings, math.MaxInt, math.MaxInt).Booked {
			idle = 0
			if wanted[told.ID] {
				starts[told.ID] = told.Slot
			}
		}
		now += pullEvery
	}
	return starts
}

// Waits tells whether a job is in line.
func (l *Line) Waits(id string) bool {
	known := l.jobs[id]
	return known != nil && known.state == waiting
}

// startBooked has a booked job start at its slot. What it claims is kept.
func (l *Line) startBooked(id string, known *record) {
	lane := l.lane(known.lane)
	l.book(lane, known.costs, known.slot, -1)
	l.spend(lane, known.costs, max(known.slot, l.now), 1)
	l.forgetJob(id)
	l.timers.delete("+" + id)
}
