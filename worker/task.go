package worker

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"

	"github.com/hibiken/asynq"
)

// attempt names one attempt of a task, by asynq's context of its handler.
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

// jobPrefix distinguishes the jobs of asynq from others in the same throttle.
const jobPrefix = "asynq:"

// jobID names this attempt among all jobs of a throttle.
func (a attempt) jobID() string { return JobID(a.queue, a.id, a.retried) }

// JobID returns the ID of the job of one attempt of a task: the attempt after retried retries.
// Programs that read a throttle from outside need it for inspect.Inspector.ExplainID.
func JobID(queue, task string, retried int) string {
	return jobPrefix + url.PathEscape(queue) + "/" + task + "/" + strconv.Itoa(retried)
}

// TaskOf returns the attempt that a JobID names. It returns false for a job of no task.
func TaskOf(jobID string) (queue, task string, retried int, ok bool) { return parseJobID(jobID) }

// WillNotCome reports, by asynq's answer about a job's task (asynq.Inspector.GetTaskInfo),
// whether the job will never come: its task was deleted, archived or completed, is at another
// attempt, or was deleted and enqueued anew for a later time. After asynq.ErrQueueNotFound it
// returns false: asynq's set of queues may lack a queue that servers work off.
func WillNotCome(jobID string, info *asynq.TaskInfo, err error) bool {
	_, _, retried, is := parseJobID(jobID)
	return is && fateOf(retried, info, err) == gone
}

// parseJobID reads a JobID. It returns false for the ID of any other job.
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
