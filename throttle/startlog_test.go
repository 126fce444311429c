package throttle_test

import (
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

// overrides are what a test has set at run time.
type overrides struct {
	pauses map[string]time.Time // by scope:key
	own    map[string][]throttle.Limit
	modes  map[string]throttle.Mode
}

func newOverrides() overrides {
	return overrides{make(map[string]time.Time), make(map[string][]throttle.Limit), make(map[string]throttle.Mode)}
}

func (o overrides) limits(scope throttle.Scope, key string) []throttle.Limit {
	if limits, set := o.own[scope.Name+":"+key]; set {
		return limits
	}
	if limits, set := o.own[scope.Name+":"]; set {
		return limits
	}
	return scope.Limits
}

func (o overrides) mode(scope throttle.Scope) throttle.Mode {
	if mode, set := o.modes[scope.Name]; set {
		return mode
	}
	return o.modes[""]
}
