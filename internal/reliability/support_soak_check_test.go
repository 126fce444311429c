package reliability_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// edge is how long after a change a start may still be one that was granted before it. A granted task waits in its
// handler for up to MaxWait, and an advance lets jobs start without asking Redis until it is over.
const edge = worker.DefaultMaxWait + soakAdvance

// change is a setting that the operator made for a scope key, with its begin and its end by this machine's clock, which
// Redis reads too. Neither instant is known exactly, so each is given as the earliest and the latest possible instant.
type change struct {
	throttle, scope, key string // an empty key of a keyed scope is all its keys
	from, to             [2]time.Time
	limits               []throttle.Limit // the limits in force meanwhile; nil: the configured limits
	mode                 throttle.Mode
	paused               bool
}

// concerns reports whether a change applies to a scope key.
func (c change) concerns(name, scope, key string) bool {
	return c.throttle == name && c.scope == scope && (c.key == key || c.key == "")
}

// around reports whether a start at an instant may have followed the change.
func (c change) around(at time.Time) bool {
	return !at.Before(c.from[0]) && !at.After(c.to[1].Add(edge))
}

// amid reports whether a start at an instant must have followed the change.
func (c change) amid(at time.Time) bool {
	return at.After(c.from[1].Add(edge)) && at.Before(c.to[0])
}

// call is one call of a handler.
type call struct {
	note
	ended time.Time // zero: its process was killed
	again bool
	least map[string]int64
}

// cost returns the lowest charge that the call had in a scope at any time. For a running limit it returns the charge
// before any correction.
func (c call) cost(scope string, running bool) int64 {
	if least, settled := c.least[scope]; settled && !running {
		return least
	}
	if cost, own := c.Job.Costs[scope]; own {
		return cost
	}
	return c.Job.Weight
}

// accounts are the contents of a soak's notebooks.
type accounts struct {
	calls                              []call
	enqueued, refused, expired, unsure map[string]bool // by task
	settled                            map[string]int
	advanced                           int
}

func readAccounts(t *testing.T, folder string) accounts {
	t.Helper()
	a := accounts{enqueued: map[string]bool{}, refused: map[string]bool{}, expired: map[string]bool{},
		unsure: map[string]bool{}, settled: map[string]int{}}
	paths, err := filepath.Glob(filepath.Join(folder, "*"))
	must(t, err)
	at := make(map[string]int) // the index of a call
	for _, path := range paths {
		file, err := os.Open(path)
		must(t, err)
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			var n note
			must(t, json.Unmarshal(lines.Bytes(), &n))
			name := fmt.Sprint(n.Process, n.Throttle, n.Call)
			switch n.Did {
			case "enqueued":
				a.enqueued[n.Throttle+n.Task] = true
			case "refused":
				a.refused[n.Throttle+n.Task] = true
			case "unsure":
				a.unsure[n.Throttle+n.Task] = true
			case "expired":
				a.expired[n.Throttle+n.Task] = true
			case "begun":
				at[name] = len(a.calls)
				a.calls = append(a.calls, call{note: n})
				if n.Advanced {
					a.advanced++
				}
			case "ended":
				c := &a.calls[at[name]]
				c.ended, c.again, c.least = n.Noted, n.Again, n.Least
				if n.Settled != "" {
					a.settled[n.Settled]++
				}
			}
		}
		must(t, lines.Err())
		_ = file.Close()
	}
	return a
}

// checkTasks checks that each task ran or expired, that no refused task ran, and that no task ran more often than its
// handlers asked for. A task may run once more if its process was killed, or if connections were cut when it ended.
// checkTasks returns how many tasks ran, how often one ran once more for such a reason, which tasks were lost, and what
// else is wrong.
func (a accounts) checkTasks(struck []time.Time) (ran, twice int, lost, wrong []string) {
	runs := make(map[string][]call)
	for _, c := range a.calls {
		id := c.Throttle + c.Task
		runs[id] = append(runs[id], c)
	}
	for id := range a.enqueued {
		switch {
		case len(runs[id]) > 0:
			ran++
		case !a.expired[id]:
			lost = append(lost, id)
		}
	}
	for id, calls := range runs {
		if a.refused[id] || !a.enqueued[id] && !a.unsure[id] {
			wrong = append(wrong, id+" ran, and was not enqueued")
		}
		slices.SortFunc(calls, func(a, b call) int { return a.Noted.Compare(b.Noted) })
		for _, c := range calls[:len(calls)-1] {
			near := func(at time.Time) bool { return c.ended.Sub(at).Abs() < 2*time.Second }
			switch {
			case c.again:
			case c.ended.IsZero() || slices.ContainsFunc(struck, near):
				twice++
			default:
				wrong = append(wrong, fmt.Sprintf("%s ended at %s, and ran again at %s", id, c.ended, calls[len(calls)-1].Noted))
			}
		}
	}
	return ran, twice, lost, wrong
}

// checkLimits checks the starts of a workload against its limits, and against what the operator had set at that moment.
// It returns how many windows, periods and instants it has looked at, and those that were over.
func (a accounts) checkLimits(w workload, changes []change, killed map[string]time.Time) (checked int, over []string) {
	report := func(o throttletest.Over) { over = append(over, w.name+": "+o.String()) }
	for _, scope := range w.scopes {
		starts := a.starts(w, scope, false, changes, killed)
		running := a.starts(w, scope, true, changes, killed)
		checked += len(starts) * len(scope.Limits)
		all := func(limits []throttle.Limit) (found []throttletest.Over) {
			for _, limit := range limits {
				of := starts
				if limit.Running {
					of = running
				}
				only := []throttle.Scope{{Name: scope.Name, Limits: []throttle.Limit{limit}}}
				found = append(found, throttletest.Check(only, slices.Clone(of))...)
			}
			return found
		}
		for _, o := range all(scope.Limits) {
			if !slices.ContainsFunc(changes, func(c change) bool {
				return c.concerns(w.name, scope.Name, o.Key) && !c.paused && c.around(o.End)
			}) {
				report(o)
			}
		}
		for _, c := range changes {
			if c.throttle != w.name || c.scope != scope.Name || c.limits == nil {
				continue
			}
			for _, o := range all(c.limits) {
				if c.concerns(w.name, scope.Name, o.Key) && c.amid(o.End) {
					report(o)
				}
			}
		}
		over = append(over, checkPauses(w, scope, starts, changes)...)
	}
	return checked, over
}

// checkPauses returns the starts under a paused scope key.
func checkPauses(w workload, scope throttle.Scope, starts []throttletest.Start, changes []change) (wrong []string) {
	for _, c := range changes {
		for _, s := range starts {
			if c.paused && c.concerns(w.name, scope.Name, s.Keys[scope.Name]) && c.amid(s.At) {
				wrong = append(wrong,
					fmt.Sprintf("%s: %s %q was paused, and a task started at %s", w.name, scope.Name, c.key, s.At))
			}
		}
	}
	return wrong
}

// starts returns the calls under a scope as Check takes them. Starts while the scope was off are left out.
func (a accounts) starts(w workload, scope throttle.Scope, running bool, changes []change,
	killed map[string]time.Time) (starts []throttletest.Start) {
	for _, c := range a.calls {
		key, has := c.Job.Keys[scope.Name]
		off := func(of change) bool {
			return of.mode == throttle.Off && of.concerns(w.name, scope.Name, key) && of.around(c.At)
		}
		if c.Throttle != w.name || !has && scope.Name != throttle.Global || slices.ContainsFunc(changes, off) {
			continue
		}
		end := c.ended.Add(scope.Cooldown)
		if c.ended.IsZero() {
			end = killed[c.Process]
		}
		starts = append(starts,
			throttletest.Start{At: c.At, Weight: c.cost(scope.Name, running), Keys: c.Job.Keys, End: end})
	}
	return starts
}
