package view

import (
	"context"
	"errors"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Tried is what a limit would have held back of one scope key.
type Tried struct {
	Scope string `json:"scope"`
	Key   string `json:"key,omitempty"`
	Limit string `json:"limit"`
	// Started is how many units started in the last window, or run now, and Over how many of these
	// the limit would have held back. Known is false if no window reaches that far back, or running
	// jobs are not counted.
	Started int64 `json:"started"`
	Over    int64 `json:"over"`
	Known   bool  `json:"known"`
}

// Try returns what limits would have held back of the recent starts of some keys of a scope. It
// changes nothing.
func Try(ctx context.Context, th *inspect.Inspector, scope string, keys []string,
	limits []throttle.Limit) ([]Tried, error) {
	rows := []Tried{}
	for _, key := range keys {
		for _, l := range limits {
			row := Tried{Scope: scope, Key: key, Limit: l.String()}
			var err error
			if row.Started, row.Known, err = counted(ctx, th, scope, key, l); err != nil {
				return nil, err
			}
			if row.Known && l.Units != throttle.Unlimited {
				row.Over = max(0, row.Started-l.UnitsAt(time.Now()))
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// counted returns what a limit would count of a scope key now, if that is known.
func counted(ctx context.Context, th *inspect.Inspector, scope, key string,
	l throttle.Limit) (units int64, known bool, err error) {
	length := l.Window
	if length == 0 {
		u, err := th.Usage(ctx, scope, key)
		for _, has := range u.Limits {
			if has.Limit.Label() == l.Label() {
				return has.Used, true, nil
			}
		}
		if err != nil || l.Calendar == (throttle.Calendar{}) {
			return 0, false, err
		}
		began, _ := l.Calendar.Period(u.Now)
		length = u.Now.Sub(began)
	}
	units, err = th.Count(ctx, scope, key, length, 0)
	var far *throttle.ArgumentError
	if errors.As(err, &far) {
		return 0, false, nil
	}
	return units, err == nil, err
}
