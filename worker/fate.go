package worker

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
)

// fate is what asynq's answer tells of a task that has a place in the throttle.
type fate int

const (
	unknown  fate = iota // asynq does not say
	resting              // this library put it back, or planned it: it is to be woken
	underway             // it is pending, or with a worker: it asks by itself
	gone                 // nobody will come for the place
)

// fateOf is the one rule for which tasks are woken, and for whether a place is still its
// task's. It knows the attempt by the number of retries before it, and what this library put
// back or planned by a mark that asynq keeps. A task without the mark rests for a time that
// its user gave it: it was deleted and enqueued anew under its ID. It is not woken, and the
// place is that of the deleted one.
func fateOf(retried int, info *asynq.TaskInfo, err error) fate {
	switch {
	case errors.Is(err, asynq.ErrTaskNotFound):
		return gone
	case err != nil:
		return unknown
	case info.Retried != retried:
		return gone
	}
	switch info.State {
	case asynq.TaskStateArchived, asynq.TaskStateCompleted:
		return gone
	case asynq.TaskStateRetry, asynq.TaskStateScheduled:
		if wasPutBack(info) || isPlanned(info) {
			return resting
		}
		return gone
	}
	return underway
}

// wasPutBack reports whether the task's last error is a put-back. A middleware of the user may
// have put words before it.
func wasPutBack(info *asynq.TaskInfo) bool {
	return info.State == asynq.TaskStateRetry && strings.Contains(info.LastErr, putBackText)
}

// isOwed reports, by a task's last error, whether the task runs although its own retries are
// used up: it was put back; or asynq lost the last attempt, and nobody knows whether that one
// ran; or exhausted had ended the task, and a person runs it again.
func isOwed(lastErr string) bool {
	return lastErr == asynq.ErrLeaseExpired.Error() ||
		strings.Contains(lastErr, putBackText) || strings.Contains(lastErr, usedUpText)
}

// plannedHeader says for when a Client enqueued a task that it planned, in Unix seconds.
const plannedHeader = "Throttle-Planned"

// isPlanned tells that the task rests until the time that a Client planned. Headers are
// copied, so the time counts, not the header alone.
func isPlanned(info *asynq.TaskInfo) bool {
	return info.State == asynq.TaskStateScheduled && info.Headers[plannedHeader] == plannedFor(info.NextProcessAt)
}

func plannedFor(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }
