package throttle

import "time"

// blockedFor is the wait that is assumed under a limit of 0, or of less than a job's weight.
const blockedFor = time.Hour

// latestAsking is when a job in line asks again at the latest. Its line's keys live on
// from then for as long as lineKept says, which is three times as long at least.
const latestAsking = 10 * 24 * time.Hour

// estimate guesses when a job in line starts. The script's guess is for the first of
// its lane; the jobs before it take their time in the window that keeps it back, and
// where several flows stand under that scope key each has only its part. Others may
// come, so Late allows for four times as many.
func (t *setup) estimate(r *Reservation, o *order, flows int64) {
	wait := min(max(0, r.Start.Sub(r.Now)), maxWindow)
	if r.Start.IsZero() {
		wait = blockedFor // it never would
	}
	defer t.means.waits(o)
	sure := time.Duration(0) // what others cannot make longer
	switch {
	case r.Hold == nil: // it would have room, were it not for those before it
		wait = max(wait, t.throughAll(r, o))
	case r.Hold.Paused:
		sure = wait
	case r.Hold.Limit.Units == 0:
		sure, wait = blockedFor, blockedFor // until the limit is changed
	case r.Hold.Limit.Running:
		wait = t.through(r, o, r.Hold.Scope, r.Hold.Limit, flows) // the script knows when leases end
	case r.Hold.Limit.Units > 0:
		wait = max(wait, t.through(r, o, r.Hold.Scope, r.Hold.Limit, flows))
	}
	r.Start = r.Now.Add(wait)
	r.Late = r.Now.Add(min(sure+4*(wait-sure), latestAsking) + 2*t.options.Lookahead + 10*time.Second)
	r.Hold.until(r.Start)
}

// through is how long a limit takes to let through the job and those before it, which are
// as heavy as jobs in line are on the average. It errs on the early side where the upstream
// serves less than the limit.
func (t *setup) through(r *Reservation, o *order, scope string, limit Limit, flows int64) time.Duration {
	units := float64(o.units(scope)) + float64(r.Ahead)*t.means.weight(o, scope)
	if scope != t.fair {
		units *= float64(max(1, flows))
	}
	windows := units / float64(limit.Units)
	return time.Duration(min(windows*float64(t.counts(scope, limit)), float64(maxWindow))).Truncate(time.Microsecond)
}

// throughAll is how long the limits of the configuration take for that if nobody else waits and
// nothing counts under them yet. It errs on the early side where they are used.
func (t *setup) throughAll(r *Reservation, o *order) (longest time.Duration) {
	if r.Ahead == 0 {
		return 0
	}
	for i := range o.charges {
		scope := o.charges[i].scope
		for _, limit := range scope.Limits {
			if limit.Units > 0 {
				longest = max(longest, t.through(r, o, scope.Name, limit, 1)-t.counts(scope.Name, limit))
			}
		}
	}
	return longest
}
