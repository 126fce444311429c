package throttle

import (
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxLocalKeys bounds the memory of localShare: how many windows of scope keys have a bucket, and how many quotas of
// scope keys have a count. Beyond it no job of another window or quota is granted, until a bucket is full again, or a
// period over, and can be forgotten.
const maxLocalKeys = 10_000

// localShare grants jobs out of this process' share of each limit while Redis is away. A token bucket
// of burst b and rate r lets at most b + r x Window pass in any window; with half the share for each,
// that is the share. It errs on the low side: a weight above half the share is not granted. Of a
// running limit the share is what may run in this process. Of a quota it is what may start here in a period, by this
// process' clock. Outside of hours, by that clock, nothing is granted.
type localShare struct {
	share   float64
	mu      sync.Mutex
	buckets map[localLimit]*rate.Limiter
	running map[localLimit]int64 // units that run here
	periods map[localLimit]localPeriod
	runs    map[localGrant]*localRun
	latest  time.Time // the latest time of a call
}

// localGrant names a grant of this process.
type localGrant struct {
	job   string
	start int64 // ns
}

// localRun is what a job that runs has taken of running limits.
type localRun struct {
	charges []localCharge
	lease   time.Duration
	over    time.Time // when its lease is over
}

// localPeriod is what has started here in a period of a quota.
type localPeriod struct{ period, units int64 }

// localLimit is a limit of one scope key.
type localLimit struct {
	name  string
	limit Limit
}

// localCharge is what a job takes of a limit of one scope key.
type localCharge struct {
	localLimit
	units int64
}

func newLocalShare(share float64) *localShare {
	return &localShare{
		share: share, buckets: make(map[localLimit]*rate.Limiter), running: make(map[localLimit]int64),
		periods: make(map[localLimit]localPeriod), runs: make(map[localGrant]*localRun),
	}
}

// localCharges are what a job takes of the configured limits: only Redis knows the limits that are
// set at run time.
func (t *Throttle) localCharges(o *order) []localCharge {
	var charges []localCharge
	for i := range o.charges {
		c := &o.charges[i]
		if max(c.scope.Mode, t.options.Mode) != Enforce {
			continue
		}
		for _, limit := range c.scope.Limits {
			if limit.Units != Unlimited || limit.isHours() {
				if limit.Window > 0 {
					limit.Window += c.scope.Margin
				}
				charges = append(charges, localCharge{localLimit{c.name, limit}, c.units})
			}
		}
	}
	return charges
}

// take charges a job to all its limits or to none, and returns the lease of the places that it
// occupies. Goroutines may call it in another order than that in which they read the clock: a bucket
// for which time went back would be filled by the same time again.
func (l *localShare) take(grant localGrant, charges []localCharge, now time.Time) (lease time.Duration, taken bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.latest) {
		now = l.latest
	}
	l.latest = now
	run, fits := l.room(charges, now)
	if !fits || isClosed(charges, now) || !l.quotasFit(charges, now) || !l.start(charges, now) {
		return 0, false
	}
	l.spendQuotas(charges, now)
	if len(run.charges) == 0 {
		return 0, true
	}
	for _, c := range run.charges {
		l.running[c.localLimit] += c.units
	}
	l.runs[grant] = run
	return run.lease, true
}

// isClosed reports whether the hours of any of the limits are closed.
func isClosed(charges []localCharge, now time.Time) bool {
	return slices.ContainsFunc(charges, func(c localCharge) bool {
		return c.limit.isHours() && c.limit.opens(now).After(now)
	})
}

// room returns the places that a job would occupy, and whether they are free.
func (l *localShare) room(charges []localCharge, now time.Time) (*localRun, bool) {
	for grant, run := range l.runs {
		if !run.over.After(now) {
			l.end(grant)
		}
	}
	run := &localRun{}
	for _, c := range charges {
		switch {
		case !c.limit.Running || c.units == 0:
			continue
		case float64(l.running[c.localLimit]+c.units) > float64(c.limit.Units)*l.share:
			return nil, false
		case run.lease == 0 || c.limit.lease() < run.lease:
			run.lease = c.limit.lease()
		}
		run.charges = append(run.charges, c)
	}
	run.over = now.Add(run.lease)
	return run, true
}

// keep gives a grant's places back, or renews their lease. It returns whether the grant occupied them
// until now.
func (l *localShare) keep(granted Reservation, renew bool) bool {
	if l == nil {
		return false // another process
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	grant := localGrant{granted.Job.ID, granted.Start.UnixNano()}
	run, now := l.runs[grant], time.Now()
	switch {
	case run == nil:
		return false
	case !renew || !run.over.After(now):
		l.end(grant)
	default:
		run.over = now.Add(run.lease)
	}
	return run.over.After(now)
}

func (l *localShare) end(grant localGrant) {
	for _, c := range l.runs[grant].charges {
		if l.running[c.localLimit] -= c.units; l.running[c.localLimit] <= 0 {
			delete(l.running, c.localLimit)
		}
	}
	delete(l.runs, grant)
}

// period returns what has started in the period of a quota at an instant.
func (l *localShare) period(of localLimit, now time.Time) localPeriod {
	is := of.limit.Calendar.known().Period(now)
	if was, has := l.periods[of]; has && was.period == is {
		return was
	}
	return localPeriod{period: is}
}

// quotasFit reports whether a job has room in the period of each of its quotas.
func (l *localShare) quotasFit(charges []localCharge, now time.Time) bool {
	added := 0
	for _, c := range charges {
		if !c.limit.isQuota() {
			continue
		}
		if float64(l.period(c.localLimit, now).units+c.units) > float64(c.limit.UnitsAt(now))*l.share {
			return false
		}
		if _, has := l.periods[c.localLimit]; !has {
			added++
		}
	}
	if len(l.periods)+added > maxLocalKeys {
		maps.DeleteFunc(l.periods, func(of localLimit, was localPeriod) bool { return l.period(of, now) != was })
	}
	return added == 0 || len(l.periods)+added <= maxLocalKeys
}

func (l *localShare) spendQuotas(charges []localCharge, now time.Time) {
	for _, c := range charges {
		if c.limit.isQuota() {
			p := l.period(c.localLimit, now)
			p.units += c.units
			l.periods[c.localLimit] = p
		}
	}
}

// start charges a job to all its windows or to none.
func (l *localShare) start(charges []localCharge, now time.Time) bool {
	taken := make([]*rate.Reservation, 0, len(charges))
	for _, c := range charges {
		if c.limit.Window == 0 {
			continue
		}
		bucket := l.bucket(c.localLimit, now)
		if bucket == nil {
			return giveUp(taken, now)
		}
		reservation := bucket.ReserveN(now, int(c.units))
		if reservation.DelayFrom(now) > 0 { // infinite for more units than the bucket's burst
			return giveUp(append(taken, reservation), now)
		}
		taken = append(taken, reservation)
	}
	return true
}

func giveUp(taken []*rate.Reservation, now time.Time) bool {
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
	bucket = rate.NewLimiter(rate.Limit(half/of.limit.Length().Seconds()), int(half))
	l.buckets[of] = bucket
	return bucket
}

// forgetFull drops full buckets: a new one would be the same.
func (l *localShare) forgetFull(now time.Time) {
	for of, bucket := range l.buckets {
		if bucket.TokensAt(now) >= float64(bucket.Burst()) {
			delete(l.buckets, of)
		}
	}
}
