package worker

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// ExpiresIn is an option for a task that is of no use unless it starts within d. It gives the
// task's job a Deadline; if the JobFunc gives one too, the earlier counts. NewTask, Client.Enqueue
// and EnqueueAll count d from their call, or from the task's ProcessAt or ProcessIn if that is later;
// a Client counts anew for a task that NewTask made. With a d of zero or less the task has expired
// when it comes. Options.Expired says what becomes of a task that has expired.
//
// asynq's own functions ignore the option: with asynq.NewTask and asynq.Client.Enqueue a task does
// not expire. A task that NewTask made once and that is enqueued again and again, as by
// asynq.Scheduler, expires d after the call of NewTask each time; let the JobFunc give its job a
// Deadline instead. NewTask does not take the instant from another task's headers.
func ExpiresIn(d time.Duration) asynq.Option { return expiresIn(d) }

type expiresIn time.Duration

// String implements asynq.Option.
func (d expiresIn) String() string { return fmt.Sprintf("ExpiresIn(%v)", time.Duration(d)) }

// Type implements asynq.Option. The type is none of asynq's.
func (d expiresIn) Type() asynq.OptionType { return expiresInOpt }

const expiresInOpt asynq.OptionType = -1

// Value implements asynq.Option.
func (d expiresIn) Value() any { return time.Duration(d) }

// expiresHeader is when a task expires, in Unix milliseconds.
const expiresHeader = "Throttle-Expires"

func expiresAt(at time.Time) string { return strconv.FormatInt(at.UnixMilli(), 10) }

// expiryOf is when a task with these headers expires; zero if it does not.
func expiryOf(headers map[string]string) time.Time {
	at, err := strconv.ParseInt(headers[expiresHeader], 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(at)
}

// DeadlineOf returns by when a task that asynq's Inspector returned must start, by its Deadline and its ExpiresIn; zero
// if it has neither. A Job.Deadline is not known from the task.
func DeadlineOf(info *asynq.TaskInfo) time.Time {
	return earlier(info.Deadline, expiryOf(info.Headers))
}

// earlier returns the earlier of two deadlines. A zero time is no deadline.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// untilExpiry shortens a delay so that it ends just after the job's Deadline.
func untilExpiry(job throttle.Job, delay time.Duration) time.Duration {
	if job.Deadline.IsZero() {
		return delay
	}
	return min(delay, max(0, time.Until(job.Deadline))+time.Millisecond)
}

// expiredUnasked ends a task whose job has expired, without asking the throttle. If the job stands
// in line, the process that pulls it finds its task gone.
func (s *Shaper) expiredUnasked(a attempt, job throttle.Job) error {
	if job.Deadline.IsZero() || time.Until(job.Deadline) >= 0 {
		return nil
	}
	return s.refusal(a, job, &throttle.DeadlineError{Job: job.ID, Deadline: job.Deadline, Start: time.Now()})
}

// expiredError says that a task was not started since it is too late for its deadline.
type expiredError struct{ *throttle.DeadlineError }

// Unwrap returns the reason.
func (e *expiredError) Unwrap() error { return e.DeadlineError }

// expire ends a task that has expired, as Options.Expired says, and returns its result for asynq.
// It returns any other error as it is.
func (s *Shaper) expire(ctx context.Context, task *asynq.Task, a attempt, err error) error {
	expired, is := err.(*expiredError) //nolint:errorlint // an error of a handler is none, whatever it wraps
	switch {
	case !is:
		return err
	case s.options.Expired != nil:
		s.log.Debug("worker: a task has expired", zap.String("queue", a.queue), zap.String("task", a.id),
			zap.Error(expired.DeadlineError))
		return s.options.Expired(ctx, task, expired.DeadlineError)
	}
	s.warnEnded(a, expired.DeadlineError)
	return fmt.Errorf("%w: %w", expired.DeadlineError, asynq.SkipRetry)
}

// Drop is an Options.Expired that deletes the task: asynq does not archive, retry or retain it, and
// frees its Unique lock. asynq counts the task as processed and logs that it is revoked; an
// ErrorHandler gets the *throttle.DeadlineError.
func Drop(_ context.Context, _ *asynq.Task, late *throttle.DeadlineError) error {
	return fmt.Errorf("%w: %w", late, asynq.RevokeTask)
}
