package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// The check of the limits knows nothing of the throttle but the limits: it takes
// a list of what happened when, and adds up every window. It counts in integers,
// microseconds and units.

// event is some units of one scope key each, used at one instant.
type event struct {
	at    int64 // microseconds since 1970
	units int64
	keys  keys
	rules bool // of a robots.txt
}

// use is how much of one limit was used at most, over all keys of its scope.
type use struct {
	scope  string
	limit  throttle.Limit
	window time.Duration // the window that was added up; 0 if it could not be
	key    string        // the scope key that used the most
	worst  int64         // units in its fullest window
	over   int           // windows with more than the limit, of all keys
}

// checkLimits adds up, for each limit and each scope key, the window that ends at
// each event, the event included. Windows are taken shorter by the given duration;
// a limit whose window is not longer than that is not checked.
func checkLimits(events []event, scopes []throttle.Scope, shorter time.Duration) []use {
	var uses []use
	for _, scope := range scopes {
		byKey := make(map[string][]event)
		for _, e := range inOrder(events) {
			byKey[e.keys.of(scope.Name)] = append(byKey[e.keys.of(scope.Name)], e)
		}
		for _, limit := range scope.Limits {
			uses = append(uses, checkLimit(byKey, scope.Name, limit, max(0, limit.Window-shorter)))
		}
	}
	return uses
}

// checkDelays does the same for the hosts' Crawl-delays. Each holds from its host's
// robots.txt on.
func checkDelays(events []event, delays map[string]time.Duration, shorter time.Duration) []use {
	var uses []use
	for host, delay := range delays {
		var after []event
		for _, e := range inOrder(events) {
			switch {
			case e.keys.host == host && e.rules:
				after = nil
			case e.keys.host == host:
				after = append(after, e)
			}
		}
		uses = append(uses, checkLimit(map[string][]event{host: after}, scopeHost, throttle.Per(1, delay), max(0, delay-shorter)))
	}
	slices.SortFunc(uses, func(a, b use) int { return cmp.Compare(a.key, b.key) })
	return uses
}

func inOrder(events []event) []event {
	return slices.SortedStableFunc(slices.Values(events), func(a, b event) int { return cmp.Compare(a.at, b.at) })
}

func checkLimit(keys map[string][]event, scope string, limit throttle.Limit, window time.Duration) use {
	result := use{scope: scope, limit: limit, window: window}
	if window < time.Microsecond {
		result.window = 0
		return result
	}
	for key, events := range keys {
		worst, over := fullestWindow(events, limit.Units, window.Microseconds())
		result.over += over
		if worst > result.worst || worst == result.worst && (result.key == "" || key < result.key) {
			result.worst, result.key = worst, key
		}
	}
	return result
}

// fullestWindow returns the most units in any window, and how many windows hold
// more than the limit. The windows are (e-window, e] for each event's instant e:
// an event exactly one window earlier is out. Events at one instant end one
// window. The events must be in order.
func fullestWindow(events []event, limit, window int64) (worst int64, over int) {
	var sum int64
	first := 0
	for i, e := range events {
		sum += e.units
		for events[first].at <= e.at-window {
			sum -= events[first].units
			first++
		}
		if i+1 < len(events) && events[i+1].at == e.at {
			continue
		}
		worst = max(worst, sum)
		if limit != throttle.Unlimited && sum > limit {
			over++
		}
	}
	return worst, over
}

// inBytes is the same limits, which are in kilobytes, for events in bytes.
func inBytes(scopes []throttle.Scope) []throttle.Scope {
	scaled := make([]throttle.Scope, len(scopes))
	for i, scope := range scopes {
		scaled[i].Name = scope.Name
		for _, limit := range scope.Limits {
			if limit.Units != throttle.Unlimited {
				limit.Units *= kilobyte
			}
			scaled[i].Limits = append(scaled[i].Limits, limit)
		}
	}
	return scaled
}

// windowsOver adds up the windows over their limit.
func windowsOver(uses []use) int {
	over := 0
	for _, u := range uses {
		over += u.over
	}
	return over
}
