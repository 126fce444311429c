package line_test

import (
	"fmt"
	"slices"
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
		return line.Limit{Units: units, Window: window, Precision: 1}
	}
	return line.Limit{Units: units, Window: window, Precision: window / 100}
}

// world is a line with workers that bring its jobs: a job comes back a little before its
// slot, the line is pulled when it is due, at most every 50 ms.
type world struct {
	t        testing.TB
	line     *line.Line
	settings line.Settings
	now      int64
	pulled   int64
	maxWait  int64
	jobs     map[string]*worldJob
	back     []string           // booked, in order of coming back
	starts   map[string][]start // by scope key
	served   []*worldJob
	putBacks int
	pulls    int
	late     func(j *worldJob) int64 // how much later than asked a booked job comes; nil: never
	gone     func(j *worldJob) bool  // a booked job does not come
}

type worldJob struct {
	job     line.Job
	arrived int64
	slot    int64
	comes   int64
	started int64
	keys    []string
}

type start struct{ at, units int64 }

func newWorld(t testing.TB, settings line.Settings) *world {
	return &world{
		t: t, line: line.New(), settings: settings, now: 1_800_000_000 * second, maxWait: 1200 * milli,
		jobs: make(map[string]*worldJob), starts: make(map[string][]start),
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

// arrive asks for a new job. The lane's scope keys are "name:key", sorted.
func (w *world) arrive(id, flow string, keys []string, cost int64) *worldJob {
	costs := make([]int64, len(keys))
	for i := range costs {
		costs[i] = cost
	}
	lane := flow + "|"
	for i, key := range keys {
		if i > 0 {
			lane += ","
		}
		lane += key
	}
	j := &worldJob{job: line.Job{ID: id, Lane: lane, Costs: costs, MaxWait: w.maxWait, Latest: -1, Share: 1}, arrived: w.now, keys: keys}
	w.jobs[id] = j
	w.ask(j)
	return j
}

func (w *world) ask(j *worldJob) {
	answer := w.line.Reserve(w.now, w.settings, []line.Job{j.job})[0]
	switch answer.Outcome {
	case line.Granted:
		j.started = answer.Start
		for i, key := range j.keys {
			w.starts[key] = append(w.starts[key], start{answer.Start, j.job.Costs[i]})
		}
		w.served = append(w.served, j)
	case line.Booked:
		w.putBacks++
		w.booked(j, answer.Start)
	case line.Waiting:
		w.putBacks++
	default:
		w.t.Fatalf("%s: outcome %d", j.job.ID, answer.Outcome)
	}
}

func (w *world) booked(j *worldJob, slot int64) {
	j.slot, j.comes = slot, max(w.now, slot-w.maxWait/2)
	if w.gone != nil && w.gone(j) {
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
		pull := int64(0)
		if due := w.line.Next(); due != 0 {
			pull = max(due, w.pulled+50*milli, w.now)
			next = min(next, pull)
		}
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
}

// check looks at the starts alone: no window of any scope key may hold more than its limit.
func (w *world) check() {
	w.t.Helper()
	for key, starts := range w.starts {
		scope := key[:slices.Index([]byte(key), ':')]
		for _, limit := range w.settings.Scopes[scope].Limits {
			if worst := worst(starts, limit.Window); limit.Units >= 0 && worst > limit.Units {
				w.t.Errorf("%s: %d units in a window of %d us, more than %d", key, worst, limit.Window, limit.Units)
			}
		}
	}
}

// worst is the most that started within any window.
func worst(starts []start, window int64) int64 {
	slices.SortFunc(starts, func(a, b start) int { return int(a.at - b.at) })
	most, sum, out := int64(0), int64(0), 0
	for _, s := range starts {
		sum += s.units
		for starts[out].at <= s.at-window {
			sum -= starts[out].units
			out++
		}
		most = max(most, sum)
	}
	return most
}

func jain(xs []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range xs {
		sum += x
		squares += x * x
	}
	return sum * sum / (float64(len(xs)) * squares)
}

func id(format string, args ...any) string { return fmt.Sprintf(format, args...) }
