package throttle

import (
	"maps"
	"time"
)

const (
	// mostKept bounds how many grants are kept. A grant that is not kept stays charged.
	mostKept = 10_000
	// keptUsable is how long after its start a grant may still be used: a job that began later
	// than that would run in a window that does not count it.
	keptUsable = time.Second
	// keptOfLease bounds the age of a kept grant under a running limit: it can be used for 1/keptOfLease of its lease.
	// Redis counts the lease from the decision, the caller from the reply. The worker ends a handler by as much before
	// its lease is over.
	keptOfLease = 10
)

// keptGrants are grants whose callers had stopped waiting when the answer came, by nonce.
type keptGrants map[string]keptGrant

type keptGrant struct {
	reservation Reservation
	order       *order
	sent        time.Time // the first time that the call was sent: the earliest it can have been decided
	came        time.Time // when the reply arrived: the latest it can have been decided
	until       time.Time // when the grant is given back
}

// keptAge is whether a kept grant can still be used.
type keptAge int

const (
	keptNone  keptAge = iota // no grant is kept
	keptFresh                // the grant can be used
	keptLate                 // the grant must be given back
)

func (k keptGrants) put(o *order, r Reservation, sent, came time.Time, grace time.Duration) {
	if len(k) < mostKept {
		k[r.Job.Nonce] = keptGrant{reservation: r, order: o, sent: sent, came: came, until: came.Add(r.Delay() + grace)}
	}
}

// isOf reports whether the grant kept under the order's nonce is for the same job and the same costs. A plan takes no
// grant.
func (k keptGrants) isOf(o *order) bool {
	kept, is := k[o.job.Nonce]
	r := kept.reservation
	return is && !o.job.Plan && r.Job.ID == o.job.ID && r.Lane == o.lane && r.Job.Weight == o.job.Weight &&
		maps.Equal(r.Job.Costs, o.job.Costs)
}

// take removes a grant and returns it. The call was decided at some time between the first
// sending and the reply: the age of the grant is measured from the sending, and the rest of
// its delay from the reply, so that both err on the safe side.
func (k keptGrants) take(nonce string, now time.Time) (Reservation, keptAge) {
	kept, is := k[nonce]
	delete(k, nonce)
	r := kept.reservation
	switch {
	case !is:
		return r, keptNone
	case now.Sub(kept.sent) > r.usable():
		return r, keptLate
	}
	r.Now, r.Replayed = r.Now.Add(now.Sub(kept.came)), true
	return r, keptFresh
}

// usable returns how long after its call was sent a kept grant can be used.
func (r Reservation) usable() time.Duration {
	if r.Lease > 0 {
		return min(keptUsable, r.Lease/keptOfLease)
	}
	return r.Delay() + keptUsable
}

// forget removes the grants that no caller has asked for in time, and returns those that must be given back. A grant
// whose job a fallback has started is not among these: it stays charged.
func (k keptGrants) forget(now time.Time) (unused []Reservation) {
	for nonce, kept := range k {
		if !now.After(kept.until) {
			continue
		}
		if !kept.order.unchecked {
			unused = append(unused, kept.reservation)
		}
		delete(k, nonce)
	}
	return unused
}
