package throttle

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// ErrUnavailable is the class of errors that say that Redis could not decide. Match it with
// errors.Is; *UnavailableError has the data.
var ErrUnavailable = errors.New("throttle: Redis cannot decide")

// ErrState is the class of errors that say that Redis has data under the throttle's keys that the
// throttle did not write. Nothing was written for the job or the scope key in question.
var ErrState = errors.New("throttle: foreign data under a key of the throttle")

// StateError says where foreign data was found, if that is known. It matches ErrState.
type StateError struct {
	// Key is the Redis key. It may contain a tenant's key.
	Key string
}

// Error shows a tenant's key only as a hash, since it may be private: the first bytes of the SHA-256
// of the whole Redis key.
func (e *StateError) Error() string {
	text := e.Key
	if prefix, rest, is := strings.Cut(e.Key, "}:"+wire.StateVersion+":"); is {
		if kind, _, private := strings.Cut(rest, ":"); private {
			sum := sha256.Sum256([]byte(e.Key))
			text = prefix + "}:" + wire.StateVersion + ":" + kind + ":… with SHA-256 " + hex.EncodeToString(sum[:6]) + "…"
		}
	}
	return ErrState.Error() + ": " + text
}

// Is reports whether target is ErrState, the class of this error.
func (e *StateError) Is(target error) bool { return target == ErrState }

// OptionError says which option is wrong and why.
type OptionError struct {
	Field  string // the option's name
	Value  any    // what it was
	Reason string
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("throttle: option %s = %s: %s", e.Field, shown(e.Value), e.Reason)
}

// shown writes a value in the text of an error. A reader sees that an empty text is one.
func shown(value any) string {
	if value == "" {
		return `""`
	}
	return fmt.Sprint(value)
}

// LimitError says why a limit is not valid.
type LimitError struct {
	Text   string // the limit as text
	Reason string
}

func (e *LimitError) Error() string { return fmt.Sprintf("throttle: limit %q: %s", e.Text, e.Reason) }

// InvalidJobError says which field of a job is wrong and why. Nothing was
// written. The job's keys are not in its text, since they may be private.
type InvalidJobError struct {
	Job    string // the job's ID
	Field  string // the field of Job
	Value  any    // what it was; for Keys the scope's name
	Reason string
}

func (e *InvalidJobError) Error() string {
	return fmt.Sprintf("throttle: job's %s %s %s", e.Field, shown(e.Value), e.Reason)
}

// ArgumentError says which argument of a call is wrong and why. Nothing was written.
type ArgumentError struct {
	Argument string // its name, or the name of its field
	Value    any    // what it was; nil if there is no value to show
	Reason   string
}

func (e *ArgumentError) Error() string {
	if e.Value == nil {
		return fmt.Sprintf("throttle: %s %s", e.Argument, e.Reason)
	}
	return fmt.Sprintf("throttle: %s %s %s", e.Argument, shown(e.Value), e.Reason)
}

// errNoContext is the error of a call without a context.
var errNoContext = &ArgumentError{Argument: "ctx", Reason: "is nil"}

// NeverFitsError says that a job weighs more than a limit of the configuration allows
// in a whole window, or a ramp in its last step: it can never start.
type NeverFitsError struct {
	Job        string // the job's ID
	Weight     int64  // what it costs under this limit, in units
	Scope, Key string
	Limit      Limit
}

func (e *NeverFitsError) Error() string {
	return fmt.Sprintf("throttle: weight %d can never start under the %s limit %s", e.Weight, e.Scope, e.Limit)
}

// BlockedError says that a job weighs more than a limit that was set at run time
// allows: the job cannot start until that limit is changed. Nothing is booked for it;
// ask again later.
type BlockedError struct {
	Job        string // the job's ID
	Weight     int64  // what it costs under this limit, in units
	Scope, Key string
	Limit      Limit
}

func (e *BlockedError) Error() string {
	return fmt.Sprintf("throttle: weight %d cannot start under the %s limit %s that was set", e.Weight, e.Scope, e.Limit)
}

// LineFullError says that a Bounded job would make the line of a scope key longer than its bound. Nothing
// was written for it; ask again later.
type LineFullError struct {
	Job        string // the job's ID
	Scope, Key string
	// Waiting is how long the line is, and MaxWaiting its bound, in the configuration of this process.
	Waiting, MaxWaiting Length
	// Wait is about how long the job would have waited for its start, as Reservation.Start is estimated.
	Wait time.Duration
}

func (e *LineFullError) Error() string {
	return fmt.Sprintf("throttle: the line of scope %s is full: it has %s, of at most %s; the wait is about %s", e.Scope,
		e.Waiting, e.MaxWaiting, e.Wait.Round(time.Second))
}

// DeadlineError says that a job cannot start by its deadline. Nothing is
// booked for it.
type DeadlineError struct {
	Job      string    // the job's ID
	Deadline time.Time // as the job gave it
	Start    time.Time // the earliest possible start, on Redis' clock; zero: none
	Hold     *Hold     // what it would have waited for
}

func (e *DeadlineError) Error() string {
	if e.Start.IsZero() {
		return fmt.Sprintf("throttle: there is no start before limits change, and the deadline is %s",
			e.Deadline.UTC().Format(time.RFC3339))
	}
	layout := time.RFC3339
	if e.Start.Unix() == e.Deadline.Unix() { // whole seconds would be equal
		layout = time.RFC3339Nano
	}
	return fmt.Sprintf("throttle: the earliest start %s is after the deadline %s",
		e.Start.UTC().Format(layout), e.Deadline.UTC().Format(layout))
}

// The kinds of failure.
const (
	failureTimeout  = "timeout"
	failureBreaker  = "breaker"
	failureReadOnly = "readonly"
	failureMemory   = "oom"
	failureTryAgain = "tryagain"
	failureBusy     = "busy"
	failureReplicas = "noreplica"
	failureOther    = "other"
)

// UnavailableError says that Redis could not decide, and why. It matches
// ErrUnavailable, the cause, and the context's error if the context ended.
type UnavailableError struct {
	Job   string // the job's ID, if the call was for one job
	Nonce string // ask again with it, so that a lost answer charges once
	// Failure is why, short and stable, a good label for a metric:
	//
	//	timeout    no answer within Options.Timeout or within the time of the caller's own
	//	           context; mostly also if the server is down, since the client tries again
	//	breaker    not asked: too many failures just now
	//	readonly   a replica answered
	//	oom        Redis is out of memory
	//	tryagain   a slot is being moved
	//	busy       a script or the loading of data blocks Redis
	//	noreplica  too few replicas for a write
	//	other      permissions, a wrong password, refused connections, and all else
	Failure string
	Err     error // the cause
	// Address is the address of the Redis that inspect.Inspector.Check asked; empty if it is not known.
	Address string

	replied bool // the cause is an answer of Redis
	own     bool // the caller's context ended, which says nothing about Redis
}

func (e *UnavailableError) Error() string {
	at := ""
	if e.Address != "" {
		at = " at " + e.Address
	}
	return fmt.Sprintf("throttle: Redis%s cannot decide (%s): %v", at, e.Failure, e.Err)
}

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }

// Is reports whether target is ErrUnavailable, the class of this error.
func (e *UnavailableError) Is(target error) bool { return target == ErrUnavailable }
