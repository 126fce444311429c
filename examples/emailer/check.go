package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// The check of the limits knows nothing of the throttle but the limits: it
// takes a list of what happened when, and adds up every window. It counts in
// integers, microseconds and units.

// event is some units of one scope key each, used at one instant.
type event struct {
	at    int64 // microseconds since 1970
	units int64
	mail  *mail // gives the key in each scope
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

// checkLimits adds up, for each limit and each scope key, the window that ends
// at each event, the event included. A window is held against the limits that are
// in force at its end. Windows are taken shorter by the given duration; a limit
// whose window is not longer than that is not checked.
func checkLimits(events []event, l law, shorter time.Duration) []use {
	events = slices.SortedFunc(slices.Values(events), func(a, b event) int { return cmp.Compare(a.at, b.at) })
	var uses []use
	for _, scope := range l.scopes {
		keys := eventsByKey(events, scope.Name)
		for _, limit := range l.limits(scope) {
			uses = append(uses, checkLimit(keys, l, scope, limit, max(0, limit.Window-shorter)))
		}
	}
	return uses
}

func eventsByKey(events []event, scope string) map[string][]event {
	keys := make(map[string][]event)
	for _, e := range events {
		key := e.mail.key(scope)
		keys[key] = append(keys[key], e)
	}
	return keys
}

func checkLimit(keys map[string][]event, l law, scope throttle.Scope, limit throttle.Limit, window time.Duration) use {
	result := use{scope: scope.Name, limit: limit, window: window}
	if window < time.Microsecond {
		result.window = 0
		return result
	}
	for key, events := range keys {
		worst, over := fullestWindow(events, limit.Units, window.Microseconds(), func(at int64) bool {
			return slices.Contains(l.at(scope, key, at), limit)
		})
		result.over += over
		if worst > result.worst || worst == result.worst && key < result.key {
			result.worst, result.key = worst, key
		}
	}
	return result
}

// fullestWindow returns the most units in any window that ends while the limit is
// in force, and how many of these windows hold more than the limit. The windows are
// (e-window, e] for each event's instant e: an event exactly one window earlier is
// out. Events at one instant end one window. The events must be in order.
func fullestWindow(events []event, limit, window int64, inForce func(at int64) bool) (worst int64, over int) {
	var sum int64
	first := 0
	for i, e := range events {
		sum += e.units
		for events[first].at <= e.at-window {
			sum -= events[first].units
			first++
		}
		if i+1 < len(events) && events[i+1].at == e.at || !inForce(e.at) {
			continue
		}
		worst = max(worst, sum)
		if limit != throttle.Unlimited && sum > limit {
			over++
		}
	}
	return worst, over
}

// windowsOver adds up the windows over their limit.
func windowsOver(uses []use) int {
	over := 0
	for _, u := range uses {
		over += u.over
	}
	return over
}

// optimum is the least time between the first and the last start that the
// limits allow for these events, whatever the order: the units of a scope key
// fill so many windows, of which the first is free. Limits that were changed during
// the run are left out, by which it can only be less.
func optimum(events []event, l law) time.Duration {
	var longest time.Duration
	for _, scope := range l.scopes {
		for key, events := range eventsByKey(events, scope.Name) {
			if l.changed(scope.Name, key) {
				continue
			}
			var units int64
			for _, e := range events {
				units += e.units
			}
			for _, limit := range scope.Limits {
				if limit.Units <= 0 {
					continue // unlimited, or nothing may ever start
				}
				windows := float64(units) / float64(limit.Units)
				longest = max(longest, time.Duration((windows-1)*float64(limit.Window)))
			}
		}
	}
	return longest
}
