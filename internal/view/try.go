package view

import (
	"context"
	"errors"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Tried is what a limit would have held back of one scope key.
type Tried struct {
	Scope string `json:"scope"`
	Key   string `json:"key,omitempty"`
	Limit string `json:"limit"`
	// Started is how many units started in the last window, or run now, and Over how many of these
	// the limit would have held back. Known is false if that is not counted, and Why then says why.
	Started int64  `json:"started"`
	Over    int64  `json:"over"`
	Known   bool   `json:"known"`
	Why     string `json:"why,omitempty"`
}

// Why it is not known what a limit would have held back.
const (
	hoursUncounted   = "hours keep back what comes while they are closed, and count no units"
	runningUncounted = "how many units run is not known, since no running limit counts them"
	windowUncounted  = "what started in its window is not known, since no limit counts so far back"
)

// Try returns what limits would have held back of the recent starts of some scope keys. It changes nothing.
func Try(ctx context.Context, th *inspect.Inspector, keys []inspect.Usage, limits []throttle.Limit) ([]Tried, error) {
	rows := []Tried{}
	for _, u := range keys {
		for _, l := range limits {
			row := Tried{Scope: u.Scope, Key: u.Key, Limit: l.String()}
			var err error
			if row.Started, row.Why, err = counted(ctx, th, u, l); err != nil {
				return nil, err
			}
			row.Known = row.Why == ""
			if row.Known && l.Units != throttle.Unlimited {
				row.Over = max(0, row.Started-l.UnitsAt(u.Now))
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// counted returns what a limit would count of a scope key now, or else why that is not known.
func counted(ctx context.Context, th *inspect.Inspector, u inspect.Usage,
	l throttle.Limit) (units int64, why string, err error) {
	if l.Hours != "" {
		return 0, hoursUncounted, nil
	}
	length := l.Window
	if length == 0 {
		for _, has := range u.Limits {
			if has.Limit.Label() == l.Label() {
				return has.Used, "", nil
			}
		}
		if l.Running {
			return 0, runningUncounted, nil
		}
		began, _ := l.Calendar.Period(u.Now)
		length = u.Now.Sub(began)
	}
	units, err = th.Count(ctx, u.Scope, u.Key, length, 0)
	var far *throttle.ArgumentError
	if errors.As(err, &far) {
		return 0, windowUncounted, nil
	}
	return units, "", err
}
