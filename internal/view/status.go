package view

import (
	"context"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Status is how a throttle is at the moment.
type Status struct {
	Throttle string    `json:"throttle"`
	Now      time.Time `json:"now"`
	// Processes are those that are alive; Alike is false where they are not all configured
	// as the newest.
	Processes int       `json:"processes"`
	Alike     bool      `json:"alike"`
	Scopes    []ScopeOf `json:"scopes"`
	Global    []Use     `json:"global,omitempty"` // empty where there is no such scope
	// Lanes, Flows and Jobs wait in line; Oldest is when the first of them came.
	Lanes  int               `json:"lanes"`
	Flows  int               `json:"flows"`
	Jobs   int64             `json:"jobs"`
	Oldest *Row              `json:"oldest,omitempty"`
	Set    []inspect.Setting `json:"set"` // at run time, as it was SetAsOf
	Redis  Load              `json:"redis"`

	SetAsOf time.Time `json:"set_as_of"`
}

// ScopeOf is a scope as it is configured.
type ScopeOf struct {
	Name   string           `json:"name"`
	Limits []throttle.Limit `json:"limits,omitempty"`
	Mode   throttle.Mode    `json:"mode"`
}

// StatusOf reads how a throttle is, and how busy its Redis is, which takes a
// second.
func StatusOf(ctx context.Context, th *inspect.Inspector) (Status, error) {
	s, _, err := (&Watch{first: LongLoad}).Look(ctx, th, 0)
	return s, err
}

// Watch looks at a throttle again and again. It keeps what takes long to read, and what is
// measured from look to look. The zero value has not looked yet; it is not safe for use by
// many goroutines.
type Watch struct {
	first  time.Duration // for how long the first look measures the load; 0: ShortLoad
	sample Sample
	sets   Sets
}

// Look reads what StatusOf does, and the scope keys under which most waits, so many.
func (w *Watch) Look(ctx context.Context, th *inspect.Inspector, most int) (Status, Waiting, error) {
	var load Load
	load, w.sample = LoadSince(ctx, th, w.sample, max(ShortLoad, w.first)) // before this asks for much itself
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
	s.Alike = true
	for _, p := range all {
		if p.Alive {
			s.Processes++
			s.Alike = s.Alike && len(all[0].Differences(p)) == 0
		}
	}
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

// configured are the scopes of the newest process.
func configured(all []throttle.Process) []throttle.Scope {
	if len(all) == 0 {
		return nil
	}
	return all[0].Scopes
}
