package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"strings"

	"github.com/hibiken/asynq"
)

// spareHeader marks tasks that were made with one retry more than their user
// asked for, and says how many that were.
const spareHeader = "Throttle-Spare-Retry"

// asynqMaxRetry is what asynq gives a task without a MaxRetry option.
const asynqMaxRetry = 25

// NewTask returns a task like asynq.NewTaskWithHeaders, with one spare retry. A
// denial needs a retry left, since asynq archives a task without one before it
// asks whether the error was a failure; the spare one is never used up by
// failures: the middleware ends the task at the user's own count (MaxRetry among
// opts, else 25). A MaxRetry option given later, at Enqueue, takes the spare
// away: give it here. Tasks without a spare, such as those made by asynq itself,
// work too; on their last retry they wait inside the handler.
func NewTask(typename string, payload []byte, headers map[string]string, opts ...asynq.Option) *asynq.Task {
	retries := asynqMaxRetry
	for _, opt := range opts {
		if opt != nil && opt.Type() == asynq.MaxRetryOpt {
			if n, isInt := opt.Value().(int); isInt {
				retries = n
			}
		}
	}
	marked := make(map[string]string, len(headers)+1)
	maps.Copy(marked, headers)
	marked[spareHeader] = strconv.Itoa(retries)
	own := append(append([]asynq.Option(nil), opts...), asynq.MaxRetry(retries+1))
	return asynq.NewTaskWithHeaders(typename, payload, marked, own...)
}

// attempt is what asynq says about the task that a handler is called with.
type attempt struct {
	queue, id      string
	retried, retry int
	spare          bool // one of the retries is ours
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
	spare := task.Headers()[spareHeader] == strconv.Itoa(retry-1)
	return attempt{queue: queue, id: id, retried: retried, retry: retry, spare: spare}, nil
}

// jobPrefix tells the jobs of asynq from others in the same throttle.
const jobPrefix = "asynq:"

// jobID names this attempt among all jobs of a throttle.
func (a attempt) jobID() string {
	return fmt.Sprintf(jobPrefix+"%s/%s/%d", url.PathEscape(a.queue), a.id, a.retried)
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

// usedUp tells that a task's own retries are over and only the spare one has
// brought it here: its last attempt ended without the middleware, by its Timeout,
// a panic or a lost worker.
func (a attempt) usedUp() bool { return a.spare && a.retried >= a.retry }

// last tells that a failure of this attempt must be the task's last.
func (a attempt) last() bool { return a.spare && a.retried >= a.retry-1 }
