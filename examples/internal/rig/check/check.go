// Package check adds up how much of each limit was used. It takes a list of events and adds
// up every window, and every period of a quota, in integers, microseconds and units; and it looks
// for events outside of opening hours. Of the throttle it uses only the limits. Days and hours are
// those of Go's package time.
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
	Window time.Duration // the length that was checked; 0 for a quota, hours, and a window shorter than the delay
	Key    string        // the scope key that used the most
	Worst  int64         // units in its fullest window or period, or outside of its hours
	Period time.Time     // when the fullest period of a quota began
	Over   int           // windows or periods with more than the limit, or events outside of hours, of all keys
}

// Limits adds up, for each limit and each scope key, the window that ends at each
// event, the event included. A window is held against the limits that are in force at
// its end. As in the throttle, windows are longer by the Margin of their scope. They are taken
// shorter by the given duration; a limit whose window is not longer than that is not checked.
//
// A ramp is checked as the quotas of its steps, each in the periods in which it is in force.
//
// The period of a quota is shorter by that duration at its beginning: a late event may belong to
// the period before. For the same reason an event lies in opening hours if they were open at its
// instant or so long before.
func Limits(events []Event, l Law, shorter time.Duration) []Use {
	events = InOrder(events)
	var uses []Use
	for _, scope := range l.Scopes {
		keys := ByKey(events, scope.Name)
		for _, limit := range l.limits(scope) {
			uses = append(uses, checkLimit(keys, l, scope, limit, shorter))
		}
	}
	return uses
}

// InOrder returns the events by their instants.
func InOrder(events []Event) []Event {
	return slices.SortedStableFunc(slices.Values(events), func(a, b Event) int { return cmp.Compare(a.At, b.At) })
}

// ByKey returns the events by their keys in a scope.
func ByKey(events []Event, scope string) map[string][]Event {
	keys := make(map[string][]Event)
	for _, e := range events {
		key := e.Of.Key(scope)
		keys[key] = append(keys[key], e)
	}
	return keys
}

func checkLimit(keys map[string][]Event, l Law, scope throttle.Scope, limit throttle.Limit, shorter time.Duration) Use {
	result := Use{Scope: scope.Name, Limit: limit}
	if isWindow(limit) {
		if result.Window = limit.Window + scope.Margin - shorter; result.Window < time.Microsecond {
			result.Window = 0
			return result
		}
	}
	for key, events := range keys {
		one := Use{Key: key}
		inForce := func(at int64) bool { return slices.Contains(l.at(scope, key, at), limit) }
		switch {
		case limit.Hours != "":
			one.Worst, one.Over = outside(events, limit.Hours, shorter, inForce)
		case isWindow(limit):
			one.Worst, one.Over = FullestWindow(events, limit.Units, result.Window.Microseconds(), inForce)
		default:
			one.Worst, one.Over, one.Period = fullestPeriod(events, limit, shorter, inForce)
		}
		result.Over += one.Over
		if one.Worst > result.Worst || one.Worst == result.Worst && key < result.Key {
			result.Worst, result.Key, result.Period = one.Worst, key, one.Period
		}
	}
	return result
}

// isWindow reports whether a limit is neither a quota nor hours.
func isWindow(limit throttle.Limit) bool {
	return limit.Hours == "" && limit.Calendar == (throttle.Calendar{})
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

// Optimum returns the least time between the first and the last start that the limits allow for these events, in any
// order: the units of a scope key fill a number of windows, and the first window costs no time. Under a quota they fill
// a number of periods. While the hours of the global scope are closed, nothing starts. Limits that were changed during
// the run are left out, which can only make the result smaller.
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
				switch {
				case limit.Units <= 0: // unlimited, hours, or nothing may ever start
				case isWindow(limit):
					windows := float64(units) / float64(limit.Units)
					longest = max(longest, l.untilWindows(windows, limit.Window+scope.Margin, InOrder(events)[0].At))
				default:
					longest = max(longest, l.untilPeriods(limit, InOrder(events)[0].At, units))
				}
			}
		}
	}
	return longest
}
