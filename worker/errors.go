package worker

import (
	"errors"
	"fmt"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// PutBackError says that a task was not granted and goes back to asynq. It is no
// failure: with the Config that Configure returned it costs no retry and is not
// reported to ErrorHandler. asynq shows its text as the task's last error, so the text is short
// and stable, and has no key in it.
type PutBackError struct {
	// Queue and TaskID name the task.
	Queue, TaskID string
	// Delay is how long after the put-back asynq brings the task back if no process wakes
	// it before.
	Delay time.Duration
	// Slot is the start that the task was promised, on Redis' clock, or, in line, an estimate
	// of its start; zero if nothing was promised (Err).
	Slot time.Time
	// InLine is true if the task waits in line and is not booked yet.
	InLine bool
	// Hold is what keeps the task back; nil if it waits only for its turn, or if nothing was promised.
	Hold *throttle.Hold
	// Err is why nothing could be promised: Redis could not decide, the throttle belongs
	// to another deployment of asynq (*DeploymentError), the task weighs more than a limit that
	// was set at run time, or the upstream asked to wait. Else nil.
	Err error

	use *use // of the shaper that put the task back
}

// putBackText begins the text of every put-back.
const putBackText = "throttled: "

func (e *PutBackError) Error() string { return putBackText + e.reason() }

func (e *PutBackError) reason() string {
	switch {
	case isBlocked(e.Err):
		return "it weighs more than a limit that was set allows"
	case e.Err != nil:
		var wait *WaitError
		if errors.As(e.Err, &wait) {
			return wait.Error()
		}
		var others *DeploymentError
		if errors.As(e.Err, &others) {
			return "another asynq deployment owns the throttle"
		}
		var unavailable *throttle.UnavailableError
		if errors.As(e.Err, &unavailable) {
			return fmt.Sprintf("Redis cannot decide (%s)", unavailable.Failure)
		}
		return "Redis cannot decide"
	case e.Hold != nil && e.Hold.Paused:
		return fmt.Sprintf("%s paused, starts about %s", e.Hold.Scope, e.Slot.UTC().Format(time.RFC3339))
	case e.Hold != nil && e.Hold.Limit.Units == 0:
		return fmt.Sprintf("closed by %s limit %s, until that is changed", e.Hold.Scope, e.Hold.Limit)
	case e.InLine && e.Hold != nil:
		return fmt.Sprintf("%s limit %s, in line, about %s", e.Hold.Scope, e.Hold.Limit, e.Slot.UTC().Format(time.RFC3339))
	case e.InLine:
		return "in line, about " + e.Slot.UTC().Format(time.RFC3339)
	case e.Hold != nil:
		return fmt.Sprintf("%s limit %s, starts %s", e.Hold.Scope, e.Hold.Limit, e.Slot.UTC().Format(time.RFC3339))
	}
	return "starts " + e.Slot.UTC().Format(time.RFC3339)
}

// Unwrap returns Err.
func (e *PutBackError) Unwrap() error { return e.Err }

// IsPutBack reports whether err means that a task was put back. Error handlers and metrics
// around the shaper's middleware need it.
func IsPutBack(err error) bool {
	var putBack *PutBackError
	return errors.As(err, &putBack)
}
