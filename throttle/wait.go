package throttle

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// waitAhead is how long before its slot Wait asks for a job, so that the round
	// trip does not make it late.
	waitAhead = 100 * time.Millisecond
	// askInLine is the shortest time after which Wait asks again for a job that is not booked, unless half the Lookahead
	// is shorter.
	askInLine = 250 * time.Millisecond
	// askBlocked is the longest such time: limits that were set may change at any time.
	askBlocked = 10 * time.Second
	// pullEvery is the shortest time between two pulls of a throttle's callers of Wait.
	pullEvery = 50 * time.Millisecond
)

// Wait reserves and sleeps until the job may start: Reserve for callers without a queue. While
// the job waits in line, Wait asks from time to time and pulls as a worker does, unless the
// throttle's Driver pulls. If limits that were set at run time have no room for the job's weight,
// it asks from time to time until they are changed. The returned reservation is granted and its
// start has come. If ctx ends first, the reservation is given back and ctx's error returned;
// otherwise the errors are those of Reserve. Sleeps are measured by the local clock, starts by
// Redis' clock. A job with Plan is an *InvalidJobError: it would never start.
func (t *Throttle) Wait(ctx context.Context, job Job) (Reservation, error) {
	if job.Plan {
		return Reservation{}, &InvalidJobError{Job: job.ID, Field: "Plan", Value: true,
			Reason: "is of no use here: a caller that plans a job does not wait for it"}
	}
	if job.MaxWait >= 0 { // Reserve refuses a negative one
		job.MaxWait = max(job.MaxWait, waitAhead)
	}
	has, blocked := false, askInLine // has: the job may have a reservation to give back
	for {
		r, err := t.Reserve(ctx, job)
		switch {
		case isBlocked(err):
			if err := sleep(ctx, blocked); err != nil {
				return Reservation{}, gaveUp(err)
			}
			blocked = min(2*blocked, askBlocked)
			continue
		case err != nil:
			if (has || errors.Is(err, ErrUnavailable)) && ctx.Err() != nil {
				t.abandonUnknown(ctx, withNonce(job, err))
			}
			return r, err
		}
		has = true
		answered := time.Now()
		if err := t.awaitTurn(ctx, r); err != nil {
			t.abandon(ctx, r)
			return Reservation{}, gaveUp(err)
		}
		if r.Outcome == Granted {
			t.started(r, answered)
			return r, nil
		}
	}
}

// awaitTurn sleeps until a job's start, or until the job asks again.
func (t *Throttle) awaitTurn(ctx context.Context, r Reservation) error {
	switch r.Outcome {
	case Booked:
		return sleep(ctx, r.Delay()-r.ahead())
	case Waiting:
		// A pull may book the job meanwhile, for up to a lookahead later: half of that leaves time to ask before the slot.
		return t.sleepInLine(ctx, min(max(r.Delay()/2, askInLine), max(t.options.Lookahead/2, waitAhead), askBlocked))
	}
	return sleep(ctx, r.Delay())
}

// sleepInLine sleeps. One of the process' goroutines that sleep here pulls when a pull is due.
func (t *Throttle) sleepInLine(ctx context.Context, d time.Duration) error {
	if t.line.isDriven() || !t.line.puller.TryLock() {
		return sleep(ctx, d)
	}
	defer t.line.puller.Unlock()
	for until := time.Now().Add(d); ; {
		pull := t.line.next()
		if earliest := t.line.pulled.Add(pullEvery); !pull.IsZero() && pull.Before(earliest) {
			pull = earliest
		}
		if pull.IsZero() || pull.After(until) {
			return sleep(ctx, time.Until(until))
		}
		if err := sleep(ctx, time.Until(pull)); err != nil {
			return err
		}
		t.line.pulled = time.Now()
		if _, err := t.pull(ctx, false); err != nil {
			t.options.Logger.Debug("throttle: the line could not be pulled, the next job that waits tries again")
			return sleep(ctx, time.Until(until))
		}
	}
}

// isBlocked reports whether the error is that a job weighs more than a limit that was set.
func isBlocked(err error) bool {
	var blocked *BlockedError
	return errors.As(err, &blocked)
}

// withNonce returns the job with the nonce of its lost answer.
func withNonce(job Job, err error) Job {
	var lost *UnavailableError
	if errors.As(err, &lost) {
		job.Nonce = lost.Nonce
	}
	return job
}

func gaveUp(err error) error { return fmt.Errorf("throttle: gave the wait up: %w", err) }

// abandon gives back a reservation that the caller will not use. If Redis cannot be asked, a booking stops
// counting after its grace, and a grant stays charged.
func (t *Throttle) abandon(ctx context.Context, r Reservation) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.options.Timeout)
	defer cancel()
	back := func() (bool, error) { return t.Cancel(ctx, r.Job) }
	if r.Outcome == Granted {
		back = func() (bool, error) { return t.takeBack(ctx, r) }
	}
	if _, err := back(); err != nil {
		t.options.Logger.Debug("throttle: an abandoned reservation could not be given back")
	}
}

// abandonUnknown gives back the reservation of a job whose answer was lost. It first asks again with the job's
// nonce, to learn of the reservation.
func (t *Throttle) abandonUnknown(ctx context.Context, job Job) {
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.options.Timeout)
	defer cancel()
	r, err := t.Reserve(asking, job)
	if err != nil {
		r = Reservation{Job: job}
	}
	t.abandon(ctx, r)
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
