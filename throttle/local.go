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
	buckets map[Hold]*rate.Limiter
	latest  time.Time // that anybody came at
}

func newLocalShare(share float64) *localShare {
	return &localShare{share: share, buckets: make(map[Hold]*rate.Limiter)}
}

// take charges a job to all its limits or to none. Goroutines may come in another order
// than the one in which they looked at the clock: a bucket for which time went back would
// be filled by the same time again.
func (l *localShare) take(holds []Hold, weight int64, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.latest) {
		now = l.latest
	}
	l.latest = now
	var taken []*rate.Reservation
	for _, hold := range holds {
		bucket := l.bucket(hold, now)
		if bucket == nil {
			break
		}
		reservation := bucket.ReserveN(now, int(weight))
		if !reservation.OK() {
			break
		}
		taken = append(taken, reservation)
		if reservation.DelayFrom(now) > 0 {
			break
		}
	}
	if len(taken) == len(holds) && (len(taken) == 0 || taken[len(taken)-1].DelayFrom(now) == 0) {
		return true
	}
	for _, reservation := range taken {
		reservation.CancelAt(now)
	}
	return false
}

func (l *localShare) bucket(hold Hold, now time.Time) *rate.Limiter {
	bucket := l.buckets[hold]
	if bucket != nil {
		return bucket
	}
	if len(l.buckets) >= maxLocalKeys {
		l.forgetFull(now)
	}
	if len(l.buckets) >= maxLocalKeys {
		return nil
	}
	half := float64(hold.Limit.Units) * l.share / 2
	bucket = rate.NewLimiter(rate.Limit(half/hold.Limit.Window.Seconds()), int(half))
	l.buckets[hold] = bucket
	return bucket
}

// forgetFull drops the buckets that a new one would equal.
func (l *localShare) forgetFull(now time.Time) {
	for hold, bucket := range l.buckets {
		if bucket.TokensAt(now) >= float64(bucket.Burst()) {
			delete(l.buckets, hold)
		}
	}
}
