package throttle

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// waitAhead is how long before its slot Wait asks for a job, so that the round
// trip does not make it late.
const waitAhead = 100 * time.Millisecond

// sweepEvery is how often the waiting jobs of a process look after the line.
const sweepEvery = 250 * time.Millisecond

// mostBlocked is how seldom Wait asks for a job that is not booked: limits that were set
// may change at any time.
const mostBlocked = 10 * time.Second

// Wait reserves and sleeps until the job may start: Reserve for callers without
// a queue. While it stands in line it asks from time to time, and pulls lanes as a
// worker does. It also asks from time to time where limits set at run time leave no
// room for the job's weight, until they are changed. The returned reservation is
// granted and its start has come. If ctx ends first, the reservation is given back and
// ctx's error returned; otherwise the errors are those of Reserve. The sleeps are
// measured by the local clock, the starts are Redis'.
func (t *Throttle) Wait(ctx context.Context, job Job) (Reservation, error) {
	if job.MaxWait >= 0 { // what is negative, Reserve refuses
		job.MaxWait = max(job.MaxWait, waitAhead)
	}
	held, blocked := false, sweepEvery
	for {
		r, err := t.Reserve(ctx, job)
		if isBlocked(err) {
			if err := sleep(ctx, blocked); err != nil {
				return Reservation{}, fmt.Errorf("throttle: gave the wait up: %w", err)
			}
			blocked = min(2*blocked, mostBlocked)
			continue
		}
		if err != nil {
			var lost *UnavailableError
			if errors.As(err, &lost) {
				job.Nonce, held = lost.Nonce, true // it may have been decided
			}
			if held && ctx.Err() != nil {
				t.abandon(ctx, job)
			}
			return r, err
		}
		held = true
		answered, delay := time.Now(), r.Delay()
		switch r.Outcome {
		case Booked:
			delay -= job.MaxWait
		case Waiting:
			// Once booked, it is asked for again before its slot.
			delay = min(max(delay/2, sweepEvery), max(t.options.Lookahead/2, waitAhead), mostBlocked)
			t.tendLine(ctx)
		}
		if err := sleep(ctx, delay); err != nil {
			t.abandon(ctx, r.Job)
			return Reservation{}, fmt.Errorf("throttle: gave the wait up: %w", err)
		}
		if r.Outcome == Granted {
			t.observeStart(r, answered)
			return r, nil
		}
	}
}

// isBlocked tells that a limit that was set leaves no room for a job's weight.
func isBlocked(err error) bool {
	var blocked *BlockedError
	return errors.As(err, &blocked)
}

// tendLine does for the line what a worker does, at most every sweepEvery for all
// that wait in this process. What fails is done by the next.
func (t *Throttle) tendLine(ctx context.Context) {
	last, now := t.swept.Load(), time.Now().UnixNano()
	if now-last < int64(sweepEvery) || !t.swept.CompareAndSwap(last, now) {
		return
	}
	swept, err := t.sweep(ctx, 0)
	for next := swept.Next; err == nil && next != ""; {
		_, next, err = t.Pull(ctx, next)
	}
}

// abandon gives back what the caller will not use. If Redis cannot be told, the
// booking stops counting after its grace.
func (t *Throttle) abandon(ctx context.Context, job Job) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.options.Timeout)
	defer cancel()
	if _, err := t.Cancel(ctx, job); err != nil {
		t.options.Logger.Debug("throttle: an abandoned reservation stays until its grace is over")
	}
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
