package throttle

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/lanes"
	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/seam"
	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// Inside gives packages inspect and worker access to a throttle beyond its public methods. Only packages of
// this module have the key of Throttle.Inside. An Inside is safe for use by many goroutines and has no state of
// its own. A method blocks only if its comment says so.
type Inside struct{ t *Throttle }

// Inside opens the throttle to packages inspect and worker.
func (t *Throttle) Inside(seam.Key) Inside { return Inside{t} }

// HandsOver reports whether any limit is a running limit. A place may then become free at any moment.
func (i Inside) HandsOver() bool {
	return slices.ContainsFunc(i.t.scopes, func(s Scope) bool {
		return slices.ContainsFunc(s.Limits, func(l Limit) bool { return l.Running })
	})
}

// Options returns the options in force, with the defaults filled in.
func (i Inside) Options() Options { return i.t.options }

// Process returns what the throttle publishes about itself, without Since and Seen. Its scopes have
// the mode in force by the configuration.
func (i Inside) Process() Process { return i.t.self() }

// Clock returns the clock that a test has set; nil in production.
func (i Inside) Clock() func() time.Time { return i.t.now }

// Watch prepares the throttle for use by an inspector alone: the throttle publishes nothing, and finds the
// shares of flows by their encoded keys. Call it before the throttle is used.
func (i Inside) Watch(shares map[string]int) {
	i.t.redis.answered = nil
	maps.Copy(i.t.shares.known, shares)
}

// Run calls a script by its name, with its own arguments, and returns its reply. It blocks for one
// round trip and fails as Reserve does, without fallback. The circuit breaker does not stop check.
func (i Inside) Run(ctx context.Context, name string, own []string) (any, error) {
	named := scripts[slices.IndexFunc(scripts, func(s script) bool { return s.name == name })]
	if name == checkScript.name {
		return i.t.redis.inTime(ctx, named, i.t.arguments(own))
	}
	return i.t.redis.run(ctx, named, i.t.arguments(own))
}

// Set runs the script set. If the change makes room, the answer makes the next pull due at once. The advances of this
// process end, so that the change acts here at once.
func (i Inside) Set(ctx context.Context, what wire.Set) (wire.WasSet, error) {
	defer i.t.advances.drop()
	reply, err := i.Run(ctx, setScript.name, what.Arguments())
	if err != nil {
		return wire.WasSet{}, err
	}
	was, err := wire.ReadWasSet(reply)
	return was, i.t.answered(setScript.name, was.Stamp, err)
}

// Load makes each script known to Redis, and calls next with its name and the error. It ends when
// next returns false. It blocks for one round trip for each script.
func (i Inside) Load(ctx context.Context, next func(script string, err error) bool) {
	for _, s := range scripts {
		if !next(s.name, i.t.redis.loadInTime(ctx, s)) {
			return
		}
	}
}

// Lanes returns the script that reads the waiting lanes.
func (i Inside) Lanes() lanes.Script { return i.t.lanesScript() }

func (t *setup) lanesScript() lanes.Script {
	return lanes.Script{
		Run: func(ctx context.Context, asked wire.Lines) (any, error) {
			return t.redis.run(ctx, linesScript, t.arguments(asked.Arguments()))
		}, Unreadable: badReply(linesScript.name)}
}

// Processes returns what the processes of the throttle have published. It blocks for one round trip.
func (i Inside) Processes(ctx context.Context) ([]Process, error) { return i.t.redis.processes(ctx) }

// Order checks a job as Reserve does, and returns what it takes of each scope key.
func (i Inside) Order(ctx context.Context, job Job) (seam.Order, error) {
	o, err := i.t.order(ctx, job)
	if err != nil {
		return seam.Order{}, err
	}
	order := seam.Order{Flow: o.flow, Lane: o.lane}
	for _, c := range o.charges {
		order.Charges = append(order.Charges, seam.Charge{Scope: c.scope.Name, Key: c.key, Name: c.name, Units: c.units})
	}
	return order, nil
}

// CheckID returns an *InvalidJobError for an ID that no job can have.
func (i Inside) CheckID(id string) error { return checkID(id) }

// CheckScope returns an *ArgumentError for a scope that the throttle does not have, or for a nil ctx.
func (i Inside) CheckScope(ctx context.Context, scope string) error {
	return i.t.scopeNamed(ctx, scope)
}

// CheckScopeKey is CheckScope, and refuses a key that the scope cannot have as well.
func (i Inside) CheckScopeKey(ctx context.Context, scope, key string) error {
	return i.t.scopeKey(ctx, scope, key)
}

// ShareOf returns the share of a flow, by its encoded key.
func (i Inside) ShareOf(flow string) int64 { return i.t.shares.of(flow) }

// MaxWaiting returns how long the line of each key of a scope may get, by the configuration.
func (i Inside) MaxWaiting(scope string) Length { return i.t.scopeOf(scope).MaxWaiting }

// Counts estimates how long a start counts under a limit of a scope. If nothing is known, as of a running limit
// before its first job has ended, it returns the longest time and false.
func (i Inside) Counts(scope string, limit Limit) (length time.Duration, known bool) {
	return i.t.counts(scope, limit)
}

// Entered returns a counted limit as a person would enter it.
func (i Inside) Entered(scope string, counted line.Limit) Limit { return i.t.limitAs(scope, counted) }

// Configured returns the throttle's configuration as the scripts count it. The caller may change it.
func (i Inside) Configured() line.Settings { return header(i.t.scopes, i.t.options).Settings }

// LimitsToSet checks the limits that SetLimits would set for a scope, and returns their text. A
// limit without a precision or a lease takes it from the configured limit.
func (i Inside) LimitsToSet(scope string, limits []Limit) (string, error) {
	t, own := i.t, i.t.scopeOf(scope)
	of := Scope{Name: scope, Limits: limits, Margin: own.Margin}
	if err := of.validateLimits(); err != nil {
		return "", err
	}
	if err := checkLeases(scope, limits, t.options.Lookahead); err != nil {
		return "", err
	}
	precise := make([]Limit, len(limits))
	for i, limit := range limits {
		precise[i] = limit
		for _, configured := range own.Limits {
			if configured.Label() == limit.Label() {
				precise[i] = limit.like(configured)
			}
		}
	}
	if ledgers := own.ledgers(precise); ledgers > maxLimits {
		return "", &OptionError{Field: "limits", Value: len(limits),
			Reason: fmt.Sprintf("make %d with the windows of the configuration, more than %d", ledgers, maxLimits)}
	}
	return line.LimitsText(own.countedLimits(precise)), nil
}

// ledgers returns how many ledgers a scope key may have while these limits are set: the ledgers of the
// configured limits go on counting.
func (s Scope) ledgers(limits []Limit) int {
	n := len(limits)
	for _, own := range s.Limits {
		if !slices.ContainsFunc(limits, func(l Limit) bool { return l.span(0) == own.span(0) }) {
			n++
		}
	}
	return n
}
