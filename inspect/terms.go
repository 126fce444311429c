package inspect

import (
	"fmt"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// SetOption adds an end, a reason or an author to a change at run time.
type SetOption func(*terms)

// terms are the options of a change.
type terms struct {
	until    time.Time
	why, by  string
	upstream bool
}

// Until ends the setting by itself at a time. From that instant on, the setting of the scope, or else each
// process' configuration, is in force again. The time is read by the local clock; its distance from now, up
// to 400 days, counts. The zero time means no end.
func Until(end time.Time) SetOption { return func(t *terms) { t.until = end } }

// Why gives the reason, for people, in at most 200 bytes.
func Why(reason string) SetOption { return func(t *terms) { t.why = reason } }

// By names the person who makes the change, in at most 100 bytes. The process and its user are recorded in any
// case.
func By(person string) SetOption { return func(t *terms) { t.by = person } }

// ForUpstream marks a change that a program makes because an upstream asked for it. Such changes are
// recorded in a list of their own, so that they push out none that a person made.
func ForUpstream() SetOption { return func(t *terms) { t.upstream = true } }

const (
	mostWhy = 200 // bytes
	mostBy  = 100
)

// termsOf reads options, and returns how long the setting lasts; 0 means until a reset. It refuses texts that are too
// long, and an end that is past or too far away.
func (t *Inspector) termsOf(options []SetOption) (of terms, left time.Duration, err error) {
	for _, option := range options {
		if option != nil {
			option(&of)
		}
	}
	switch {
	case len(of.why) > mostWhy:
		return of, 0, &throttle.OptionError{Field: "Why", Value: len(of.why),
			Reason: fmt.Sprintf("bytes are more than %d", mostWhy)}
	case len(of.by) > mostBy:
		return of, 0, &throttle.OptionError{Field: "By", Value: len(of.by),
			Reason: fmt.Sprintf("bytes are more than %d", mostBy)}
	}
	left, err = t.left(of)
	return of, left, err
}

// left returns how long the setting lasts; 0 means until a reset.
func (t *Inspector) left(of terms) (time.Duration, error) {
	if of.until.IsZero() {
		return 0, nil
	}
	left := t.until(of.until)
	switch {
	case left < time.Microsecond:
		return 0, &throttle.OptionError{Field: "Until", Value: of.until,
			Reason: "is past"}
	case left > wire.MaxWindow:
		return 0, &throttle.OptionError{Field: "Until", Value: of.until,
			Reason: "is more than " + wire.Duration(wire.MaxWindow) + " away"}
	}
	return left, nil
}

// who names the person, if one was given, and the process with its user.
func (t *Inspector) who(of terms) string {
	if of.by == "" {
		return t.actor()
	}
	return of.by + ", " + t.actor()
}

// until returns how far away an instant is by the local clock, the only clock that the caller can have read.
func (t *Inspector) until(at time.Time) time.Duration {
	if clock := t.in.Clock(); clock != nil {
		return at.Sub(clock())
	}
	return time.Until(at)
}
