package view

import (
	"context"
	"errors"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Tried is what a limit would have kept back of one scope key.
type Tried struct {
	Scope string `json:"scope"`
	Key   string `json:"key,omitempty"`
	Limit string `json:"limit"`
	// Started is how many units started in the last window, Over how many of them the
	// limit would have kept back. Known is false where no window reaches that far back.
	Started int64 `json:"started"`
	Over    int64 `json:"over"`
	Known   bool  `json:"known"`
}

// Try says what limits would have kept back of what started lately, of some keys of a
// scope. It changes nothing.
func Try(ctx context.Context, th *throttle.Throttle, scope string, keys []string, limits []throttle.Limit) ([]Tried, error) {
	rows := []Tried{}
	for _, key := range keys {
		for _, l := range limits {
			row := Tried{Scope: scope, Key: key, Limit: l.String(), Known: true}
			n, err := th.Count(ctx, scope, key, l.Window, 0)
			var far *throttle.InvalidJobError
			switch {
			case errors.As(err, &far):
				row.Known = false
			case err != nil:
				return nil, err
			case l.Units != throttle.Unlimited:
				row.Over = max(0, n-l.Units)
			}
			row.Started = n
			rows = append(rows, row)
		}
	}
	return rows, nil
}
