package throttle

import (
	"context"
	"errors"
	"time"
)

// fallBack answers for a job that Redis could not decide on. A caller who gave up
// gets no fallback.
func (t *Throttle) fallBack(ctx context.Context, job Job, c *call, err error) (Reservation, error) {
	var unavailable *UnavailableError
	if !errors.As(err, &unavailable) {
		return Reservation{}, err
	}
	err = withJob(err, job)
	if ctx.Err() != nil || gaveUp(err) {
		return Reservation{}, err
	}
	t.logged.fallback(t.name, unavailable)
	now := time.Now()
	answered := t.answering(c, job.Weight, now)
	if t.options.Observer != nil {
		t.options.Observer.FellBack(Outage{Throttle: t.name, Failure: unavailable.Failure, Answered: answered})
	}
	granted := Reservation{Job: job, Outcome: Granted, Start: now, Now: now}
	switch answered {
	case FallbackOpen:
		granted.Source = FromOpen
		return granted, nil
	case FallbackLocal:
		granted.Source = FromLocal
		return granted, nil
	}
	return Reservation{}, err
}

// answering is the fallback that grants a job, FallbackClosed if none does.
func (t *Throttle) answering(c *call, weight int64, now time.Time) Fallback {
	if t.options.Fallback == FallbackLocal && !t.local.take(c.enforced(), weight, now) {
		return FallbackClosed
	}
	return t.options.Fallback
}

func withJob(err error, job Job) error {
	var unavailable *UnavailableError
	if errors.As(err, &unavailable) {
		unavailable.Job, unavailable.Nonce = job.ID, job.Nonce
	}
	return err
}
