// Package check adds up how much of each limit was used. It takes a list of events and adds
// up every window, in integers, microseconds and units. Of the throttle it uses only the
// limits.
package check

import (
	"cmp"
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Event is some units of one key in each scope, used at one instant.
type Event struct {
	At    int64 // microseconds since 1970
	Units int64
	Of    Keyed
}

// Keyed has a key in each scope; it is empty in the scope without keys.
type Keyed interface{ Key(scope string) string }

// Use is how much of one limit was used at most, over all keys of its scope.
type Use struct {
	Scope  string
	Limit  throttle.Limit
	Window time.Duration // the window that was added up; 0 if it could not be
	Key    string        // the scope key that used the most
	Worst  int64         // units in its fullest window
	Over   int           // windows with more than the limit, of all keys
}

// Limits adds up, for each limit and each scope key, the window that ends at each
// event, the event included. A window is held against the limits that are in force at
// its end. As in the throttle, windows are longer by the Margin of their scope. They are taken
// shorter by the given duration; a limit whose window is not longer than that is not checked.
func Limits(events []Event, l Law, shorter time.Duration) []Use {
	events = InOrder(events)
	var uses []Use
	for _, scope := range l.Scopes {
		keys := ByKey(events, scope.Name)
		for _, limit := range l.limits(scope) {
			uses = append(uses, checkLimit(keys, l, scope, limit, max(0, limit.Window+scope.Margin-shorter)))
		}
	}
	return uses
}

// InOrder is the events by their instants.
func InOrder(events []Event) []Event {
	return slices.SortedStableFunc(slices.Values(events), func(a, b Event) int { return cmp.Compare(a.At, b.At) })
}

// ByKey is the events by their keys in a scope.
func ByKey(events []Event, scope string) map[string][]Event {
	keys := make(map[string][]Event)
	for _, e := range events {
		key := e.Of.Key(scope)
		keys[key] = append(keys[key], e)
	}
	return keys
}

func checkLimit(keys map[string][]Event, l Law, scope throttle.Scope, limit throttle.Limit, window time.Duration) Use {
	result := Use{Scope: scope.Name, Limit: limit, Window: window}
	if window < time.Microsecond {
		result.Window = 0
		return result
	}
	for key, events := range keys {
		worst, over := FullestWindow(events, limit.Units, window.Microseconds(), func(at int64) bool {
			return slices.Contains(l.at(scope, key, at), limit)
		})
		result.Over += over
		if worst > result.Worst || worst == result.Worst && key < result.Key {
			result.Worst, result.Key = worst, key
		}
	}
	return result
}

// FullestWindow returns the most units in any window that ends while the limit is
// in force, and how many of these windows hold more than the limit. The windows are
// (e-window, e] for each event's instant e: an event exactly one window earlier is
// out. Events at one instant end one window. The events must be in order.
func FullestWindow(events []Event, limit, window int64, inForce func(at int64) bool) (worst int64, over int) {
	var sum int64
	first := 0
	for i, e := range events {
		sum += e.Units
		for events[first].At <= e.At-window {
			sum -= events[first].Units
			first++
		}
		if i+1 < len(events) && events[i+1].At == e.At || !inForce(e.At) {
			continue
		}
		worst = max(worst, sum)
		if limit != throttle.Unlimited && sum > limit {
			over++
		}
	}
	return worst, over
}

// WindowsOver adds up the windows over their limit.
func WindowsOver(uses []Use) int {
	over := 0
	for _, u := range uses {
		over += u.Over
	}
	return over
}

// Optimum is the least time between the first and the last start that the
// limits allow for these events, whatever the order: the units of a scope key
// fill a number of windows, and the first costs no time. Limits that were changed during the
// run are left out, which can only make the result less.
func Optimum(events []Event, l Law) time.Duration {
	var longest time.Duration
	for _, scope := range l.Scopes {
		for key, events := range ByKey(events, scope.Name) {
			if l.changed(scope.Name, key) {
				continue
			}
			var units int64
			for _, e := range events {
				units += e.Units
			}
			for _, limit := range scope.Limits {
				if limit.Units <= 0 {
					continue // unlimited, or nothing may ever start
				}
				windows := float64(units) / float64(limit.Units)
				longest = max(longest, time.Duration((windows-1)*float64(limit.Window+scope.Margin)))
			}
		}
	}
	return longest
}
