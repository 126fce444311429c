package throttle

import (
	"context"
	"errors"
	"time"
)

// fallBack answers for a job that Redis could not decide. A caller that gave up gets no fallback.
func (t *Throttle) fallBack(ctx context.Context, o *order, err error) (Reservation, error) {
	var unavailable *UnavailableError
	if !errors.As(err, &unavailable) {
		return Reservation{}, err
	}
	err = withJob(err, o.job)
	if ctx.Err() != nil {
		return Reservation{}, err
	}
	t.logged.fallback(t.name, t.options.Fallback, unavailable)
	now := time.Now()
	answered, lease := t.answering(o, now)
	if t.options.Observer != nil {
		t.options.Observer.FellBack(Outage{Throttle: t.name, Failure: unavailable.Failure, Answered: answered})
	}
	if answered == FallbackClosed {
		return Reservation{}, err
	}
	return Reservation{Job: o.job, Outcome: Granted, Start: now, Now: now, Lease: lease, Source: answered}, nil
}

// answering returns the fallback that grants a job, or FallbackClosed if none does, and for how long the job
// occupies places. No fallback grants a job whose deadline has passed, nor one that is only planned: it asks again when
// it comes.
func (t *Throttle) answering(o *order, now time.Time) (Fallback, time.Duration) {
	if o.job.Plan || t.latest(o.job) < 0 {
		return FallbackClosed, 0
	}
	if t.options.Fallback != FallbackLocal {
		return t.options.Fallback, 0
	}
	lease, taken := t.local.take(localGrant{o.job.ID, now.UnixNano()}, t.localCharges(o), now)
	if !taken {
		return FallbackClosed, 0
	}
	return FallbackLocal, lease
}
