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

// Try returns what limits would have held back of the recent starts of some keys of a scope. It
// changes nothing.
func Try(ctx context.Context, th *inspect.Inspector, scope string, keys []string,
	limits []throttle.Limit) ([]Tried, error) {
	rows := []Tried{}
	for _, key := range keys {
		for _, l := range limits {
			row := Tried{Scope: scope, Key: key, Limit: l.String()}
			var err error
			if row.Started, row.Why, err = counted(ctx, th, scope, key, l); err != nil {
				return nil, err
			}
			row.Known = row.Why == ""
			if row.Known && l.Units != throttle.Unlimited {
				row.Over = max(0, row.Started-l.UnitsAt(time.Now()))
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// counted returns what a limit would count of a scope key now, or else why that is not known.
func counted(ctx context.Context, th *inspect.Inspector, scope, key string,
	l throttle.Limit) (units int64, why string, err error) {
	if l.Hours != "" {
		return 0, hoursUncounted, nil
	}
	length := l.Window
	if length == 0 {
		u, err := th.Usage(ctx, scope, key)
		for _, has := range u.Limits {
			if has.Limit.Label() == l.Label() {
				return has.Used, "", nil
			}
		}
		if err != nil || l.Running {
			return 0, runningUncounted, err
		}
		began, _ := l.Calendar.Period(u.Now)
		length = u.Now.Sub(began)
	}
	units, err = th.Count(ctx, scope, key, length, 0)
	var far *throttle.ArgumentError
	if errors.As(err, &far) {
		return 0, windowUncounted, nil
	}
	return units, "", err
}
