package throttle

import (
	"context"
	"fmt"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// Report is how an upstream answered a job of a scope key: with a refusal such as 429, with
// headers that say what is left, or simply with success. The zero Report is a success.
type Report struct {
	// Refused says that the upstream was asked for too much: 429, 421 4.7.0.
	Refused bool
	// RetryAfter is how long the upstream asks to wait, with a refusal; 0 if it does not say.
	// More than 24 h count as 24 h.
	RetryAfter time.Duration
	// Started is when the upstream was asked, on Redis' clock: the Start of the job's grant. If
	// another refusal has counted since Started, this one tells nothing new: only its RetryAfter counts.
	// Zero means now.
	Started time.Time
	// Limits are what the upstream said of its own limits.
	Limits []ReportedLimit
}

// ReportedLimit is what an upstream said of one of its limits.
type ReportedLimit struct {
	// Window says which of the scope's limits this is about, without a margin; of a quota it is the
	// Length. 0 means the limit with the shortest window or, in a scope without windows, the shortest quota.
	// Windows that the scope key does not have are ignored, as are running limits.
	Window time.Duration
	// Units is how many units the upstream serves in the window; -1 if it does not say.
	Units int64
	// Remaining is how many units the upstream has left; -1 if it does not say. No more than
	// these start: what others have used of the upstream's limit counts in the ledger from now on.
	Remaining int64
}

// Adaptation is the served share of a scope key's limits, before and after a report.
type Adaptation struct {
	Throttle   string // its name
	Scope, Key string // the scope key; Key is empty for Global
	// Before and Served are the served share before and after, from the scope's Floor to 1.
	Before, Served float64
	// Paused is when the key's pause ends, on Redis' clock; zero if the key is not paused.
	Paused time.Time
}

// mostReported is how many Limits one report may have.
const mostReported = 16

// Report lets the limits of a scope key follow what its upstream says, for all processes, from
// their next decision on. The scope must have a Floor; the key of Global is "". The limits in
// force are never exceeded: only the served share of them changes.
//
// A refusal lowers the served share to 0.7 of what it was, but not below the Floor, and closes
// the key for as long as the upstream asks to wait. If the upstream does not say, the key is
// closed for a second, and for twice as long with each further refusal, up to 5 minutes. A
// success resets that time, and raises the served share by a tenth of the limits, at most once
// in the scope's shortest window, without windows in its lease (additive increase, multiplicative decrease: Chiu and
// Jain, 1989). If the upstream says that it serves fewer units than the limit, the served share falls
// to their part of the limit at once. If that, or what others have used of the upstream's limit,
// already explains a refusal, the share is not lowered again. A day after its last change the served share
// becomes 1 again, and at once with ResetLimits of the scope key.
//
// Report blocks for one round trip and fails as Reserve does, without fallback; the error is also an
// *ArgumentError for a scope key that the throttle does not have or a report out of range, and an *OptionError
// for a scope without a Floor. It is safe for many goroutines.
func (t *Throttle) Report(ctx context.Context, scope, key string, r Report) (Adaptation, error) {
	if err := t.scopeKey(ctx, scope, key); err != nil {
		return Adaptation{}, err
	}
	of := t.scopeOf(scope)
	if of.Floor == 0 {
		return Adaptation{}, &OptionError{Field: "Scope.Floor", Value: of.Floor,
			Reason: "is not set for scope " + scope + ": its limits do not follow the upstream"}
	}
	if err := r.validate(); err != nil {
		return Adaptation{}, err
	}
	reply, err := t.redis.run(ctx, reportScript, t.reportArguments(wire.ScopeKey(scope, key), of, r))
	if err != nil {
		return Adaptation{}, err
	}
	said, err := wire.ReadReported(reply)
	if err == nil && max(said.Before, said.Served) > thousandths {
		err = wire.ErrUnreadable
	}
	if err := t.answered("report", said.Stamp, err); err != nil {
		return Adaptation{}, err
	}
	a := Adaptation{Throttle: t.name, Scope: scope, Key: key, Before: float64(said.Before) / thousandths,
		Served: float64(said.Served) / thousandths, Paused: wire.Instant(said.Paused)}
	if r.Refused || a.Served < a.Before || !a.Paused.IsZero() {
		t.advances.drop()
	}
	t.observeReport(a, r)
	return a, nil
}

func (r Report) validate() error {
	if r.RetryAfter < 0 {
		return &ArgumentError{Argument: "RetryAfter", Value: r.RetryAfter, Reason: "is negative"}
	}
	if len(r.Limits) > mostReported {
		return &ArgumentError{Argument: "Limits", Value: len(r.Limits), Reason: fmt.Sprintf("are more than %d", mostReported)}
	}
	for _, l := range r.Limits {
		if l.Window < 0 || l.Units < -1 || l.Remaining < -1 {
			return &ArgumentError{Argument: "Limits", Value: l,
				Reason: "want a Window of 0 or more, and Units and Remaining of -1 or more"}
		}
	}
	return nil
}

func (t *Throttle) observeReport(a Adaptation, r Report) {
	if t.options.Observer == nil {
		return
	}
	if a.Before != a.Served {
		t.options.Observer.Adapted(a)
	}
	if r.Refused && !a.Paused.IsZero() {
		t.options.Observer.Paused(Pause{Throttle: t.name, Scope: a.Scope, Key: a.Key, Until: a.Paused})
	}
}
