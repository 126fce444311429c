package inspect

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Pause closes one scope key until a time, for all processes, from their next decision on: only
// jobs that were granted before still start under it. The key of Global is "". A booked job that
// asks again meanwhile goes to the front of its lane. Jobs of other scope keys are not delayed. A
// second pause never shortens the first: Resume ends it. A time in the past pauses nothing.
//
// The time is read by the local clock; its distance from now, up to 400 days, counts. The option
// Until does not apply. Pause returns when the pause ends, on Redis' clock. It blocks for two
// round trips, the second to record the change (Changes), and fails as Reserve does, without
// fallback; the error is also a *throttle.ArgumentError for a scope key that the throttle does not have or a time
// too far away, and a *throttle.OptionError for a reason or an author that is too long.
func (t *Inspector) Pause(ctx context.Context, scope, key string, until time.Time,
	options ...SetOption) (time.Time, error) {
	if err := t.in.CheckScopeKey(ctx, scope, key); err != nil {
		return time.Time{}, err
	}
	length := max(0, t.until(until))
	if length > wire.MaxWindow {
		return time.Time{}, &throttle.ArgumentError{Argument: "until", Value: until,
			Reason: "is more than " + wire.Duration(wire.MaxWindow) + " away"}
	}
	was, err := t.set(ctx, wire.SetPause, wire.ScopeKey(scope, key), strconv.FormatInt(length.Microseconds(), 10),
		slices.Concat(options, []SetOption{Until(time.Time{})}))
	if err != nil {
		return time.Time{}, err
	}
	ends, err := wire.PauseEnd(was.InForce)
	if err != nil {
		return time.Time{}, badReply("set")
	}
	if now := wire.Instant(was.Now); ends.Before(now) { // nothing is paused
		ends = now
	}
	if t.options.Observer != nil {
		t.options.Observer.Paused(throttle.Pause{Throttle: t.name, Scope: scope, Key: key, Until: ends})
	}
	return ends, nil
}

// Resume ends a pause now. It returns false if the scope key was not paused. A pull
// looks at once at the jobs that waited for the scope key. Resume blocks and fails as Pause does.
func (t *Inspector) Resume(ctx context.Context, scope, key string, options ...SetOption) (bool, error) {
	if err := t.in.CheckScopeKey(ctx, scope, key); err != nil {
		return false, err
	}
	was, err := t.set(ctx, wire.SetResume, wire.ScopeKey(scope, key), "", options)
	if err != nil {
		return false, err
	}
	ended, err := wire.PauseEnd(was.Before)
	if err != nil {
		return false, badReply("set")
	}
	return ended.After(wire.Instant(was.Now)), nil
}

// SetLimits sets the limits of one scope key at run time, for all processes, from
// their next decision on. With an empty key of a keyed scope it sets the limits of all
// keys for which none are set. Redis keeps these limits until ResetLimits, or until they end
// by themselves (Until), and they win over every configuration.
//
// New units apply at once, and earlier starts still count. After a limit was lowered, no job starts
// until the window is under the limit, and a booked job may have to wait longer. After it was
// raised, the next decisions use it. A window or a precision that is new to the scope
// key counts only from its first use on. A limit without a Precision therefore gets the precision of
// the configured limit with the same window, unless that precision is finer than the default and the
// limit has more than 1,000 units: its ledger would get long. A running limit without a Lease gets
// the configured lease.
//
// A limit of 0 keeps all jobs back, and Unlimited lifts the limit. Under a limit of 0 jobs wait in line. A job
// that weighs more than another limit gets a *BlockedError until the limits change.
//
// Limits end by Redis' clock, for all processes at the same instant. The limits that come into force at
// that instant have counted earlier starts too, and apply to every start from then on; a pull then looks
// at the waiting jobs.
//
// SetLimits blocks and fails as Pause does; the error is also a *LimitError or an *OptionError.
func (t *Inspector) SetLimits(ctx context.Context, scope, key string, limits []throttle.Limit,
	options ...SetOption) error {
	text, err := t.limitsToSet(scope, limits)
	if err != nil {
		return err
	}
	return t.setLimits(ctx, scope, key, text, options)
}

// CheckLimits returns the error with which SetLimits would refuse limits of a scope, their end or their reason: a
// *LimitError or an *OptionError; nil if it would set them. CheckLimits changes nothing and does not block.
func (t *Inspector) CheckLimits(scope string, limits []throttle.Limit, options ...SetOption) error {
	if _, err := t.limitsToSet(scope, limits); err != nil {
		return err
	}
	_, _, err := t.termsOf(options)
	return err
}

// limitsToSet checks limits, and returns them as the scripts read them.
func (t *Inspector) limitsToSet(scope string, limits []throttle.Limit) (string, error) {
	if len(limits) == 0 {
		return "", &throttle.OptionError{Field: "limits", Value: 0,
			Reason: "are none; Unlimited lifts a limit, ResetLimits takes back what was set"}
	}
	return t.in.LimitsToSet(scope, limits)
}

// ResetLimits takes back what SetLimits set for a scope key or, with an empty key of a keyed
// scope, for all its keys: the limits set for the scope, or else each process' configuration, are in
// force again. If one scope key is named, its served share is 1 again. ResetLimits blocks and fails as Pause does.
func (t *Inspector) ResetLimits(ctx context.Context, scope, key string, options ...SetOption) error {
	return t.setLimits(ctx, scope, key, "", options)
}

func (t *Inspector) setLimits(ctx context.Context, scope, key, text string, options []SetOption) error {
	name := scope
	if key != "" || scope == throttle.Global {
		name = wire.ScopeKey(scope, key)
		if err := t.in.CheckScopeKey(ctx, scope, key); err != nil {
			return err
		}
	} else if err := t.in.CheckScope(ctx, scope); err != nil {
		return err
	}
	_, err := t.set(ctx, wire.SetLimits, name, text, options)
	return err
}

// SetMode sets the mode of a scope at run time, for all processes, from their next
// decision on; with an empty scope, the mode of all scopes for which none is set. Redis keeps the
// mode until ResetMode, or until it ends by itself, as limits do. It wins over every
// configuration. SetMode blocks and fails as SetLimits does.
func (t *Inspector) SetMode(ctx context.Context, scope string, mode throttle.Mode, options ...SetOption) error {
	if mode < throttle.Enforce || mode > throttle.Off {
		return &throttle.OptionError{Field: "mode", Value: int(mode), Reason: "is none of Enforce, Shadow, Off"}
	}
	return t.setMode(ctx, scope, wire.Modes[mode:mode+1], options)
}

// ResetMode takes back what SetMode set. It blocks and fails as SetLimits does.
func (t *Inspector) ResetMode(ctx context.Context, scope string, options ...SetOption) error {
	return t.setMode(ctx, scope, "", options)
}

func (t *Inspector) setMode(ctx context.Context, scope, letter string, options []SetOption) error {
	if err := t.in.CheckScope(ctx, scope); scope != "" && err != nil {
		return err
	}
	_, err := t.set(ctx, wire.SetMode, scope, letter, options)
	return err
}

// set changes a setting at run time.
func (t *Inspector) set(ctx context.Context, what, name, value string, options []SetOption) (wire.WasSet, error) {
	if ctx == nil {
		return wire.WasSet{}, errNoContext
	}
	of, left, err := t.termsOf(options)
	if err != nil {
		return wire.WasSet{}, err
	}
	was, err := t.in.Set(ctx, wire.Set{What: what, Name: name, Value: value, Lasts: left.Microseconds(),
		Note: wire.Note(t.who(of), of.why)})
	if err == nil {
		t.noteChange(ctx, what, name, was, of)
	}
	return was, err
}
