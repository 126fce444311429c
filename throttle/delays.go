package throttle

import (
	"maps"
	"sync"
	"time"
)

// StartDelay says how long after their grants a process has begun the jobs of one scope, since
// New made its throttle. Only a scope with a Margin has a StartDelay.
type StartDelay struct {
	Started int64         `json:"started"`    // how many jobs have begun
	Late    int64         `json:"late"`       // how many of these began later than the margin
	Longest time.Duration `json:"longest_ns"` // the longest delay
	// LastLate is when a job last began later than the margin, on Redis' clock; zero if no job did.
	LastLate time.Time `json:"last_late,omitzero"`
}

// startDelays are the delays of a process by scope; nil if no scope has a margin.
type startDelays struct {
	mu sync.Mutex
	of map[string]StartDelay
}

func newStartDelays(scopes []Scope) *startDelays {
	d := &startDelays{of: make(map[string]StartDelay)}
	for _, s := range scopes {
		if s.Margin > 0 {
			d.of[s.Name] = StartDelay{}
		}
	}
	if len(d.of) == 0 {
		return nil
	}
	return d
}

// note notes how long after its granted start a job began, and returns whether that was longer
// than a margin.
func (d *startDelays) note(scopes []Scope, granted Reservation, delay time.Duration) (late bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range scopes {
		one, has := d.of[s.Name]
		if _, named := granted.Job.Keys[s.Name]; !has || !named && s.Name != Global {
			continue
		}
		one.Started++
		one.Longest = max(one.Longest, delay)
		if delay > s.Margin {
			one.Late++
			one.LastLate = granted.Start.Add(delay)
			late = true
		}
		d.of[s.Name] = one
	}
	return late
}

// all returns a copy.
func (d *startDelays) all() map[string]StartDelay {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.of)
}
