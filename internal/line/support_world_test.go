package line_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

const (
	milli  = int64(1000)
	second = int64(1_000_000)
	minute = 60 * second
	hour   = 60 * minute
	day    = 24 * hour
)

// per is a limit at the default precision.
func per(units, window int64) line.Limit {
	if units <= 100 {
		return line.Limit{Units: units, Span: line.Window(window), Precision: 1}
	}
	return line.Limit{Units: units, Span: line.Window(window), Precision: window / 100}
}

// world is a line with workers that bring its jobs: a job comes back a little before its
// slot, the line is pulled when it is due, at most every 50 ms.
type world struct {
	t        testing.TB
	line     *line.Line
	settings line.Settings
	own      map[string][]line.Limit // set for scope keys
	now      int64
	pulled   int64
	maxWait  int64
	jobs     map[string]*worldJob
	back     []string           // booked, in order of coming back
	starts   map[string][]start // by scope key, in order of their instants
	served   []*worldJob
	lost     int // gone, or too heavy after a limit was lowered
	putBacks int
	pulls    int
	strict   bool                    // every grant is checked by the limits of its moment
	late     func(j *worldJob) int64 // how much later than asked a booked job comes; nil: not at all
	gone     func(j *worldJob) bool  // a booked job does not come; nil: all come
	leaving  bool                    // who does not come is known to be gone when it is booked
	actual   func(j *worldJob) int64 // what it really takes of each of its scope keys; nil: what it is charged
	beside   *handlers               // what happens besides; nil: nothing
	// how far the clock has stepped back in all: starts are noted by the time that has passed
	skew int64
}

type worldJob struct {
	job     line.Job
	keys    []string
	arrived int64
	slot    int64
	comes   int64
	started int64
	atSlot  bool // it was not granted a slot that is as near as it may wait: a lease may be renewed until then

	left    bool
	settled bool
}

type start struct{ at, units int64 }

func newWorld(t testing.TB, settings line.Settings) *world {
	return &world{
		t: t, line: line.New(), settings: settings, now: 1_800_000_000 * second, maxWait: 1200 * milli,
		jobs: make(map[string]*worldJob), starts: make(map[string][]start), own: make(map[string][]line.Limit),
	}
}

// settingsOf configures scopes with a lookahead of a second.
func settingsOf(scopes map[string][]line.Limit) line.Settings {
	s := line.Settings{Scopes: make(map[string]line.Scope), Lookahead: second, Grace: 5 * second}
	for name, limits := range scopes {
		s.Scopes[name] = line.Scope{Mode: line.Enforce, Limits: limits}
	}
	return s
}

// arrive asks for a new job that costs the same under all its scope keys, "name:key".
func (w *world) arrive(id, flow string, keys []string, cost int64) *worldJob {
	costs := make([]int64, len(keys))
	for i := range costs {
		costs[i] = cost
	}
	return w.bring(line.Job{ID: id, Lane: flow + "|" + strings.Join(keys, ","), Costs: costs, Share: 1})
}

// bring asks for a new job.
func (w *world) bring(job line.Job) *worldJob {
	job.MaxWait, job.Latest = w.maxWait, line.Never
	_, keys, _ := strings.Cut(job.Lane, "|")
	j := &worldJob{job: job, arrived: w.now, keys: strings.Split(keys, ",")}

	w.jobs[job.ID] = j
	w.ask(j)
	return j
}

func (j *worldJob) flow() string {
	flow, _, _ := strings.Cut(j.job.Lane, "|")
	flow, _, _ = strings.Cut(flow, "#")
	return flow
}

func (w *world) ask(j *worldJob) {
	answer := w.line.Reserve(w.now, w.settings, []line.Job{j.job})[0]
	switch answer.Outcome {
	case line.Granted:
		w.granted(j, answer.Start)
	case line.Booked:
		w.putBacks++
		j.atSlot = answer.Start <= w.now+w.maxWait
		w.booked(j, answer.Start)
	case line.Waiting:
		w.putBacks++
	case line.NeverFits:
		if !w.strict {
			w.t.Fatalf("%s is too heavy", j.job.ID)
		}
		j.left = true
		w.lost++
	default:
		w.t.Fatalf("%s: outcome %d", j.job.ID, answer.Outcome)
	}
}

func (w *world) granted(j *worldJob, at int64) {
	j.started = at
	w.served = append(w.served, j)
	for i, key := range j.keys {
		w.put(key, at+w.skew, j.job.Costs[i])
		if w.strict {
			w.checkStart(j, key, at+w.skew)
		}
	}
	if w.beside != nil {
		w.beside.began(j, at)
	}
	if w.actual == nil || j.settled {
		return
	}
	if actual := w.actual(j); actual >= 0 {
		j.settled = true
		costs := make([]int64, len(j.keys))
		for i, key := range j.keys {
			costs[i] = min(actual, j.job.Costs[i])
			w.put(key, at+w.skew, costs[i]-j.job.Costs[i])
		}
		grant := line.Grant{ID: j.job.ID, Lane: j.job.Lane, Costs: j.job.Costs, Start: at, Decided: w.now,
			Waited: at > j.arrived}
		if !w.line.Settle(w.now, w.settings, grant, costs, hour, false) {
			w.t.Fatalf("%s was not settled", j.job.ID)
		}
	}
}

// put adds to what starts at an instant.
func (w *world) put(key string, at, units int64) {
	starts := w.starts[key]
	i := len(starts)
	for i > 0 && starts[i-1].at > at {
		i--
	}
	w.starts[key] = slices.Insert(starts, i, start{at, units})
}

// checkStart looks at the starts alone: no window that contains a new one may hold more
// than the limit in force.
func (w *world) checkStart(j *worldJob, key string, at int64) {
	w.t.Helper()
	for _, limit := range w.limits(key) {
		if limit.Units < 0 || limit.Kind == line.Running {
			continue
		}
		starts := w.starts[key]
		from, to := len(starts), len(starts)
		for from > 0 && starts[from-1].at > at-limit.Length {
			from--
			if starts[from].at >= at+limit.Length {
				to = from
			}
		}
		if most := worst(starts[from:to], limit.Length, at); most > limit.Units {
			w.t.Fatalf("%s of %d started: %d units in a window of %s of %d us, more than %d", j.job.ID, j.job.Costs,
				most, key, limit.Length, limit.Units)
		}
	}
}

// limits are those in force for a scope key.
func (w *world) limits(key string) []line.Limit {
	if own := w.own[key]; own != nil {
		return own
	}
	scope, _, _ := strings.Cut(key, ":")
	return w.settings.Scopes[scope].Limits
}

// set sets the limits of a scope key, nil takes them back.
func (w *world) set(key string, limits []line.Limit) {
	w.own[key] = limits
	w.line.SetLimits(w.now, w.settings, key, limits, line.Never)
}

// leave takes jobs out of line.
func (w *world) leave(ids ...string) {
	w.line.Leave(w.now, w.settings, ids)
	gone := make(map[string]bool)
	for _, id := range ids {
		gone[id], w.jobs[id].left = true, true
		w.lost++
	}
	w.back = slices.DeleteFunc(w.back, func(id string) bool { return gone[id] })
}

func (w *world) booked(j *worldJob, slot int64) {
	j.slot, j.comes = slot, max(w.now, slot-w.maxWait/2)
	if j.atSlot {
		j.comes, j.atSlot = max(w.now, slot), false
	}
	if w.gone != nil && w.gone(j) {
		if w.leaving {
			w.leave(j.job.ID)
			return
		}
		j.left = true
		w.lost++
		return
	}
	if w.late != nil {
		j.comes += w.late(j)
	}
	i, _ := slices.BinarySearchFunc(w.back, j, func(id string, j *worldJob) int {
		if w.jobs[id].comes <= j.comes {
			return -1
		}
		return 1
	})
	w.back = slices.Insert(w.back, i, j.job.ID)
}

// run goes on until an instant.
func (w *world) run(until int64) {
	for {
		next := until
		if len(w.back) > 0 {
			next = min(next, w.jobs[w.back[0]].comes)
		}
		if due := w.line.Next(); due != 0 {
			next = min(next, max(due, w.pulled+50*milli, w.now))
		}
		next = min(next, w.beside.next(until))
		if next >= until {
			w.now = until
			return
		}
		w.now = max(w.now, next)
		if len(w.back) > 0 && w.jobs[w.back[0]].comes <= w.now {
			j := w.jobs[w.back[0]]
			w.back = w.back[1:]
			w.ask(j)
			continue
		}
		if w.beside.happen() {
			continue
		}
		w.pull()
	}
}

func (w *world) pull() {
	w.pulled = w.now
	w.pulls++
	pulled := w.line.Pull(w.now, w.settings, 50, 200)
	for _, told := range pulled.Booked {
		w.booked(w.jobs[told.ID], told.Slot)
	}
	for _, told := range pulled.Overdue {
		if told.Slot == w.now { // thrown out for its weight
			w.ask(w.jobs[told.ID])
		}
	}
}

// waiting is how many jobs have neither started nor left.
func (w *world) waiting() int { return len(w.jobs) - len(w.served) - w.lost }

// drain runs until all jobs have started. Whatever waits, one of them starts within twice
// the longest window, and as long as a job may run.
func (w *world) drain() {
	w.t.Helper()
	longest := int64(0)
	for _, scope := range w.settings.Scopes {
		for _, limit := range scope.Limits {
			longest = max(longest, limit.Length)
		}
	}
	for w.waiting() > 0 {
		served := len(w.served) + w.lost
		most := 2*longest + minute + w.beside.longest()
		w.run(w.now + most)
		if len(w.served)+w.lost == served {
			w.t.Fatalf("%d jobs wait, and none starts in %d us\n%s", w.waiting(), most, w.line.Dump(w.now))
		}
	}
}

// check looks at the starts alone: no window of any scope key may hold more than its limit.
func (w *world) check() {
	w.t.Helper()
	for key, starts := range w.starts {
		for _, limit := range w.limits(key) {
			if limit.Kind == line.Running {
				continue
			}
			if worst := worst(starts, limit.Length, 0); limit.Units >= 0 && worst > limit.Units {
				w.t.Errorf("%s: %d units in a window of %d us, more than %d", key, worst, limit.Length, limit.Units)
			}
		}
	}
}

// worst is the most that started within any window that ends at from or later.
func worst(starts []start, window, from int64) int64 {
	most, sum, out := int64(0), int64(0), 0
	for i, s := range starts {
		sum += s.units
		for starts[out].at <= s.at-window {
			sum -= starts[out].units
			out++
		}
		if s.at >= from && (i+1 == len(starts) || starts[i+1].at > s.at) {
			most = max(most, sum)
		}
	}
	return most
}

// jain is Jain's index of fairness: 1 if all are equal.
func jain[T int | int64 | float64](xs []T) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range xs {
		sum += float64(x)
		squares += float64(x) * float64(x)
	}
	return sum * sum / (float64(len(xs)) * squares)
}

// units is what each flow started between two instants.
func (w *world) units(from, to int64) map[string]int64 {
	units := make(map[string]int64)
	for _, j := range w.served {
		if j.started >= from && j.started < to {
			units[j.flow()] += j.job.Costs[0]
		}
	}
	return units
}

func id(format string, args ...any) string { return fmt.Sprintf(format, args...) }
