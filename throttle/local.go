package throttle

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxLocalKeys bounds the memory of localShare. Beyond it no new scope key is
// granted anything until buckets are full again and can be forgotten.
const maxLocalKeys = 10_000

// localShare grants jobs out of this process' share of each limit while Redis is
// away. A token bucket of burst b and rate r lets at most b + r x Window pass in
// any window; with half the share for each, that is the share: it errs on the
// low side, and a weight above half the share is not granted.
type localShare struct {
	share   float64
	mu      sync.Mutex
	buckets map[localLimit]*rate.Limiter
	latest  time.Time // that anybody came at
}

// localLimit is a limit of one scope key.
type localLimit struct {
	name  string
	limit Limit
}

// localCharge is what a job takes of it.
type localCharge struct {
	localLimit
	units int64
}

func newLocalShare(share float64) *localShare {
	return &localShare{share: share, buckets: make(map[localLimit]*rate.Limiter)}
}

// localCharges are those of a job under the limits of the configuration: what is set at
// run time only Redis knows.
func (t *Throttle) localCharges(o *order) []localCharge {
	var charges []localCharge
	for i := range o.charges {
		c := &o.charges[i]
		if max(c.scope.Mode, t.options.Mode) != Enforce {
			continue
		}
		for _, limit := range c.scope.Limits {
			if limit.Units != Unlimited {
				charges = append(charges, localCharge{localLimit{c.name, limit}, c.units})
			}
		}
	}
	return charges
}

// take charges a job to all its limits or to none. Goroutines may come in another order
// than the one in which they looked at the clock: a bucket for which time went back would
// be filled by the same time again.
func (l *localShare) take(charges []localCharge, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.latest) {
		now = l.latest
	}
	l.latest = now
	taken := make([]*rate.Reservation, 0, len(charges))
	for _, c := range charges {
		bucket := l.bucket(c.localLimit, now)
		if bucket == nil {
			break
		}
		reservation := bucket.ReserveN(now, int(c.units))
		if reservation.DelayFrom(now) > 0 { // for ever, if it can never be
			reservation.CancelAt(now)
			break
		}
		taken = append(taken, reservation)
	}
	if len(taken) == len(charges) {
		return true
	}
	for _, reservation := range taken {
		reservation.CancelAt(now)
	}
	return false
}

func (l *localShare) bucket(of localLimit, now time.Time) *rate.Limiter {
	bucket := l.buckets[of]
	if bucket != nil {
		return bucket
	}
	if len(l.buckets) >= maxLocalKeys {
		l.forgetFull(now)
	}
	if len(l.buckets) >= maxLocalKeys {
		return nil
	}
	half := float64(of.limit.Units) * l.share / 2
	bucket = rate.NewLimiter(rate.Limit(half/of.limit.Window.Seconds()), int(half))
	l.buckets[of] = bucket
	return bucket
}

// forgetFull drops the buckets that a new one would equal.
func (l *localShare) forgetFull(now time.Time) {
	for of, bucket := range l.buckets {
		if bucket.TokensAt(now) >= float64(bucket.Burst()) {
			delete(l.buckets, of)
		}
	}
}
