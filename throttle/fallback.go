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
	if ctx.Err() != nil {
		return Reservation{}, err
	}
	t.logged.fallback(t.name, unavailable)
	now := time.Now()
	granted := Reservation{Job: job, Outcome: Granted, Start: now, Now: now}
	switch {
	case t.options.Fallback == FallbackOpen:
		granted.Source = FromOpen
		return granted, nil
	case t.options.Fallback == FallbackLocal && t.local.take(c.enforced(), job.Weight, now):
		granted.Source = FromLocal
		return granted, nil
	}
	return Reservation{}, err
}

func withJob(err error, job Job) error {
	var unavailable *UnavailableError
	if errors.As(err, &unavailable) {
		unavailable.Job, unavailable.Nonce = job.ID, job.Nonce
	}
	return err
}
