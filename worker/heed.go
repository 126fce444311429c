package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// process runs the handler under a grant, and returns the error for asynq. If the upstream
// asked to wait, the scope key is closed and the task is put back until the wait is over. again
// is true if the task could not go back to asynq and has waited here.
func (s *Shaper) process(ctx context.Context, task *asynq.Task, a attempt, r throttle.Reservation, asked time.Time,
	next asynq.Handler) (again bool, err error) {
	err = s.run(ctx, task, r, asked, next)
	var wait *WaitError
	var untouched *UntouchedError
	switch {
	case IsPutBack(err): // by another shaper inside, which has heeded a wait itself
		s.refund(ctx, r)
	case errors.As(err, &wait) && s.paces(r.Job, wait.Scope):
		return s.heed(ctx, a, r, wait)
	case errors.As(err, &untouched):
		s.refund(ctx, r)
	}
	return false, err
}

// run runs the handler, and gives its places under running limits back when it returns or
// panics.
func (s *Shaper) run(ctx context.Context, task *asynq.Task, r throttle.Reservation, asked time.Time,
	next asynq.Handler) error {
	g := &grant{Reservation: r, task: task}
	running, place := s.runner.begin(ctx, r, asked)
	defer func() { s.runner.end(ctx, place, g.ended()) }()
	err := next.ProcessTask(s.withGrant(running, g), task)
	if err != nil && errors.Is(context.Cause(running), ErrPlaceLost) {
		return fmt.Errorf("%w: %w", ErrPlaceLost, err)
	}
	return err
}

// paces reports whether a job has a key of a scope.
func (s *Shaper) paces(job throttle.Job, scope string) bool {
	_, has := job.Keys[scope]
	return has || scope == throttle.Global
}

// heed closes the scope key whose upstream asked to wait, gives the charge back, and puts the
// task back until the wait is over. Whatever error the wait wraps, the task comes back: a wait is
// no failure.
func (s *Shaper) heed(ctx context.Context, a attempt, r throttle.Reservation, wait *WaitError) (again bool, err error) {
	handler := ctx
	ctx = context.WithoutCancel(ctx)
	s.refund(ctx, r)
	asked := *wait
	if asked.Delay <= 0 { // made by hand
		asked.Delay, asked.Guessed = DefaultAskedWait, true
	}
	asked.Delay = min(asked.Delay, s.options.MaxAskedWait)
	delay, inForce := s.pauseKey(ctx, r, &asked)
	if s.stays(a) {
		return true, s.stay(handler, a, r.Job, delay)
	}
	job := r.Job
	if inForce {
		job.Plan = true // so that it is not granted, even if there is room
		placed, err := s.reserve(ctx, job)
		var late *throttle.DeadlineError
		switch {
		case errors.As(err, &late):
			return false, s.refusal(a, job, err)
		case err == nil:
			return false, s.putBack(a, placed, restFor(placed))
		}
	}
	delay = untilExpiry(job, max(delay, s.options.Backoff))
	cause := &WaitError{Scope: wait.Scope, Delay: delay, Guessed: asked.Guessed, Err: wait.Err}
	if errors.Is(wait, asynq.SkipRetry) || errors.Is(wait, asynq.RevokeTask) {
		cause.Err = nil // asynq would end the task
	}
	s.countPutBack(throttle.Reservation{Job: job}, delay, cause)
	return false, &PutBackError{Queue: a.queue, TaskID: a.id, Delay: delay, Err: cause, use: &s.use}
}

// pauseKey closes a scope key, and returns for how long, and whether that is known to keep jobs back: it does not
// where the mode of the scope is not Enforce, and a task that is planned there may start within the wait.
func (s *Shaper) pauseKey(ctx context.Context, r throttle.Reservation,
	wait *WaitError) (delay time.Duration, inForce bool) {
	ends, follows, err := s.closeKey(ctx, r, wait)
	if err != nil {
		s.log.Warn("worker: an upstream that asked to wait is not paused", zap.String("scope", wait.Scope), zap.Error(err))
		return wait.Delay, false
	}
	state, err := s.looks.Usage(ctx, wait.Scope, r.Job.Keys[wait.Scope])
	if err != nil {
		s.log.Warn("worker: an upstream that asked to wait is paused, it is not known whether its scope is enforced",
			zap.String("scope", wait.Scope), zap.Error(err))
		return wait.Delay, false
	}
	delay = wait.Delay
	if follows {
		delay = max(0, ends.Sub(state.Now))
	}
	return delay, delay > 0 && state.Mode == throttle.Enforce && !state.Paused.Before(ends)
}
