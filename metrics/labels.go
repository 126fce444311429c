package metrics

import (
	"context"
	"errors"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// The values of the label direction.
const (
	directionAdded    = "added"
	directionLowered  = "lowered"
	directionRaised   = "raised"
	directionReturned = "returned"
)

// The values of the label event.
const (
	eventCharged = "charged"
	eventStarted = "started"
)

// The values of the label source, beside the names of the fallbacks that grant.
const (
	sourceRedis = "redis"
	sourceNone  = "none" // neither Redis nor a fallback decided
)

// The values of the label outcome where there is no reservation.
const (
	outcomeNeverFits   = "never_fits"
	outcomeTooLate     = "too_late"
	outcomeBlocked     = "blocked"
	outcomeLineFull    = "line_full"
	outcomeInvalid     = "invalid"
	outcomeUnavailable = "unavailable"
	outcomeCancelled   = "cancelled"
	outcomeFailed      = "failed" // foreign data
)

// undecided are the outcomes whose source is none.
var undecided = []string{outcomeNeverFits, outcomeBlocked, outcomeLineFull, outcomeInvalid, outcomeUnavailable,
	outcomeCancelled, outcomeFailed}

// The values of the label reason.
const (
	reasonBooked      = "booked"      // until its slot
	reasonWaiting     = "waiting"     // in line
	reasonStopped     = "stopped"     // granted, but the worker stopped before the start
	reasonUnavailable = "unavailable" // Redis could not decide
	reasonBlocked     = "blocked"     // a limit that was set has no room for its weight
	reasonAsked       = "asked"       // the upstream asked to wait, and its pause is not in force
)

var reasons = []string{reasonBooked, reasonWaiting, reasonStopped, reasonUnavailable, reasonBlocked, reasonAsked}

// ends are the values of the label reason of jobs that were ended.
var ends = []string{outcomeNeverFits, outcomeTooLate, endNoTime}

// endNoTime: the task has no retry left to be put back with, and cannot start within its Timeout.
const endNoTime = "no_time"

// endOf returns why a job was ended.
func endOf(err error) string {
	var late *throttle.DeadlineError
	var never *throttle.NeverFitsError
	switch {
	case errors.As(err, &late):
		return outcomeTooLate
	case errors.As(err, &never):
		return outcomeNeverFits
	}
	return endNoTime
}

// failures are the kinds of throttle.UnavailableError.
var failures = []string{"timeout", "breaker", "readonly", "oom", "tryagain", "busy", "noreplica", "other"}

// outcomeOf returns the outcome of a decision, or the class of its error.
func outcomeOf(d throttle.Decision) string {
	if d.Err == nil {
		return d.Reservation.Outcome.String()
	}
	var late *throttle.DeadlineError
	var never *throttle.NeverFitsError
	var invalid *throttle.InvalidJobError
	var argument *throttle.ArgumentError
	var blocked *throttle.BlockedError
	var full *throttle.LineFullError
	switch {
	case errors.As(d.Err, &full):
		return outcomeLineFull
	case errors.As(d.Err, &blocked):
		return outcomeBlocked
	case errors.As(d.Err, &late):
		return outcomeTooLate
	case errors.As(d.Err, &never):
		return outcomeNeverFits
	case errors.As(d.Err, &invalid), errors.As(d.Err, &argument):
		return outcomeInvalid
	case isCancelled(d.Err):
		return outcomeCancelled
	case errors.Is(d.Err, throttle.ErrUnavailable):
		return outcomeUnavailable
	}
	return outcomeFailed
}

// isCancelled reports whether the caller's context was cancelled, or had ended before Redis was asked.
func isCancelled(err error) bool {
	return errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, throttle.ErrUnavailable)
}

// sourceOf returns what decided: Redis, a fallback or none.
func sourceOf(d throttle.Decision) string {
	var late *throttle.DeadlineError
	switch {
	case d.Err == nil:
		return sourceText(d.Reservation.Source)
	case errors.As(d.Err, &late):
		return sourceRedis
	}
	return sourceNone
}

// sourceText returns what granted: Redis, unless a fallback did.
func sourceText(source throttle.Fallback) string {
	if source == throttle.FallbackClosed {
		return sourceRedis
	}
	return source.String()
}

// reasonOf returns why a job was put back.
func reasonOf(p throttle.PutBack) string {
	var blocked *throttle.BlockedError
	switch {
	case errors.Is(p.Err, throttle.ErrUnavailable):
		return reasonUnavailable
	case errors.As(p.Err, &blocked):
		return reasonBlocked
	case p.Err != nil:
		return reasonAsked
	case p.Reservation.Outcome == throttle.Waiting:
		return reasonWaiting
	case p.Reservation.Outcome == throttle.Granted:
		return reasonStopped
	}
	return reasonBooked
}

// windowOf returns the label window of what holds a job back: 1m, running, day@UTC, open, or pause.
func windowOf(hold *throttle.Hold) string {
	if hold.Paused {
		return "pause"
	}
	return hold.Limit.Label()
}
