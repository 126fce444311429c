package line

import (
	"context"
	"math"
)

const (
	// pullEvery is how often a line is pulled at most as it is played.
	pullEvery = 50_000
	// mostIdle is how many pulls in a row may book no job until the rest is taken never to start: a lane becomes due
	// for ever under a limit too low for its job, or under hours and quotas that are never open together.
	mostIdle = 2000
)

// Foresee reserves jobs now, one after the other, and returns what becomes of each: a granted or booked job has a
// certain start.
func (l *Line) Foresee(now int64, settings Settings, jobs []Job) []Answer {
	l.playing = true
	return l.Reserve(now, settings, jobs)
}

// Play lets the line go on in virtual time, without new jobs, until these jobs have started or the context ends, and
// returns their starts: each job comes to its slot. Jobs that never start, and jobs that do not wait, are missing from
// the result.
func (l *Line) Play(ctx context.Context, now int64, settings Settings, ids []string) map[string]int64 {
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
	for idle := 0; len(starts) < len(wanted) && idle < mostIdle && ctx.Err() == nil; idle++ {
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

// Waits reports whether a job waits.
func (l *Line) Waits(id string) bool {
	known := l.jobs[id]
	return known != nil && known.state == waiting
}

// startBooked starts a booked job at its slot. Its claim is kept.
func (l *Line) startBooked(id string, known *record) {
	lane := l.lane(known.lane)
	l.book(lane, known.costs, known.slot, -1)
	l.spend(lane, known.costs, max(known.slot, l.now), 1)
	l.forgetJob(id)
	l.timers.delete("+" + id)
}
