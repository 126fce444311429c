package otelthrottle

import (
	"context"
	"errors"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// The attributes of spans and metrics.
const (
	keyThrottle  = "throttle.name"
	keyScope     = "throttle.scope"
	keyResult    = "throttle.result"
	keyReason    = "throttle.reason"
	keyOutcome   = "throttle.outcome"
	keyKey       = "throttle.key"
	keyLimit     = "throttle.limit"
	keyUnits     = "throttle.units"
	keySource    = "throttle.source"
	keySlot      = "throttle.slot"
	keyTaskID    = "throttle.task.id"
	keyTaskType  = "throttle.task.type"
	keyTaskQueue = "throttle.task.queue"
)

// limitOfPause is the value of throttle.limit if a scope key is paused.
const limitOfPause = "pause"

const resultInvalid = "invalid"

// resultOf returns the result of a job that was granted, or got an error in place of a start. The words are those of
// the label outcome of package metrics.
func resultOf(err error) string {
	var late *throttle.DeadlineError
	var never *throttle.NeverFitsError
	var invalid *throttle.InvalidJobError
	var argument *throttle.ArgumentError
	var blocked *throttle.BlockedError
	var full *throttle.LineFullError
	switch {
	case err == nil:
		return throttle.Granted.String()
	case errors.As(err, &full):
		return "line_full"
	case errors.As(err, &blocked):
		return "blocked"
	case errors.As(err, &late):
		return "too_late"
	case errors.As(err, &never):
		return "never_fits"
	case errors.As(err, &invalid), errors.As(err, &argument):
		return resultInvalid
	case errors.Is(err, throttle.ErrUnavailable) && !errors.Is(err, context.Canceled):
		return "unavailable"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "cancelled"
	}
	return "failed"
}

// reasonOf returns why a job went back to its queue. The words are those of the label reason of package metrics.
func reasonOf(outcome throttle.Outcome, err error) string {
	var blocked *throttle.BlockedError
	switch {
	case errors.Is(err, throttle.ErrUnavailable):
		return "unavailable"
	case errors.As(err, &blocked):
		return "blocked"
	case err != nil:
		return "asked"
	case outcome == throttle.Granted:
		return "stopped"
	}
	return outcome.String()
}

// scopeThatHeld returns the scope that kept a job back; empty if the job waits for its turn, or if Redis could not
// decide.
func scopeThatHeld(p throttle.PutBack) string {
	var blocked *throttle.BlockedError
	var wait *worker.WaitError
	switch {
	case errors.As(p.Err, &blocked):
		return blocked.Scope
	case errors.As(p.Err, &wait):
		return wait.Scope
	case p.Reservation.Hold != nil:
		return p.Reservation.Hold.Scope
	}
	return ""
}
