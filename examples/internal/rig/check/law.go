package check

import (
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Law says which limits are in force when: the scopes' limits, except for scope keys whose
// limits were changed during the run.
type Law struct {
	Scopes  []throttle.Scope
	Changes []Change // the earliest first
}

// Change gives a scope key other limits from an instant on. Limits grow or stay, so a start that
// was allowed before the change is allowed after it.
type Change struct {
	At         time.Time // on Redis' clock, before the call that made the change
	Scope, Key string
	Limits     []throttle.Limit // nil: the scope's limits again
}

// at returns the limits in force for a scope key at an instant. In the place of a ramp stands the quota of its step.
func (l Law) at(scope throttle.Scope, key string, instant int64) []throttle.Limit {
	limits := scope.Limits
	for _, c := range l.Changes {
		if c.Scope != scope.Name || c.Key != key || c.At.UnixMicro() > instant {
			continue
		}
		if limits = c.Limits; limits == nil {
			limits = scope.Limits
		}
	}
	return stepsIn(limits, func(ramp throttle.Limit) []throttle.Limit {
		return []throttle.Limit{stepAt(ramp, time.UnixMicro(instant))}
	})
}

// changed reports whether a scope key has had limits of its own.
func (l Law) changed(scope, key string) bool {
	return slices.ContainsFunc(l.Changes, func(c Change) bool { return c.Scope == scope && c.Key == key })
}

// limits returns all limits that are ever in force in a scope, its own first. In the place of a ramp stand the quotas
// of its steps.
func (l Law) limits(scope throttle.Scope) []throttle.Limit {
	limits := slices.Clone(scope.Limits)
	for _, c := range l.Changes {
		for _, limit := range c.Limits {
			if c.Scope == scope.Name && !slices.Contains(limits, limit) {
				limits = append(limits, limit)
			}
		}
	}
	return stepsIn(limits, steps)
}
