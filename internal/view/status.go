package view

import (
	"context"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Status is the current state of a throttle.
type Status struct {
	Throttle string    `json:"throttle"`
	Now      time.Time `json:"now"`
	// Processes is how many processes are alive; Alike is false if the configuration of one differs
	// from the newest.
	Processes int       `json:"processes"`
	Alike     bool      `json:"alike"`
	Scopes    []ScopeOf `json:"scopes"`
	Global    []Use     `json:"global,omitempty"` // empty where there is no such scope
	// Lanes, Flows and Jobs count what waits in line; Oldest is the flow whose first job has waited the longest.
	Lanes  int               `json:"lanes"`
	Flows  int               `json:"flows"`
	Jobs   int64             `json:"jobs"`
	Oldest *Row              `json:"oldest,omitempty"`
	Set    []inspect.Setting `json:"set"` // the settings at run time, as of SetAsOf
	Redis  Load              `json:"redis"`

	SetAsOf time.Time `json:"set_as_of"`
}

// ScopeOf is a scope of the configuration.
type ScopeOf struct {
	Name   string           `json:"name"`
	Limits []throttle.Limit `json:"limits,omitempty"`
	Mode   throttle.Mode    `json:"mode"`
}

// StatusOf reads the state of a throttle, and the load of its Redis, which takes a second.
func StatusOf(ctx context.Context, th *inspect.Inspector) (Status, error) {
	s, _, err := (&Watch{first: LongLoad}).Read(ctx, th, 0)
	return s, err
}

// Watch reads a throttle again and again. It keeps what is slow to read, and measures rates from
// one reading to the next. The zero value is ready for use; a Watch is not safe for use by many
// goroutines.
type Watch struct {
	first  time.Duration // for how long the first reading measures the load; 0: ShortLoad
	sample Sample
	sets   Sets
}

// Read reads what StatusOf reads, and the scope keys under which jobs wait, those with the oldest jobs
// first and no more than most.
func (w *Watch) Read(ctx context.Context, th *inspect.Inspector, most int) (Status, Waiting, error) {
	var load Load
	load, w.sample = LoadSince(ctx, th, w.sample, max(ShortLoad, w.first)) // before the other calls add to the load
	lanes, err := th.Lanes(ctx)
	if err != nil {
		return Status{}, Waiting{}, err
	}
	s, err := statusOf(ctx, th, lanes)
	s.Redis = load
	if err != nil {
		return s, Waiting{}, err
	}
	changes, err := th.Changes(ctx)
	if err != nil {
		return s, Waiting{}, err
	}
	if w.sets, err = w.sets.Read(ctx, th, changes); err != nil {
		return s, Waiting{}, err
	}
	s.Set, s.SetAsOf = w.sets.At(s.Now), s.Now.Add(-w.sets.Age())
	waiting, err := linesOf(ctx, th, lanes, ByKey, Filter{}, most)
	return s, waiting, err
}

func statusOf(ctx context.Context, th *inspect.Inspector, lanes []inspect.Lane) (Status, error) {
	s := Status{Throttle: th.Name()}
	all, err := th.Processes(ctx)
	if err != nil {
		return s, err
	}
	alive, differing := Differing(all)
	s.Processes, s.Alike = alive, differing == 0
	for _, scope := range configured(all) {
		s.Scopes = append(s.Scopes, ScopeOf{Name: scope.Name, Limits: scope.Limits, Mode: scope.Mode})
		if scope.Name == throttle.Global {
			u, err := UsageOf(ctx, th, throttle.Global, "")
			if err != nil {
				return s, err
			}
			s.Global = u.Rows
		}
	}
	w, err := linesOf(ctx, th, lanes, ByFlow, Filter{}, 1)
	if err != nil {
		return s, err
	}
	s.Now, s.Lanes, s.Flows, s.Jobs = w.Now, w.Lanes, w.Flows, w.Jobs
	if len(w.Rows) > 0 {
		s.Oldest = &w.Rows[0]
	}
	s.Set = []inspect.Setting{}
	return s, nil
}

// Differing counts the processes that are alive, and those among them whose configuration differs
// from the newest process'.
func Differing(all []throttle.Process) (alive, differing int) {
	for _, p := range all {
		if p.Alive {
			alive++
			if len(all[0].Differences(p)) > 0 {
				differing++
			}
		}
	}
	return alive, differing
}

// configured returns the scopes of the newest process.
func configured(all []throttle.Process) []throttle.Scope {
	if len(all) == 0 {
		return nil
	}
	return all[0].Scopes
}
