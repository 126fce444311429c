package throttle

import "time"

// blockedFor is the wait that is assumed under a limit of 0, or of less than a job's weight, that does not end by
// itself.
const blockedFor = time.Hour

// latestAsking bounds how long a waiting job is estimated to wait until it asks again; estimate adds two lookaheads and
// some seconds. The keys of the line live for lineKept after the last write, at least three times as long.
const latestAsking = 10 * 24 * time.Hour

// estimate guesses when a waiting job starts. The script's guess is for the first job of the lane. The jobs before the
// waiting job take time under the limit that holds the lane back; if several flows stand under that scope key, each has
// only its share of the limit. More jobs may come, so AskAgain allows for four times as many.
func (t *setup) estimate(r *Reservation, o *order, flows int64) {
	wait := min(max(0, r.Start.Sub(r.Now)), maxWindow)
	if r.Start.IsZero() {
		wait = blockedFor // the script says never
	}
	defer t.means.waits(o)
	sure := time.Duration(0)  // the part of the wait that other jobs cannot make longer
	lasts := time.Duration(0) // what this job and the jobs before it take after that, while hours are open
	switch {
	case r.Hold == nil: // the job waits only for the jobs before it
		lasts = t.throughAll(r, o, flows)
	case r.Hold.Paused, r.Hold.Limit.isHours(), r.Hold.Limit.Units == 0:
		sure, lasts = wait, t.throughAll(r, o, flows) // the jobs before this one begin to start then
	case r.Hold.Limit.Running:
		wait, lasts = 0, t.through(r, o, r.Hold.Scope, r.Hold.Limit, flows) // the script knows when leases end
	case r.Hold.Limit.isQuota(): // the script knows the period in which there is room next
		wait = t.throughPeriods(r, o, r.Hold.Scope, r.Hold.Limit, flows, wait)
	case r.Hold.Limit.Units > 0:
		lasts = t.through(r, o, r.Hold.Scope, r.Hold.Limit, flows)
	}
	r.Start = r.Now.Add(max(wait, sure+lasts+o.closedFor(r.Now.Add(sure), lasts)))
	late := max(sure+4*(wait-sure), sure+4*lasts+o.closedFor(r.Now.Add(sure), 4*lasts))
	r.AskAgain = r.Now.Add(min(late, latestAsking) + 2*t.options.Lookahead + 10*time.Second)
	r.Hold.until(r.Start)
}

// closedFor is for how long the job's configured hours are closed, from an instant on, until they have been open for
// some time. If several scopes have hours, those that are closed longest count.
func (o *order) closedFor(from time.Time, open time.Duration) (longest time.Duration) {
	for i := range o.charges {
		for _, limit := range o.charges[i].scope.Limits {
			if limit.isHours() && open > 0 {
				longest = max(longest, limit.ClosedFor(from, open))
			}
		}
	}
	return longest
}

// through is how long a limit takes to let the job and those before it through. The jobs before it
// are assumed to have the mean weight of waiting jobs. The estimate errs on the early side while the served
// share is below 1.
func (t *setup) through(r *Reservation, o *order, scope string, limit Limit, flows int64) time.Duration {
	each, _ := t.counts(scope, limit)
	wait := t.standing(r, o, scope, flows) / float64(limit.Units) * float64(each)
	return time.Duration(min(wait, float64(maxWindow))).Truncate(time.Microsecond)
}

// standing is how many units the job and those before it take of a limit. Under a limit that flows share, each flow
// that stands there is assumed to take as many.
func (t *setup) standing(r *Reservation, o *order, scope string, flows int64) float64 {
	units := float64(o.units(scope)) + float64(r.Ahead)*t.means.weight(o, scope)
	if scope != t.fair {
		units *= float64(max(1, flows))
	}
	return units
}

// throughPeriods is through for a quota under which the first of these jobs starts after the wait first. The quota lets
// its units through in the period of that start, and again when each later period begins. If the configuration has a
// ramp in the place of the quota, the units are those of its steps.
func (t *setup) throughPeriods(r *Reservation, o *order, scope string, limit Limit, flows int64,
	first time.Duration) time.Duration {
	for _, own := range t.scopeOf(scope).Limits {
		if own.isRamp() && own.Label() == limit.Label() {
			limit = own
		}
	}
	at := limit.Through(t.standing(r, o, scope, flows), r.Now.Add(first))
	return max(first, min(at.Sub(r.Now), maxWindow).Truncate(time.Microsecond))
}

// throughAll is how long the configured limits take to let the job and those before it through, if these limits are
// unused. The estimate errs on the early side if they are in use.
func (t *setup) throughAll(r *Reservation, o *order, flows int64) (longest time.Duration) {
	if r.Ahead == 0 && flows <= 1 {
		return 0
	}
	for i := range o.charges {
		scope := o.charges[i].scope
		for _, limit := range scope.Limits {
			switch {
			case limit.Units <= 0:
			case limit.isQuota():
				longest = max(longest, t.throughPeriods(r, o, scope.Name, limit, flows, 0))
			default:
				own, _ := t.counts(scope.Name, limit)
				longest = max(longest, t.through(r, o, scope.Name, limit, flows)-own)
			}
		}
	}
	return longest
}
