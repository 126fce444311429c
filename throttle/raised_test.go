package throttle_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestRaisedLimitMovesNoBookingLater: a limit is raised past 100 units, above which it is
// no longer exact by default; a job that was booked before starts at its slot or earlier.
func TestRaisedLimitMovesNoBookingLater(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		for _, window := range []time.Duration{10 * time.Second, time.Minute, time.Hour, 24 * time.Hour} {
			th := newThrottle(t, client, globalScope(throttle.Per(100, window)), nil)
			s := newScripted(th)
			ask := func(at time.Duration, id string) throttle.Reservation {
				r, err := s.Reserve(dawn.Add(at), throttle.Job{ID: id, Weight: 100})
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			ask(0, "a")
			b := ask(time.Second, "b")
			slot := b.Start.Sub(dawn)
			if err := s.SetLimits(dawn.Add(2*time.Second), throttle.Global, "", []throttle.Limit{throttle.Per(150, window)}); err != nil {
				t.Fatal(err)
			}
			// Somebody asks under the new limit: from here on it is counted in sub-windows.
			if _, err := s.Reserve(dawn.Add(3*time.Second), throttle.Job{ID: "c", Weight: 1}); err != nil {
				t.Fatal(err)
			}
			again := ask(slot, "b")
			if again.Outcome != throttle.Granted || again.Start.Sub(dawn) > slot {
				t.Errorf("%s: booked for %s under 100, then raised to 150: %s for %s, %s later", window, slot, again.Outcome, again.Start.Sub(dawn), again.Start.Sub(dawn)-slot)
			}
		}
	})
}
