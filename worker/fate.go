package worker

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
)

// fate is what asynq's answer means for a task that has a reservation.
type fate int

const (
	unknown  fate = iota // asynq did not answer
	resting              // this library put it back, or planned it, and wakes it
	underway             // it is pending, or a worker has it: it asks by itself
	gone                 // it will never use the reservation
)

// fateOf is the one rule for which tasks are woken, and for whether a reservation still belongs
// to its task. The number of retries names the attempt, and a mark that asynq keeps shows that
// this library put the task back or planned it. A task without the mark was deleted and enqueued
// anew under its ID, for a time that its user gave: it is not woken, and the reservation belongs
// to the deleted task.
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
		if info.State == asynq.TaskStateRetry && WasPutBack(info) || isPlanned(info) {
			return resting
		}
		return gone
	}
	return underway
}

// WasPutBack reports whether the last error of a task that asynq's Inspector returned is no failure but a put-back.
// asynq keeps only an error's text, and a put-back is known by the beginning of its text, "throttled: ", also if a
// middleware around the shaper's put words before it. So an error of the user with these words counts as a put-back
// too; a panic does not. A task that a put-back has archived has failed by it.
func WasPutBack(info *asynq.TaskInfo) bool {
	return info.State != asynq.TaskStateArchived && saysPutBack(info.LastErr)
}

// panicText begins asynq's text of a handler's panic.
const panicText = "panic"

// saysPutBack reports whether a task's last error is the text of a put-back. A panic may say anything.
func saysPutBack(lastErr string) bool {
	return strings.Contains(lastErr, putBackText) && !strings.HasPrefix(lastErr, panicText)
}

// isOwed reports, by a task's last error, whether the task runs although its own retries are
// used up: it was put back; or asynq lost the last attempt, and nobody knows whether that one
// ran; or exhausted had ended the task, and a person runs it again. A panic may say anything. So may a middleware
// around the shaper's, and its error with the words of a put-back is taken for one: asynq keeps only the text.
func isOwed(lastErr string) bool {
	isEnded := strings.Contains(lastErr, usedUpText) && !strings.HasPrefix(lastErr, panicText)
	return lastErr == asynq.ErrLeaseExpired.Error() || saysPutBack(lastErr) || isEnded
}

// plannedHeader is the time for which a Client enqueued a planned task, in Unix seconds.
const plannedHeader = "Throttle-Planned"

// isPlanned reports whether the task rests until the time that a Client planned. Users copy
// headers, so the time must match, too.
func isPlanned(info *asynq.TaskInfo) bool {
	return info.State == asynq.TaskStateScheduled && info.Headers[plannedHeader] == plannedFor(info.NextProcessAt)
}

func plannedFor(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }
