package view

import (
	"context"
	"time"

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
	Lanes  int       `json:"lanes"`
	Flows  int       `json:"flows"`
	Jobs   int64     `json:"jobs"`
	Oldest *Row      `json:"oldest,omitempty"`
	Set    []Setting `json:"set"` // at run time
	Redis  Load      `json:"redis"`
}

// ScopeOf is a scope as it is configured.
type ScopeOf struct {
	Name   string           `json:"name"`
	Limits []throttle.Limit `json:"limits,omitempty"`
	Mode   throttle.Mode    `json:"mode"`
}

// Setting is what is set at run time, with who changed it last, if that is known.
type Setting struct {
	throttle.Setting
	By string    `json:"by,omitempty"`
	At time.Time `json:"at,omitzero"`
}

// StatusOf reads how a throttle is, and how busy its Redis is, which takes 50 ms.
func StatusOf(ctx context.Context, th *throttle.Throttle) (Status, error) {
	s, _, err := WatchOf(ctx, th, 0)
	return s, err
}

// WatchOf reads what StatusOf does, and the scope keys under which most waits, so many.
func WatchOf(ctx context.Context, th *throttle.Throttle, most int) (Status, Waiting, error) {
	load := LoadOf(ctx, th) // before this asks for much itself
	lanes, err := th.Lanes(ctx)
	if err != nil {
		return Status{}, Waiting{}, err
	}
	s, err := statusOf(ctx, th, lanes)
	s.Redis = load
	if err != nil {
		return s, Waiting{}, err
	}
	w, err := linesOf(ctx, th, lanes, ByKey, Filter{}, most)
	return s, w, err
}

func statusOf(ctx context.Context, th *throttle.Throttle, lanes []throttle.Lane) (Status, error) {
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
	s.Set, err = Settings(ctx, th)
	return s, err
}

// configured are the scopes of the newest process.
func configured(all []throttle.Process) []throttle.Scope {
	if len(all) == 0 {
		return nil
	}
	return all[0].Scopes
}

// Settings reads what is set at run time, and who did it.
func Settings(ctx context.Context, th *throttle.Throttle) ([]Setting, error) {
	set, err := th.Settings(ctx)
	if err != nil {
		return nil, err
	}
	changes, err := th.Changes(ctx)
	if err != nil {
		return nil, err
	}
	settings := make([]Setting, len(set))
	for i, s := range set {
		settings[i].Setting = s
		for _, c := range changes {
			if c.Scope == s.Scope && c.Key == s.Key && c.After != "" {
				settings[i].By, settings[i].At = c.By, c.At
				break
			}
		}
	}
	return settings, nil
}
