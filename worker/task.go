package worker

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"

	"github.com/hibiken/asynq"
)

// attempt is what asynq says about the task that a handler is called with.
type attempt struct {
	queue, id string
	retries
}

var errNoServer = errors.New("worker: the middleware was called without an asynq server: its context names no task")

func attemptOf(ctx context.Context, task *asynq.Task) (attempt, error) {
	id, hasID := asynq.GetTaskID(ctx)
	queue, hasQueue := asynq.GetQueueName(ctx)
	counts, hasCounts := retriesOf(ctx, task)
	if !hasID || !hasQueue || !hasCounts {
		return attempt{}, errNoServer
	}
	return attempt{queue: queue, id: id, retries: counts}, nil
}

// jobPrefix tells the jobs of asynq from others in the same throttle.
const jobPrefix = "asynq:"

// jobID names this attempt among all jobs of a throttle.
func (a attempt) jobID() string { return JobID(a.queue, a.id, a.retried) }

// JobID is what the throttle knows one attempt of a task by, that after so many retries:
// for programs that look at a throttle from outside, by inspect.Inspector.ExplainID.
func JobID(queue, task string, retried int) string {
	return jobPrefix + url.PathEscape(queue) + "/" + task + "/" + strconv.Itoa(retried)
}

// TaskOf is the attempt that a JobID is of. It returns false for a job that is no task's.
func TaskOf(jobID string) (queue, task string, retried int, ok bool) { return parseJobID(jobID) }

// WillNotCome tells from asynq's answer about a job's task (asynq.Inspector.GetTaskInfo)
// that nobody will come for the job's place: the task was deleted, archived or completed, is
// at another attempt, or was deleted and enqueued anew for a later time. asynq.ErrQueueNotFound does not tell
// that: asynq's list of queues may lack one that is worked off.
func WillNotCome(jobID string, info *asynq.TaskInfo, err error) bool {
	_, _, retried, is := parseJobID(jobID)
	return is && fateOf(retried, info, err) == gone
}

// parseJobID reads what jobID has written. A job of another kind, such as one that
// waits without asynq, is none.
func parseJobID(id string) (queue, task string, retried int, ok bool) {
	rest, ok := strings.CutPrefix(id, jobPrefix)
	if !ok {
		return "", "", 0, false
	}
	queue, rest, ok = strings.Cut(rest, "/")
	i := strings.LastIndexByte(rest, '/')
	if !ok || i < 0 {
		return "", "", 0, false
	}
	retried, err := strconv.Atoi(rest[i+1:])
	queue, unescaped := url.PathUnescape(queue)
	return queue, rest[:i], retried, err == nil && unescaped == nil
}
