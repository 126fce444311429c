package throttle

import (
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/calendar"
	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// rampText begins the text of a ramp.
const rampText = "ramp"

// Ramp returns the quota whose units grow, to warm up a new IP address or account:
//
//	Ramp("50 100 200 400/day from 2026-12-01 @UTC")
//	Ramp("50/day x2 every 2d max 20000 from 2026-12-01 @Europe/Paris")
//	Ramp("50/day +50 max 500 from 2026-12-01 @UTC")
//
// The text has the units of each step, or those of the first and a rule: a factor above 1 with up to three decimals,
// or a number to add, and the max at which the ramp ends. Each step of a rule is rounded down, is at least one unit
// more than the one before, and at most max. A ramp has up to 100 steps, each of more units than the one before. A rule
// that would take more steps, or has no max, is refused.
//
// Then follows the period, as for a quota. Then come, in any order: every, how many periods a step lasts, in the unit
// of the period, as 2d, 2w or 2mo, and without it one period; from, a date: the first step begins with the first period
// that begins then or later; held, a date in the period since which the units do not grow. At the end stand an at sign
// and the time zone.
//
// Before the first step nothing starts. The units of the last step hold from then on. What cannot be read, New and
// SetLimits refuse with a *LimitError.
func Ramp(text string) Limit {
	of, err := calendar.RampOf(text)
	if err != nil {
		return Limit{Ramp: text}
	}
	return rampOf(of)
}

func rampOf(of *calendar.Ramp) Limit {
	return Limit{Units: of.Last(), Calendar: calendarOf(of.Calendar), Ramp: of.String()}
}

// isRamp reports whether its units grow.
func (l Limit) isRamp() bool { return l.Ramp != "" }

// ramp returns the ramp of its text; nil for another limit, and for one that validate refuses.
func (l Limit) ramp() *calendar.Ramp {
	if !l.isRamp() {
		return nil
	}
	of, err := calendar.RampOf(l.Ramp)
	if err != nil {
		return nil
	}
	return of
}

func (l Limit) validateRamp() error {
	of, err := calendar.RampOf(l.Ramp)
	switch {
	case err != nil:
		return &LimitError{Text: l.String(), Reason: err.Error()}
	case of.String() != l.Ramp:
		return &LimitError{Text: l.String(), Reason: "the ramp is not written as Ramp writes it: " + of.String()}
	case l != rampOf(of):
		return &LimitError{Text: l.String(), Reason: "a ramp has the units of its last step, the calendar of its text, " +
			"and no window, precision, lease or hours"}
	}
	return nil
}

// steps are its steps as the scripts have them; empty for a limit that is no ramp.
func (l Limit) steps() string {
	if of := l.ramp(); of != nil {
		return line.RampText(of.Steps)
	}
	return ""
}

// UnitsAt returns the units that are in force at an instant, by the zone data of this process: of a ramp those of its
// step, 0 before the first; of another limit its Units.
func (l Limit) UnitsAt(at time.Time) int64 {
	if of := l.ramp(); of != nil {
		return of.Of(of.Period(at))
	}
	return l.Units
}

// Held returns the ramp that keeps the units of an instant, until it is continued; a job that weighs more waits. A ramp
// that is held stays as it is, as does a limit that is no ramp. Set what is returned with Inspector.SetLimits; the
// count of the period goes on.
func (l Limit) Held(at time.Time) Limit {
	if of := l.ramp(); of != nil {
		return rampOf(of.HeldAt(at))
	}
	return l
}

// Continued returns the ramp that goes on, from an instant on, with the step at which it was held: each later step
// comes later by as many periods as the ramp was held. A limit that is not held stays as it is.
func (l Limit) Continued(at time.Time) Limit {
	if of := l.ramp(); of != nil {
		return rampOf(of.ContinuedAt(at))
	}
	return l
}

// Ended returns the plain quota of the ramp's last step. A limit that is no ramp stays as it is.
func (l Limit) Ended() Limit {
	l.Ramp = ""
	return l
}
