package throttle

import (
	"maps"
	"time"
)

const (
	// mostKept bounds how many grants are kept. One that is not kept stays charged.
	mostKept = 10_000
	// keptUsable is how long after its start a grant may still be used: what runs
	// later would run in a window that does not count it.
	keptUsable = time.Second
)

// keptGrants are grants, by their nonces, whose callers had gone when the answer came.
type keptGrants map[string]keptGrant

type keptGrant struct {
	reservation Reservation
	sent        time.Time // it was decided then or later
	came        time.Time // it was decided before
	until       time.Time // it is kept
}

// keptAge tells what a kept grant is good for.
type keptAge int

const (
	keptNone  keptAge = iota // there is none
	keptFresh                // it may be used
	keptLate                 // it is to be given back
)

func (k keptGrants) put(r Reservation, sent, came time.Time, grace time.Duration) {
	if len(k) < mostKept {
		k[r.Job.Nonce] = keptGrant{reservation: r, sent: sent, came: came, until: came.Add(r.Delay() + grace)}
	}
}

// isOf tells that the grant under an order's nonce is one of the same job, for as much.
func (k keptGrants) isOf(o *order) bool {
	kept, is := k[o.job.Nonce]
	r := kept.reservation
	return is && r.Job.ID == o.job.ID && r.lane == o.lane && r.Job.Weight == o.job.Weight &&
		maps.Equal(r.Job.Costs, o.job.Costs)
}

// take takes a grant out. The call may have been done as early as it was first sent, or
// only just before its answer came: how old the grant is goes by the one, how much of
// its delay is left by the other.
func (k keptGrants) take(nonce string, now time.Time) (Reservation, keptAge) {
	kept, is := k[nonce]
	delete(k, nonce)
	r := kept.reservation
	switch {
	case !is:
		return r, keptNone
	case now.Sub(kept.sent) > r.Delay()+keptUsable:
		return r, keptLate
	}
	r.Now, r.Replayed = r.Now.Add(now.Sub(kept.came)), true
	return r, keptFresh
}

// forget drops and returns what nobody has asked for in time.
func (k keptGrants) forget(now time.Time) (forgotten []Reservation) {
	for nonce, kept := range k {
		if now.After(kept.until) {
			forgotten = append(forgotten, kept.reservation)
			delete(k, nonce)
		}
	}
	return forgotten
}
