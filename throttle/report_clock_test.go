package throttle_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestReportOfATimeAhead: a refusal is reported while Redis' clock is ahead by two hours. When the clock has
// stepped back the key is closed for as long as a refusal closes it, its served share grows with the answers,
// and the next refusal counts. A pause that a person has set stays as it was set.
func TestReportOfATimeAhead(t *testing.T) {
	t.Parallel()
	const ahead = 2 * time.Hour
	for name, row := range map[string]struct {
		said   throttle.Report
		times  int              // in succession
		pause  time.Duration    // set before
		later  *throttle.Report // said after that, while the clock is ahead, of a job that started before the step
		closes time.Duration    // at most, from the step back on
	}{
		"it does not say for how long": {said: throttle.Report{Refused: true}, times: 1, closes: time.Second},
		"many in succession":           {said: throttle.Report{Refused: true}, times: 12, closes: 5 * time.Minute},
		"it asks for 20 seconds": {said: throttle.Report{Refused: true, RetryAfter: 20 * time.Second},
			times: 1, closes: 20 * time.Second},
		"a job that started before the refusal is told to wait": {said: throttle.Report{Refused: true}, times: 0,
			later:  &throttle.Report{Refused: true, RetryAfter: 20 * time.Second, Started: dawn.Add(-time.Second)},
			closes: 20 * time.Second},
		"the key is paused for 3 hours": {said: throttle.Report{Refused: true}, times: 1, pause: 3 * time.Hour,
			closes: 3 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onServers(t, func(t *testing.T, client *redis.Client) {
				for subject, s := range map[string]throttletest.Subject{
					"scripts": newScripted(newThrottle(t, client, following(), nil)),
					"model":   throttletest.NewModel(following(), throttle.Options{Lookahead: maxWindow}),
				} {
					if row.pause > 0 {
						_, err := s.Pause(dawn, "tenant", "acme", dawn.Add(row.pause))
						noted(t, err)
					}
					if row.later != nil {
						_, err := s.Report(dawn, "tenant", "acme", row.said)
						noted(t, err)
						_, err = s.Report(dawn.Add(ahead), "tenant", "acme", *row.later)
						noted(t, err)
					}
					for range row.times {
						_, err := s.Report(dawn.Add(ahead), "tenant", "acme", row.said)
						noted(t, err)
					}
					r, err := s.Reserve(dawn, throttle.Job{ID: "a", Weight: 1, Keys: of("acme")})
					if noted(t, err); r.Start.After(dawn.Add(row.closes)) || row.pause > 0 && r.Start.Before(dawn.Add(row.pause)) {
						t.Errorf("%s: starts %s after the step back, want %s", subject, r.Start.Sub(dawn), row.closes)
					}
					before := served(t, s, dawn)
					for i := range 10 {
						_, err := s.Report(dawn.Add(time.Duration(i)*time.Minute), "tenant", "acme", throttle.Report{})
						noted(t, err)
					}
					later := dawn.Add(10 * time.Minute)
					if got := served(t, s, later); got < min(1, before+0.8) {
						t.Errorf("%s: %.2f are served, and %.2f after ten minutes of answers", subject, before, got)
					}
					whole := served(t, s, later)
					_, err = s.Report(later, "tenant", "acme", throttle.Report{Refused: true, Started: later.Add(-time.Millisecond)})
					if noted(t, err); served(t, s, later) >= whole {
						t.Errorf("%s: a refusal after the step back lowers nothing", subject)
					}
				}
			})
		})
	}
}

func served(t *testing.T, s throttletest.Subject, at time.Time) float64 {
	t.Helper()
	usage, err := s.Usage(at, "tenant", "acme")
	noted(t, err)
	return usage.Served
}
