package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Wrap returns a handler that reserves each task before next may process it. It
// is an asynq.MiddlewareFunc for ServeMux.Use (put it first: middlewares outside
// of it would see put-backs as errors) and takes a bare Handler as well. If it is around the same
// handler twice, or another shaper of the same throttle is, each task is reserved once, and an error
// is logged.
func (s *Shaper) Wrap(next asynq.Handler) asynq.Handler {
	s.wrapped.Store(true)
	s.puller.start()
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		a, err := attemptOf(ctx, task)
		if err != nil {
			return err
		}
		ctx = s.translate(ctx, a.retries)
		if s.isInside(ctx, a) {
			return next.ProcessTask(ctx, task)
		}
		if a.beyond() {
			if err := s.exhausted(ctx, a); err != nil {
				return err
			}
		}
		noteRun(ctx)
		err = s.shape(ctx, task, a, next)
		failed := err != nil && !IsPutBack(err)
		if failed && a.last() && !errors.Is(err, asynq.SkipRetry) && !errors.Is(err, asynq.RevokeTask) {
			return fmt.Errorf("%w (last of %d retries: %w)", err, a.own(), asynq.SkipRetry)
		}
		return err
	})
}

// shape runs the handler once the task may start. A task that cannot go back to asynq
// waits here for as long as its upstream asks.
func (s *Shaper) shape(ctx context.Context, task *asynq.Task, a attempt, next asynq.Handler) error {
	for {
		r, asked, err := s.untilStart(ctx, task, a)
		if err != nil {
			return s.expire(ctx, task, a, err)
		}
		s.stats.granted.Add(1)
		again, err := s.process(ctx, task, a, r, asked, next)
		if !again || err != nil {
			return s.expire(ctx, task, a, err)
		}
	}
}

// usedUpText begins the last error of a task that exhausted has ended.
const usedUpText = "worker: the last of "

// exhausted ends a task whose own retries are used up, with the error of its last attempt: a
// timeout, a panic. It returns nil if the task runs all the same: see isOwed.
func (s *Shaper) exhausted(ctx context.Context, a attempt) error {
	if !a.mayReturn() {
		return nil // asynq archives the task by itself: a person ran it, or it lost all its spare retries
	}
	for {
		info, err := s.inspector.GetTaskInfo(a.queue, a.id)
		switch {
		case err == nil && isOwed(info.LastErr):
			return nil
		case err == nil:
			return fmt.Errorf(usedUpText+"%d attempts ended outside of the middleware (%s): %w", a.own()+1,
				info.LastErr, asynq.SkipRetry)
		case errors.Is(err, asynq.ErrTaskNotFound):
			return fmt.Errorf(usedUpText+"%d attempts ended outside of the middleware: %w", a.own()+1, asynq.SkipRetry)
		}
		// A put-back would overwrite the last error that is asked for.
		if err := sleep(ctx, s.options.Backoff); err != nil {
			return err
		}
	}
}

// untilStart returns once the task may start, with its grant and the local time at which the grant
// was asked for, or with the error that the middleware returns.
func (s *Shaper) untilStart(ctx context.Context, task *asynq.Task,
	a attempt) (r throttle.Reservation, asked time.Time, err error) {
	job, err := jobOf(ctx, s.job, task)
	if err != nil {
		return r, asked, err
	}
	// A Client uses the same function, which may set Plan and Bounded: the task is in asynq already.
	job.ID, job.Plan, job.Bounded = a.jobID(), false, false
	for {
		job.MaxWait = s.maxWait(ctx)
		stays := s.stays(a)
		if err := s.deployment.others(ctx); err != nil {
			if err := s.awaitRedis(ctx, a, job, err, stays); err != nil {
				return r, asked, err
			}
			continue
		}
		asked = time.Now()
		r, err = s.reserve(ctx, job)
		switch {
		case err == nil && r.Outcome == throttle.Granted:
			s.blocked.forget(job.ID)
			return r, asked, s.begin(ctx, a, r, stays)
		case isBlocked(err):
			if err := s.awaitLimits(ctx, a, job, err, stays); err != nil {
				return r, asked, err
			}
		case err == nil:
			if err := s.awaitSlot(ctx, a, r, stays); err != nil {
				return r, asked, err
			}
		case errors.Is(err, throttle.ErrUnavailable) && ctx.Err() == nil:
			if err := s.awaitRedis(ctx, a, job, err, stays); err != nil {
				return r, asked, err
			}
		default:
			return r, asked, s.refusal(a, job, err)
		}
	}
}

// maxWait is how long a task may wait for its start in its handler: at most a quarter of what is
// left of its Timeout, so that the handler has the rest.
func (s *Shaper) maxWait(ctx context.Context) time.Duration {
	deadline, has := ctx.Deadline()
	if !has {
		return s.options.MaxWait
	}
	return min(s.options.MaxWait, max(0, time.Until(deadline)/4))
}

// stays reports whether a task waits inside its handler, since a put-back would end it or
// spend its retries.
func (s *Shaper) stays(a attempt) bool {
	if !s.use.works() {
		s.complain()
		return true
	}
	return !a.mayReturn()
}

// jobOf calls the user's function. A panic in it fails the task, as a panic in a handler does.
func jobOf(ctx context.Context, ask JobFunc, task *asynq.Task) (job throttle.Job, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("worker: the job function panicked for a task of type %q: %v", task.Type(), p)
		}
	}()
	job, err = ask(ctx, task)
	if err != nil {
		return job, fmt.Errorf("worker: the job function failed for a task of type %q: %w", task.Type(), err)
	}
	job.Deadline = earlier(job.Deadline, expiryOf(task.Headers()))
	job.Nonce = "" // a Shaper has one of its own, and for a Client the throttle draws one
	return job, nil
}

// reserve asks the throttle. An attempt always asks under the same nonce, so that a grant whose
// answer was lost is found.
func (s *Shaper) reserve(ctx context.Context, job throttle.Job) (throttle.Reservation, error) {
	job.Nonce = nonceOf(job.ID)
	r, err := s.throttle.Reserve(ctx, job)
	if err == nil && r.Source != throttle.FallbackClosed {
		s.stats.unchecked.Add(1)
	}
	s.puller.answered()
	return r, err
}

// nonceOf makes a nonce of a job's ID, which has bytes that no nonce may have.
func nonceOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

// refusal ends a task that can never start, with a reason that asynqmon shows. A task whose job
// is invalid fails instead: the next attempt calls the user's function again, which may be
// mended by then. For a task that is too late for its deadline, expire decides how it ends.
func (s *Shaper) refusal(a attempt, job throttle.Job, err error) error {
	var invalid *throttle.InvalidJobError
	var never *throttle.NeverFitsError
	var late *throttle.DeadlineError
	switch {
	case errors.As(err, &late):
		s.countEnd(job, err)
		s.stats.expired.Add(1)
		return &expiredError{late}
	case errors.As(err, &invalid):
		s.log.Warn("worker: the job function made an invalid job, the task fails", zap.String("queue", a.queue),
			zap.String("task", a.id), zap.Error(err))
	case errors.As(err, &never):
		s.countEnd(job, err)
		s.warnEnded(a, err)
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	return err
}

func (s *Shaper) warnEnded(a attempt, err error) {
	s.log.Warn("worker: a task can never start and is ended", zap.String("queue", a.queue),
		zap.String("task", a.id), zap.Error(err))
}

// awaitStart sleeps until a granted start. If the shaper stops first, the grant
// becomes a booking again and the task is put back, unless it has to stay.
func (s *Shaper) awaitStart(ctx context.Context, a attempt, r throttle.Reservation, stays bool) error {
	delay := r.Delay()
	if delay <= 0 {
		return nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	stopped := s.stopped
	if stays {
		stopped = nil
	}
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		s.refund(ctx, r)
		if _, err := s.throttle.Done(context.WithoutCancel(ctx), r); err != nil {
			s.log.Debug("worker: an unused place is free after its lease", zap.String("task", a.id), zap.Error(err))
		}
		return ctx.Err()
	case <-stopped:
		if kept, err := s.driver.Release(context.WithoutCancel(ctx), r); err != nil || !kept {
			s.log.Debug("worker: an unused grant stays charged", zap.String("task", a.id), zap.Error(err))
		}
		return s.putBack(a, r, r.Delay())
	}
}

// awaitSlot puts back a task that is booked or in line. A task that has to stay sleeps until it
// asks again; in line it asks often enough to be in time once it is booked.
func (s *Shaper) awaitSlot(ctx context.Context, a attempt, r throttle.Reservation, stays bool) error {
	delay, err := s.withinDeadline(ctx, a, r, restFor(r))
	if err != nil {
		return err
	}
	if !stays {
		return s.putBack(a, r, delay)
	}
	delay = r.Delay()
	if !atSlot(r) {
		delay -= r.Job.MaxWait / 2
	}
	if r.Outcome == throttle.Waiting {
		delay = min(max(delay, s.options.MaxWait/2), askInLine)
	}
	err = s.stay(ctx, a, r.Job, delay)
	if err != nil && !s.isStopped() { // after Stop asynq takes the task back, which finds its booking
		s.giveBack(ctx, r.Job)
	}
	return err
}

// atSlot reports whether a booked task must not come before its slot. A slot within MaxWait would
// have been granted at once, unless it depends on a lease that may still be renewed.
func atSlot(r throttle.Reservation) bool {
	return r.Outcome == throttle.Booked && r.Delay() <= r.Job.MaxWait
}

// nearDeadline is how long before its Deadline a waiting task comes back, to be ended with the
// reason: asynq calls no handler after the Deadline. It covers asynq's rounding to whole seconds
// and the five seconds that asynq, by default, lets pass between its checks for delayed tasks.
const nearDeadline = 8 * time.Second

// withinDeadline shortens a delay so that the task comes back before its Deadline. A task that
// cannot start before its Deadline is ended, and its reservation given back.
func (s *Shaper) withinDeadline(ctx context.Context, a attempt, r throttle.Reservation,
	delay time.Duration) (time.Duration, error) {
	deadline, has := ctx.Deadline()
	spare := time.Until(deadline) - delay
	if !has || spare > nearDeadline || spare > 0 && r.Outcome == throttle.Booked {
		return delay, nil
	}
	delay, err := s.beforeDeadline(a, r, delay)
	if err != nil {
		s.giveBack(ctx, r.Job)
	}
	return delay, err
}

// beforeDeadline is withinDeadline, once the end of the handler's context is near. That end may be
// a Timeout's, which begins anew with the next attempt: only asynq knows the Deadline.
func (s *Shaper) beforeDeadline(a attempt, r throttle.Reservation, delay time.Duration) (time.Duration, error) {
	info, err := s.inspector.GetTaskInfo(a.queue, a.id)
	if err != nil || info.Deadline.IsZero() {
		return delay, nil //nolint:nilerr // asynq itself ends the task at its Deadline
	}
	left := time.Until(info.Deadline)
	passes := r.Start.IsZero() || r.Delay() > left
	switch {
	case passes && (r.Outcome == throttle.Booked || left < nearDeadline):
		return 0, s.refusal(a, r.Job,
			&throttle.DeadlineError{Job: r.Job.ID, Deadline: info.Deadline, Start: r.Start, Hold: r.Hold})
	case r.Outcome == throttle.Waiting:
		return min(delay, untilNear(left)), nil
	}
	return delay, nil
}

// untilNear is how long a waiting task may rest, by the time left until its Deadline.
func untilNear(left time.Duration) time.Duration { return max(time.Second, left-nearDeadline) }

// awaitRedis puts a task back if Redis cannot decide, or if another deployment owns the throttle. A
// task that has to stay waits here.
func (s *Shaper) awaitRedis(ctx context.Context, a attempt, job throttle.Job, cause error, stays bool) error {
	if err := s.expiredUnasked(a, job); err != nil {
		return err
	}
	if stays {
		return s.stay(ctx, a, job, s.options.Backoff+rand.N(s.options.Backoff))
	}
	delay := s.outage.refuse(wakeup{queue: a.queue, id: a.id, retried: a.retried, job: job}, s.options.Backoff)
	return s.putBackFor(ctx, a, job, delay, cause)
}

// putBackFor puts back a task for which nothing is promised, and ends one whose Deadline is near.
func (s *Shaper) putBackFor(ctx context.Context, a attempt, job throttle.Job, delay time.Duration, cause error) error {
	delay = untilExpiry(job, delay)
	delay, err := s.withinDeadline(ctx, a, throttle.Reservation{Job: job, Outcome: throttle.Waiting}, delay)
	if err != nil {
		return err
	}
	s.countPutBack(throttle.Reservation{Job: job}, delay, cause)
	return &PutBackError{Queue: a.queue, TaskID: a.id, Delay: delay, Err: cause, use: &s.use}
}

// askInLine is how often a task in line that cannot be put back asks again.
const askInLine = 500 * time.Millisecond

// leastFallback is when asynq brings back a task in line at the earliest, if no process wakes it:
// the estimate of its start may be far too early if others wait for other limits, and a
// task that comes too early is put back once more.
const leastFallback = time.Minute

// restFor is how long a task rests if no process wakes it before: until its slot; in line, for as
// long as it is left to the processes that pull; but not longer than until its job expires.
func restFor(r throttle.Reservation) time.Duration {
	if r.Outcome == throttle.Waiting {
		return untilExpiry(r.Job, max(leastFallback, r.AskAgain.Sub(r.Now)))
	}
	return untilExpiry(r.Job, r.Delay())
}

// putBack puts a task back, until asynq brings it after a delay. This process wakes a booked task
// for its slot. The process that pulls a task in line wakes it; else asynq brings it, late.
func (s *Shaper) putBack(a attempt, r throttle.Reservation, delay time.Duration) error {
	if r.Outcome != throttle.Waiting {
		s.waker.wake(wakeup{queue: a.queue, id: a.id, retried: a.retried, job: r.Job, lane: r.Lane,
			slot: time.Now().Add(r.Delay()), atSlot: atSlot(r)})
	}
	s.countPutBack(r, delay, nil)
	s.log.Debug("worker: a task is put back", zap.String("queue", a.queue), zap.String("task", a.id),
		zap.Stringer("outcome", r.Outcome), zap.Duration("delay", delay))
	return &PutBackError{Queue: a.queue, TaskID: a.id, Delay: delay, Slot: r.Start,
		InLine: r.Outcome == throttle.Waiting, Hold: r.Hold, use: &s.use}
}

// giveBack cancels a reservation that this attempt will not use. If the call fails, a booking
// stops counting after its grace.
func (s *Shaper) giveBack(ctx context.Context, job throttle.Job) {
	if _, err := s.throttle.Cancel(context.WithoutCancel(ctx), job); err != nil {
		s.log.Debug("worker: an unused reservation stays until its grace is over", zap.Error(err))
	}
	s.puller.answered()
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
