package worker

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// process runs the handler under a grant, and makes of its error what asynq is to see:
// where the upstream asked to wait, the scope key is paused and the task takes its
// place after that. again says that it could not go back to asynq and has waited here.
func (s *Shaper) process(ctx context.Context, task *asynq.Task, a attempt, r throttle.Reservation, next asynq.Handler) (again bool, err error) {
	err = next.ProcessTask(s.withGrant(ctx, r), task)
	var wait *WaitError
	var untouched *UntouchedError
	switch {
	case errors.As(err, &wait) && s.paces(r.Job, wait.Scope):
		return s.heed(ctx, a, r, wait)
	case IsDenied(err), errors.As(err, &untouched):
		// Another shaper inside has put it back, or the handler says so itself:
		// nothing was used.
		s.refund(ctx, r)
	}
	return false, err
}

// paces tells whether a job has a key of a scope.
func (s *Shaper) paces(job throttle.Job, scope string) bool {
	_, has := job.Keys[scope]
	return has || scope == throttle.Global
}

// heed pauses what the upstream asked to leave alone, gives the charge back, and has
// the task take its place after it.
func (s *Shaper) heed(ctx context.Context, a attempt, r throttle.Reservation, wait *WaitError) (again bool, err error) {
	handler := ctx
	ctx = context.WithoutCancel(ctx)
	s.refund(ctx, r)
	delay := min(max(wait.Delay, 0), MaxAskedWait)
	if _, err := s.throttle.Pause(ctx, wait.Scope, r.Job.Keys[wait.Scope], time.Now().Add(delay)); err != nil {
		s.log.Warn("worker: an upstream that asked to wait is not paused", zap.String("scope", wait.Scope), zap.Error(err))
	}
	if s.stays(a) {
		return true, sleep(handler, delay)
	}
	job := r.Job
	job.Plan = true // not to start, whatever there is room for
	placed, err := s.reserve(ctx, job)
	if err == nil && placed.Delay() < delay-time.Second {
		// The pause is not in force: the scope is not enforced, or Redis did not hear.
		s.giveBack(ctx, placed.Job)
		err = wait
	}
	if err != nil {
		s.countDenied(throttle.Reservation{Job: job}, delay, wait)
		return false, &DeniedError{Queue: a.queue, TaskID: a.id, Delay: max(delay, s.options.Backoff), Err: wait, use: &s.use}
	}
	return false, s.deny(a, placed)
}
