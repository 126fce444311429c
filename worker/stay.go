package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// A task without a retry left cannot be put back: asynq would archive it. It waits in its
// handler, where its Timeout goes on; asynq's default is 30 minutes. A task of NewTask can always
// be put back.

// lastMoment is how long before the end of its context a task that has not begun is ended:
// asynq ignores what a handler returns after that end.
const lastMoment = 100 * time.Millisecond

// stay sleeps in the handler of a task that cannot be put back, not longer than until its job
// expires. If the task's context ends before the delay is over, the task is ended at once, with
// the reason.
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
