package throttle

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// Report is what an upstream said when it was asked for a job of a scope key: with 429, with
// headers that say what is left, or simply with an answer. The zero Report is an answer.
type Report struct {
	// Refused says that the upstream had too much: 429, 421 4.7.0.
	Refused bool
	// RetryAfter is how long it asks to wait, with a refusal; 0: it does not say. At most 24 h
	// count.
	RetryAfter time.Duration
	// Started is when the upstream was asked, on Redis' clock: the Start of the job's grant. Of
	// the refusals of what was asked before one that counted, none counts: they tell nothing
	// new. Zero means now.
	Started time.Time
	// Limits are what it said of its own limits.
	Limits []ReportedLimit
}

// ReportedLimit is what an upstream said of one of its limits.
type ReportedLimit struct {
	// Window is that of the limit of the scope that it is about; 0 means the shortest. A window
	// that the scope key does not have is left out, and running limits are.
	Window time.Duration
	// Units is how many it serves in the window; -1: it does not say.
	Units int64
	// Remaining is how many of them are left; -1: it does not say. No more start then: what
	// others have used counts in the ledger from now on.
	Remaining int64
}

// Adaptation is the part of a scope key's limits that its upstream serves.
type Adaptation struct {
	Throttle   string // its name
	Scope, Key string // the scope key; Key is empty for Global
	// Before and Served are the part that was served and that is, from the scope's Floor to 1.
	Before, Served float64
	// Paused is until when the key is paused, on Redis' clock; zero if it is not.
	Paused time.Time
}

// mostReported is how many limits one report may tell of.
const mostReported = 16

// Report has a scope key follow what its upstream says, for all processes, from their next
// decision on. The scope has a Floor; the key of Global is "". The limits in force are never
// exceeded: what follows is the part of them that is served.
//
// A refusal lowers it to 0.7 of what it was, but not under the Floor, and closes the key for as
// long as the upstream asks to wait; if it does not say, for a second, and for twice as long
// with each refusal that follows, up to 5 minutes. An answer forgives these, and raises the
// part by a tenth of the limits at most once in the scope's shortest window (additive
// increase, multiplicative decrease: Chiu and Jain, 1989). Where the upstream says that it
// serves fewer units than the limit, the part is that at once; then, and where others had used
// what it says is gone, a refusal is explained and lowers nothing more. A day without a change
// ends it, and ResetLimits does.
//
// It blocks for one round trip and fails as Pause does; the error is also an *OptionError for
// a scope without a Floor. It is safe for many goroutines.
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
	reply, err := t.redis.run(ctx, reportScript, t.reportArguments(scopeKeyName(scope, key), of, r))
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
		Served: float64(said.Served) / thousandths, Paused: instant(said.Paused)}
	t.observeReport(a, r)
	return a, nil
}

func (r Report) validate() error {
	if r.RetryAfter < 0 {
		return &InvalidJobError{Field: "RetryAfter", Value: r.RetryAfter, Reason: "is negative"}
	}
	if len(r.Limits) > mostReported {
		return &InvalidJobError{Field: "Limits", Value: len(r.Limits), Reason: fmt.Sprintf("are more than %d", mostReported)}
	}
	for _, l := range r.Limits {
		if l.Window < 0 || l.Units < -1 || l.Remaining < -1 {
			return &InvalidJobError{Field: "Limits", Value: l,
				Reason: "want a Window of 0 or more, and Units and Remaining of -1 or more"}
		}
	}
	return nil
}

// scopeOf is a scope of the configuration; the zero Scope if it is none.
func (t *setup) scopeOf(name string) Scope {
	for _, s := range t.scopes {
		if s.Name == name {
			return s
		}
	}
	return Scope{}
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

// thousandths are how the scripts count parts of limits.
const thousandths = 1000

func inThousandths(part float64) int64 { return int64(math.Round(part * thousandths)) }
