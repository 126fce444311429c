package throttletest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Start is one job that ran. Check reads only starts, no counters of a throttle.
type Start struct {
	At     time.Time
	Weight int64
	Keys   map[string]string // as in throttle.Job; Global needs none
	End    time.Time         // when the job ended, for running limits; zero: the job still runs
}

// Over is a window or a period with more units than its limit, an instant at which more units ran than the limit, or a
// start outside of hours.
type Over struct {
	Scope, Key string
	Limit      throttle.Limit
	End        time.Time // the start at which the window ends, the last start of the period, or the instant
	Units      int64     // the units in the window or the period, or the units that ran
}

// String says which limit was exceeded, when, and how many units counted or ran then.
func (o Over) String() string {
	if o.Limit.Running {
		return fmt.Sprintf("%s %q: %d units run at %s under %s", o.Scope, o.Key, o.Units,
			o.End.UTC().Format(time.StampMicro), o.Limit)
	}
	if o.Limit.Hours != "" {
		return fmt.Sprintf("%s %q: a start at %s is not in %s", o.Scope, o.Key, o.End.UTC().Format(time.StampMicro), o.Limit)
	}
	if o.Limit.Calendar != (throttle.Calendar{}) {
		return fmt.Sprintf("%s %q: %d units in the period of %s whose last start is at %s", o.Scope, o.Key, o.Units, o.Limit,
			o.End.UTC().Format(time.StampMicro))
	}
	return fmt.Sprintf("%s %q: %d units in the window of %s that ends at %s", o.Scope, o.Key, o.Units, o.Limit,
		o.End.UTC().Format(time.StampMicro))
}

// Check returns the windows over their limit. For every limit and scope key, and for
// every start as a window's end, it sums the weights of the starts in (End-Window, End].
// Instants are compared as integers, in microseconds. Under a running limit, the weights of the jobs that run are
// summed at each start; at its End a job no longer runs. Under a quota, the weights of the starts of each period
// are summed; the clock of the quota's zone says when a period begins. Under a ramp, the limit of a period is the units
// of its step. Under hours, Check returns each start outside of them, by the clock of their zone.
func Check(scopes []throttle.Scope, starts []Start) []Over {
	var over []Over
	for _, scope := range scopes {
		for key, own := range byKey(scope.Name, starts) {
			for _, limit := range scope.Limits {
				switch {
				case limit.Hours != "":
					over = append(over, checkHours(scope.Name, key, limit, own)...)
				case limit.Units == throttle.Unlimited:
				case limit.Calendar != throttle.Calendar{}:
					over = append(over, checkQuota(scope.Name, key, limit, own)...)
				case limit.Running:
					over = append(over, checkRunning(scope.Name, key, limit, own)...)
				default:
					over = append(over, check(scope.Name, key, limit, own)...)
				}
			}
		}
	}
	return over
}

func checkRunning(scope, key string, limit throttle.Limit, starts []Start) []Over {
	type change struct {
		at    time.Time
		units int64
	}
	var changes []change
	for _, start := range starts {
		changes = append(changes, change{start.At, start.Weight})
		if !start.End.IsZero() {
			changes = append(changes, change{start.End, -start.Weight})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.units, b.units)) })
	var over []Over
	var units int64
	for _, c := range changes {
		units += c.units
		if c.units > 0 && units > limit.Units {
			over = append(over, Over{Scope: scope, Key: key, Limit: limit, End: c.at, Units: units})
		}
	}
	return over
}

func byKey(scope string, starts []Start) map[string][]Start {
	keys := make(map[string][]Start)
	for _, start := range starts {
		key, has := start.Keys[scope]
		if has || scope == throttle.Global {
			keys[key] = append(keys[key], start)
		}
	}
	return keys
}

func check(scope, key string, limit throttle.Limit, starts []Start) []Over {
	starts = inOrder(starts)
	var over []Over
	var units int64
	first := 0
	for i, end := range starts {
		units += end.Weight
		for starts[first].At.UnixMicro() <= end.At.UnixMicro()-limit.Window.Microseconds() {
			units -= starts[first].Weight
			first++
		}
		last := i+1 == len(starts) || starts[i+1].At.UnixMicro() != end.At.UnixMicro()
		if last && units > limit.Units {
			over = append(over, Over{Scope: scope, Key: key, Limit: limit, End: end.At, Units: units})
		}
	}
	return over
}

// inOrder sorts starts by time.
func inOrder(starts []Start) []Start {
	slices.SortFunc(starts, func(a, b Start) int { return a.At.Compare(b.At) })
	return starts
}
