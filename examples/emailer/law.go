package main

import (
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// law is which limits are in force when: those of the scopes, but for scope keys
// whose limits were changed during the run.
type law struct {
	scopes  []throttle.Scope
	changes []change // the earliest first
}

// change is that a scope key has other limits from an instant on. Limits only grow
// (see warmup), so nothing that was allowed before is forbidden after it.
type change struct {
	at         time.Time // on Redis' clock, before the change was asked for
	scope, key string
	limits     []throttle.Limit // nil: those of the scope again
}

// at is which limits are in force for a scope key at an instant.
func (l law) at(scope throttle.Scope, key string, instant int64) []throttle.Limit {
	limits := scope.Limits
	for _, c := range l.changes {
		if c.scope != scope.Name || c.key != key || c.at.UnixMicro() > instant {
			continue
		}
		if limits = c.limits; limits == nil {
			limits = scope.Limits
		}
	}
	return limits
}

// changed tells whether a scope key has had limits of its own.
func (l law) changed(scope, key string) bool {
	return slices.ContainsFunc(l.changes, func(c change) bool { return c.scope == scope && c.key == key })
}

// limits are all that are in force in a scope at any time: its own first.
func (l law) limits(scope throttle.Scope) []throttle.Limit {
	limits := slices.Clone(scope.Limits)
	for _, c := range l.changes {
		for _, limit := range c.limits {
			if c.scope == scope.Name && !slices.Contains(limits, limit) {
				limits = append(limits, limit)
			}
		}
	}
	return limits
}
