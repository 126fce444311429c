package worker

import (
	"context"
	"errors"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
)

// spareHeader marks tasks that were made with more retries than their user asked for,
// and says how many that were.
const spareHeader = "Throttle-Spare-Retry"

// spareRetries are the retries that NewTask adds. A denial needs one to be left; the others
// are for attempts that are lost with their worker, or since asynq could not write how
// they ended: asynq counts these.
const spareRetries = 10

// asynqMaxRetry is what asynq gives a task without a MaxRetry option.
const asynqMaxRetry = 25

// NewTask returns a task like asynq.NewTaskWithHeaders, with ten spare retries. A
// denial needs a retry left, since asynq archives a task without one before it
// asks whether the error was a failure. Failures do not use the spare ones up: the
// middleware ends the task at the user's own count (MaxRetry among opts, else 25).
// Lost attempts do: those whose worker was killed, or whose end asynq could not
// write. Nobody knows of them whether the handler has run, so the last one is made up
// for: such a task runs at least once, and perhaps again. One that has lost ten beyond
// its own count is archived.
//
// A MaxRetry option given later, at Enqueue, takes the spare ones away: give it here.
// Tasks without, such as those made by asynq itself, work too; on their last retry
// they wait inside the handler.
func NewTask(typename string, payload []byte, headers map[string]string, opts ...asynq.Option) *asynq.Task {
	retries := asynqMaxRetry
	for _, opt := range opts {
		if opt != nil && opt.Type() == asynq.MaxRetryOpt {
			if n, isInt := opt.Value().(int); isInt {
				retries = min(n, math.MaxInt32-spareRetries) // asynq keeps 32 bits
			}
		}
	}
	marked := make(map[string]string, len(headers)+1)
	maps.Copy(marked, headers)
	marked[spareHeader] = strconv.Itoa(retries)
	own := append(append([]asynq.Option(nil), opts...), asynq.MaxRetry(retries+spareRetries))
	return asynq.NewTaskWithHeaders(typename, payload, marked, slices.Clip(own)...) // asynq appends to it, in whose goroutine ever
}

// attempt is what asynq says about the task that a handler is called with.
type attempt struct {
	queue, id      string
	retried, retry int
	came           time.Time // to the middleware, by the local clock
	spare          bool      // the last of the retries are ours
}

var errNoServer = errors.New("worker: the middleware was called without an asynq server: its context names no task")

func attemptOf(ctx context.Context, task *asynq.Task) (attempt, error) {
	id, hasID := asynq.GetTaskID(ctx)
	queue, hasQueue := asynq.GetQueueName(ctx)
	retried, hasRetried := asynq.GetRetryCount(ctx)
	retry, hasRetry := asynq.GetMaxRetry(ctx)
	if !hasID || !hasQueue || !hasRetried || !hasRetry {
		return attempt{}, errNoServer
	}
	// The mark alone does not do: headers are copied, and Enqueue may have got
	// another MaxRetry.
	spare := task.Headers()[spareHeader] == strconv.Itoa(retry-spareRetries)
	return attempt{queue: queue, id: id, retried: retried, retry: retry, came: time.Now(), spare: spare}, nil
}

// jobPrefix tells the jobs of asynq from others in the same throttle.
const jobPrefix = "asynq:"

// jobID names this attempt among all jobs of a throttle.
func (a attempt) jobID() string { return JobID(a.queue, a.id, a.retried) }

// JobID is what the throttle knows one attempt of a task by, that after so many retries:
// for who looks at a throttle from outside, as Throttle.ExplainID does.
func JobID(queue, task string, retried int) string {
	return jobPrefix + url.PathEscape(queue) + "/" + task + "/" + strconv.Itoa(retried)
}

// TaskOf is the attempt that a JobID is of. It returns false for a job that is no task's.
func TaskOf(jobID string) (queue, task string, retried int, ok bool) { return parseJobID(jobID) }

// WillNotCome tells from asynq's answer about a job's task (asynq.Inspector.GetTaskInfo)
// that nobody will come for the job's place: the task was deleted, archived by hand or
// completed, or is at a later attempt.
func WillNotCome(jobID string, info *asynq.TaskInfo, err error) bool {
	_, _, retried, is := parseJobID(jobID)
	switch {
	case !is || err == nil && (wakeup{retried: retried}).unrun(info):
		return false
	case gone(info, err):
		return true
	}
	return err == nil && (info.State == asynq.TaskStateCompleted || info.Retried > retried)
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

// mayReturn tells whether asynq takes the task back if it is denied now.
func (a attempt) mayReturn() bool { return a.retried < a.retry }

// own is how often its user lets the task be retried.
func (a attempt) own() int {
	if a.spare {
		return a.retry - spareRetries
	}
	return a.retry
}

// beyond tells that only the spare retries have brought a task here: its last own attempt
// ended without the middleware, by its Timeout, a panic, or with its worker.
func (a attempt) beyond() bool { return a.retried > a.own() }

// last tells that a failure of this attempt must be the task's last.
func (a attempt) last() bool { return a.spare && a.retried >= a.own() }
