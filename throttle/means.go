package throttle

import (
	"slices"
	"sync"
	"time"
)

// means are mean weights and running times of this process' jobs, by scope, for estimates.
type means struct {
	mu    sync.Mutex
	of    map[string]time.Duration // the mean running time
	units map[string]meanUnits     // the mean cost of jobs that waited in line
}

// meanUnits is the mean cost of about the last meanOver jobs, or of all jobs if there were fewer.
type meanUnits struct{ units, jobs float64 }

// meanOver is about how many of the last jobs a mean covers.
const meanOver = 16

// ended notes the running times of jobs that end now.
func (m *means) ended(granted []Reservation, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil {
		m.of = make(map[string]time.Duration)
	}
	for _, r := range granted {
		ran := max(now.Sub(r.Start), time.Microsecond)
		m.note(Global, ran)
		for scope := range r.Job.Keys {
			m.note(scope, ran)
		}
	}
}

func (m *means) note(scope string, ran time.Duration) {
	if mean, known := m.of[scope]; known {
		ran = mean + (ran-mean)/meanOver
	}
	m.of[scope] = ran
}

func (m *means) get(scope string) (time.Duration, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mean, known := m.of[scope]
	return mean, known
}

// waits notes the costs of a job that waits in line.
func (m *means) waits(o *order) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.units == nil {
		m.units = make(map[string]meanUnits)
	}
	for i := range o.charges {
		mean := m.units[o.charges[i].scope.Name]
		mean.jobs = min(mean.jobs+1, meanOver)
		mean.units += (float64(o.charges[i].units) - mean.units) / mean.jobs
		m.units[o.charges[i].scope.Name] = mean
	}
}

// weight estimates what a waiting job costs in a scope: as much as the job o, if nothing is known.
func (m *means) weight(o *order, scope string) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mean, known := m.units[scope]; known {
		return mean.units
	}
	return float64(o.units(scope))
}

// runs estimates how long a job counts under the running limit of a scope; false if nothing is known.
func (t *setup) runs(scope string) (time.Duration, bool) {
	i := slices.IndexFunc(t.scopes, func(s Scope) bool { return s.Name == scope })
	if i < 0 {
		return 0, false
	}
	s := &t.scopes[i]
	if s.Runs > 0 {
		return s.Runs + s.Cooldown, true
	}
	mean, known := t.means.get(scope)
	return mean + s.Cooldown, known
}

// counts estimates how long a start counts under a limit of a scope. If nothing is known, it returns false
// and the longest time for which a start may count.
func (t *setup) counts(scope string, limit Limit) (length time.Duration, known bool) {
	if !limit.Running {
		return limit.Length(), true
	}
	if runs, known := t.runs(scope); known {
		return runs, true
	}
	return limit.Length(), false
}
