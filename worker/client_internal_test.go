package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// slowForecast is an inspector of a throttle with a long backlog.
type slowForecast struct {
	foreteller
	takes time.Duration
}

// Expect implements foreteller.
func (s slowForecast) Expect(ctx context.Context, answers []throttle.Reservation) (inspect.Forecast, error) {
	select {
	case <-time.After(s.takes):
		return inspect.Forecast{Starts: make([]time.Time, len(answers))}, nil
	case <-ctx.Done():
		return inspect.Forecast{}, ctx.Err()
	}
}

// TestForecastIsGivenUp: a forecast that takes too long is given up in time, and the starts stay
// the guesses of the answers.
func TestForecastIsGivenUp(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	for name, row := range map[string]struct {
		takes, within time.Duration
		want          bool
	}{
		"in time":     {99 * time.Millisecond, 100 * time.Millisecond, true},
		"takes long":  {time.Hour, 100 * time.Millisecond, false},
		"may as well": {2 * time.Second, 3 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				guess, began := time.Now().Add(time.Hour), time.Now()
				c := &Client{looks: slowForecast{takes: row.takes}, log: zap.NewNop()}
				p := &plan{Planned: Planned{Reservation: throttle.Reservation{Outcome: throttle.Waiting}, Start: guess}}
				if got := c.expect(t.Context(), []*plan{p, {}}, row.within); got != row.want || p.Start.Equal(guess) == row.want {
					t.Errorf("got %t and a start at %s, want %t", got, p.Start, row.want)
				}
				if took := time.Since(began); took != min(row.takes, row.within) {
					t.Errorf("it took %s, want %s", took, min(row.takes, row.within))
				}
			})
		})
	}
}
