package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// A task without a retry left cannot be put back: asynq would archive it. Such a task waits in its
// handler, and the time it waits counts towards its Timeout (by asynq's default 30 minutes). A task of
// NewTask can be put back until lost attempts have used up its spare retries.

// lastMoment is how long before its context ends a task is ended that cannot start before then:
// asynq ignores what a handler returns after the context has ended.
const lastMoment = 100 * time.Millisecond

// stay sleeps in the handler of a task that has to stay, until the delay is over or the job expires.
// If the task has no retry left and its context would end before the delay is over, stay ends the
// task at once with an error that says why.
func (s *Shaper) stay(ctx context.Context, a attempt, job throttle.Job, delay time.Duration) error {
	delay = untilExpiry(job, delay)
	deadline, has := ctx.Deadline()
	if !has || a.mayReturn() || time.Until(deadline)-delay > lastMoment {
		return sleep(ctx, delay)
	}
	err := fmt.Errorf("worker: no start within its Timeout, and no retry left to be put back with: %w", asynq.SkipRetry)
	s.countEnd(job, err)
	s.log.Warn("worker: a task without a retry left cannot start within its Timeout and is ended: make it with NewTask",
		zap.String("queue", a.queue), zap.String("task", a.id))
	return err
}
