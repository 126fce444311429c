package inspect

import (
	"context"
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Usage is the state of one scope key and of its limits.
type Usage struct {
	// Scope and Key name the scope key; Key is empty for Global.
	Scope, Key string
	// Now is the instant of the answer, on Redis' clock.
	Now time.Time
	// Mode is the mode in force.
	Mode throttle.Mode
	// Paused is when the pause ends, on Redis' clock; zero if the scope key is not paused.
	Paused time.Time
	// Served is the served share of the limits, as Throttle.Report sets it: 1 unless the upstream
	// has refused a job or reported that it serves less.
	Served float64
	// SetFor is "scope" or "key" if the limits were set at run time for the scope or the key;
	// empty if they are the configured ones.
	SetFor string
	// Ends is when a setting made at run time (the limits or the mode) ends by itself, on Redis' clock:
	// the first end if both do, zero if neither does.
	Ends time.Time
	// Waiting is how many flows wait under the scope key. Next is when a pull looks at these flows again,
	// on Redis' clock; zero if no flow waits.
	Waiting int64
	Next    time.Time
	// Line is how long the scope key's line is: the jobs that are planned, booked or waiting and have not
	// started. Only jobs of processes with a throttle.Scope.MaxWaiting count. MaxWaiting is the bound of the line in
	// the configuration of this Inspector; zero for no bound.
	Line, MaxWaiting throttle.Length
	// Limits has an entry for each limit in force: hours, the running limit, then the windows and then the quotas, short
	// ones first.
	Limits []LimitUsage
}

// LimitUsage is the state of one limit of a scope key.
type LimitUsage struct {
	// Limit is the limit as it is entered: a Precision or Lease of 0 stands for the default or, in a
	// limit set at run time, for that of the configured limit with the same Label.
	Limit throttle.Limit
	// Units are the units in force: those of the present step of a ramp, 0 before the ramp begins; those of Limit for
	// any other limit.
	Units int64
	// Used is how many units started in the window that ends now, or were charged in advance
	// (throttle.Options.Advance). A sub-window counts until it lies wholly outside the window. Under a running limit,
	// Used is how many units run or cool down; under a quota, how many started in the period.
	Used int64
	// Booked is how many units are promised to jobs that wait for their slot, including units
	// that were granted for a later start.
	Booked int64
	// Free is the earliest start for a job of weight 1 under this limit, on Redis'
	// clock; zero if no start is possible, since the limit is 0, or a ramp is held before it begins. For Unlimited
	// it is Now. Under a running limit without room, Free is when the first lease ends: a place is free then or
	// before.
	Free time.Time
	// Counts is about how long a start counts: the Window or, under a running limit, how long jobs run, by
	// throttle.Scope.Runs or as measured in this process. It is 0 if the running time is not known.
	Counts time.Duration
	// Anew is when the period of a quota ends, on Redis' clock, and the next period begins. For hours, Anew is when
	// they open or close next; zero if they are open for longer than Redis knows. Anew is zero for other limits.
	Anew time.Time
}

// HoursText says whether hours are open and until when, by the clock of their zone, such as
// "closed until Mon 09:00 Europe/Paris"; with the date if the time is a week ahead or more. It is empty for other
// limits.
func (l LimitUsage) HoursText(now time.Time) string {
	zone, err := time.LoadLocation(l.Limit.Zone())
	if l.Limit.Hours == "" || err != nil {
		return ""
	}
	text := "open"
	if l.Free.After(now) {
		text = "closed"
	}
	if l.Anew.IsZero() {
		return text
	}
	format := "Mon 15:04"
	if l.Anew.Sub(now) >= 7*24*time.Hour {
		format = "Mon 2006-01-02 15:04"
	}
	return text + " until " + l.Anew.In(zone).Format(format) + " " + l.Limit.Zone()
}

// isClosed reports whether a limit of 0 keeps all jobs back.
func (u Usage) isClosed() bool {
	return u.Mode == throttle.Enforce && slices.ContainsFunc(u.Limits, func(l LimitUsage) bool { return l.Free.IsZero() })
}

// Usage returns the state of a scope key: its limits in force, and their used and promised units. The key of
// Global is "". A very long key may be given as its hash, which Lanes and UsageAll return in its place. Usage changes
// nothing. It blocks for one round trip and fails as Reserve does, without fallback; the error is also an
// *ArgumentError for a scope key that the throttle does not have.
func (t *Inspector) Usage(ctx context.Context, scope, key string) (Usage, error) {
	name, err := t.scopeKeyName(ctx, scope, key)
	if err != nil {
		return Usage{}, err
	}
	a, err := t.usage(ctx, wire.Usage{Names: []string{name}})
	if err != nil {
		return Usage{}, err
	}
	a[0].Key = key // Redis has only the hash of a very long key
	return a[0].Usage, nil
}

// scopeKeyName checks a scope key, and returns its name in Redis.
func (t *Inspector) scopeKeyName(ctx context.Context, scope, key string) (string, error) {
	if scope != throttle.Global && wire.IsHash(key) {
		return scope + ":" + key, t.in.CheckScope(ctx, scope)
	}
	return wire.ScopeKey(scope, key), t.in.CheckScopeKey(ctx, scope, key)
}

// Count returns how many units of a scope key started in a past interval, which
// began the duration from ago (included) and ended the duration to ago (excluded):
// Count(…, time.Minute, 0) is the last minute. The interval may go back as far as the scope key's longest window. Of
// the windows that go back that far, Count reads the one with the finest precision; a
// sub-window that overlaps the interval counts whole, so the answer errs by up to
// one precision at either end, on the high side. Count blocks and fails as
// Usage does. The error is an *ArgumentError for an interval that no window covers, as in a scope that is Off,
// where no unit counts.
func (t *Inspector) Count(ctx context.Context, scope, key string, from, to time.Duration) (int64, error) {
	name, err := t.scopeKeyName(ctx, scope, key)
	if err != nil {
		return 0, err
	}
	if to < 0 || from < to || from > wire.MaxWindow {
		return 0, &throttle.ArgumentError{Argument: "interval", Value: from - to,
			Reason: "does not begin before it ends, in the past " + wire.Duration(wire.MaxWindow)}
	}
	a, err := t.usage(ctx, wire.Usage{Names: []string{name}, Count: true,
		From: wire.Micros(from), To: to.Microseconds()})
	if err != nil {
		return 0, err
	}
	switch counts := a[0].counts; {
	case len(counts) != 1:
		return 0, badReply("usage")
	case counts[0] < 0:
		return 0, &throttle.ArgumentError{Argument: "interval", Value: from,
			Reason: "goes further back than every window that counts in scope " + scope}
	default:
		return counts[0], nil
	}
}

// usage asks about scope keys. One call answers for as many scope keys as Redis can read in a short time; the next
// call asks for the rest.
func (t *Inspector) usage(ctx context.Context, asked wire.Usage) (all []account, err error) {
	for len(asked.Names) > 0 {
		reply, err := t.in.Run(ctx, "usage", asked.Arguments())
		if err != nil {
			return nil, err
		}
		some, err := t.accounts(reply, asked.Names)
		if err != nil {
			return nil, err
		}
		all, asked.Names = append(all, some...), asked.Names[len(some):]
	}
	return all, nil
}
