package worker

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// A task without a retry left cannot be put back: asynq would archive it. It waits in its
// handler, where its Timeout runs on, 30 minutes if it has none. So it turns: before the
// half of that is over it lets itself be archived, and is run from there at once, with a
// Timeout that begins anew. Its place in the throttle stays as it is. What a process that
// dies meanwhile leaves in the archive, and what asynq puts there since the process died,
// is run by who brings its place: while a place is not used, its task has not run.

const (
	// turnedFor is how long an archived task is looked for that turns. asynq's recoverer
	// puts it there a minute or two later if its process could not.
	turnedFor = 5 * time.Minute
	// turnedAgain is how often, after the first moments.
	turnedAgain = time.Second
)

// errTurns is why a task is denied that turns. Its text, within that of the denial, is
// the task's last error in the archive.
var errTurns = errors.New("waits on, its Timeout begins anew")

// linger sleeps in the handler of a task that has to stay, and has it turn when half of
// its Timeout is over: the rest is for the handler.
func (s *Shaper) linger(ctx context.Context, a attempt, job throttle.Job, delay time.Duration) error {
	deadline, has := ctx.Deadline()
	half := time.Until(a.came.Add(deadline.Sub(a.came) / 2))
	if !has || a.mayReturn() || delay <= half {
		return sleep(ctx, delay)
	}
	if err := sleep(ctx, half); err != nil {
		return err
	}
	info, err := s.inspector.GetTaskInfo(a.queue, a.id)
	left := time.Until(deadline)
	own := err == nil && !info.Deadline.IsZero() && !info.Deadline.After(deadline) // which does not begin anew
	if err != nil || own || !s.turn(a, job) && left > turnedAgain {
		return sleep(ctx, min(delay-half, max(left/2, turnedAgain/2)))
	}
	s.log.Debug("worker: a task that waits in its handler turns", zap.String("queue", a.queue), zap.String("task", a.id))
	return &DeniedError{Queue: a.queue, TaskID: a.id, Err: errTurns}
}

// turn has a task looked for in the archive. After Stop it returns false: if asynq does not
// take the task back itself in time, another process finds it by its place.
func (s *Shaper) turn(a attempt, job throttle.Job) bool {
	return s.waker.wake(wakeup{queue: a.queue, id: a.id, retried: a.retried, job: job, slot: time.Now(), turns: true})
}

// bringBack runs a task from the archive that turns, when it is there.
func (w *waker) bringBack(task wakeup, info *asynq.TaskInfo, err error) {
	s, since := w.shaper, time.Since(task.slot)
	switch {
	case errors.Is(err, asynq.ErrTaskNotFound), errors.Is(err, asynq.ErrQueueNotFound):
		s.giveBack(context.Background(), task.job)
		return
	case err == nil && task.unrun(info):
		if s.inspector.RunTask(task.queue, task.id) == nil {
			return
		}
	case err == nil && info.State != asynq.TaskStateActive:
		return // it has come, or was archived by hand
	}
	if since > turnedFor || s.isStopped() && since > stopWithin {
		s.log.Warn("worker: a task that waited in its handler may be left in the archive", zap.String("queue", task.queue), zap.String("task", task.id), zap.Error(err))
		return
	}
	task.at = time.Now().Add(stillActive)
	if since > asynqsOwn && !s.isStopped() {
		task.at = time.Now().Add(turnedAgain)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.put(task)
}

// unrun tells that asynq archived a task in this attempt before its handler was called: too
// many turns, or an attempt that was lost while it waited. Of a lost one only the place in
// line shows it, which nobody has used.
func (t wakeup) unrun(info *asynq.TaskInfo) bool {
	return info.State == asynq.TaskStateArchived && info.Retried == t.retried && info.Retried >= info.MaxRetry &&
		(info.LastErr == putBack+errTurns.Error() || info.LastErr == asynq.ErrLeaseExpired.Error())
}
