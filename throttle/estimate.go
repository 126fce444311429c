package throttle

import "time"

// blockedFor is what is told of the wait under a limit of 0.
const blockedFor = time.Hour

// estimate says when a job in line may start, and what holds it, from a reply of
// reserve.lua. Of each limit it asks how long its window takes to let through what
// is before the job: its lane's units, for the fair key's own limits those of all
// its lanes, and for a limit that all share that part of it which the fair key's
// share leaves to others as well, as if each of them had a share of 1. Others may
// come, so Late allows for four times as many.
func (t *Throttle) estimate(c *call, reply reply, r *Reservation) {
	ahead, line, rivals := reply.integer(10), reply.integer(11), reply.integer(12)
	share := t.shares.of(c.lane.fairKey())
	wait := r.Start.Sub(r.Now)
	for i, hold := range c.holds {
		spent, booked := reply.integer(13+2*i), reply.integer(14+2*i)
		if c.free[i] || hold.Limit.Units == 0 {
			continue
		}
		before := float64(ahead)
		divided := false
		switch t.class(hold.Scope) {
		case classFair:
			before = float64(line)
		case classShared:
			divided = t.fair != "" && rivals > 1
			before = float64(line) * others(share, rivals)
		}
		over := float64(spent+booked) + before + float64(r.Job.Weight) - float64(hold.Limit.Units)
		through := time.Duration(min(over/float64(hold.Limit.Units)*float64(hold.Limit.Window), float64(MaxWindow))).Truncate(time.Microsecond)
		if through > wait {
			wait = through
			hold.Used, hold.Booked, hold.Share = spent, booked, divided
			r.Hold = &hold
		}
	}
	r.Ahead = ahead
	sure := time.Duration(0) // what others cannot make longer
	if r.Hold != nil && r.Hold.Paused {
		sure = r.Hold.Until.Sub(r.Now)
	}
	if r.Hold != nil && !r.Hold.Paused && r.Hold.Limit.Units == 0 {
		// Until the limit is changed; then Pull or Sweep finds the job.
		sure, wait = blockedFor, blockedFor
	}
	r.Start = r.Now.Add(wait)
	r.Late = r.Now.Add(min(sure+4*(wait-sure), MaxWindow) + 2*t.options.Lookahead + 10*time.Second)
	if r.Hold != nil {
		r.Hold.Until = r.Start
	}
}

// others is how many units start of all fair keys for each of one with this share,
// as if each other one that is ready had a share of 1.
func others(share, rivals int64) float64 {
	return float64(share+max(1, rivals)-1) / float64(share)
}
