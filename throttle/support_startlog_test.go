package throttle_test

import (
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// counted is a start, with the scope keys that it is counted under.
type counted struct {
	at     time.Time
	weight int64
	keys   map[string]string
}

// startLog is what has started, by job and nonce.
type startLog struct{ of map[string]counted }

// most are the units of one scope key in that window of this length, of those that
// contain an instant, which holds most.
func (h startLog) most(scope, key string, at time.Time, window time.Duration) int64 {
	var most int64
	for _, last := range h.of {
		if !h.counts(last, scope, key) || last.at.Before(at) || last.at.Sub(at) >= window {
			continue
		}
		var sum int64
		for _, start := range h.of {
			if age := last.at.Sub(start.at); h.counts(start, scope, key) && age >= 0 && age < window {
				sum += start.weight
			}
		}
		most = max(most, sum)
	}
	return most
}

func (h startLog) counts(start counted, scope, key string) bool {
	own, has := start.keys[scope]
	return has && own == key
}

// setUntil is something that is set until an instant; the zero time: until it is taken back.
type setUntil[T any] struct {
	is    T
	until time.Time
}

func (s setUntil[T]) holds(at time.Time) bool { return s.until.IsZero() || s.until.After(at) }

// overrides are what a test has set at run time.
type overrides struct {
	pauses map[string]time.Time // by scope:key
	own    map[string]setUntil[[]throttle.Limit]
	modes  map[string]setUntil[throttle.Mode]
}

func newOverrides() overrides {
	return overrides{make(map[string]time.Time), make(map[string]setUntil[[]throttle.Limit]),
		make(map[string]setUntil[throttle.Mode])}
}

// limits are those in force for a start at an instant.
func (o overrides) limits(scope throttle.Scope, key string, at time.Time) []throttle.Limit {
	return o.counted(scope, key, at)[0]
}

// counted are the limits in force at an instant, and those that follow when they end: their
// windows count too.
func (o overrides) counted(scope throttle.Scope, key string, at time.Time) (all [][]throttle.Limit) {
	for _, name := range slices.Compact([]string{scope.Name + ":" + key, scope.Name + ":"}) {
		own, set := o.own[name]
		if !set || !own.holds(at) {
			continue
		}
		if all = append(all, own.is); own.until.IsZero() {
			return all
		}
	}
	return append(all, scope.Limits)
}

// mode is that of a scope at an instant.
func (o overrides) mode(scope throttle.Scope, at time.Time) throttle.Mode {
	if mode, set := o.modes[scope.Name]; set && mode.holds(at) {
		return mode.is
	}
	if mode, set := o.modes[""]; set && mode.holds(at) {
		return mode.is
	}
	return throttle.Enforce
}
