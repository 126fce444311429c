package throttle_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestRaisedLimitMovesNoBookingLater: a limit is raised past 100 units, above which it is
// no longer exact by default, or is set with sub-windows; a job that was booked before
// starts at its slot or earlier.
func TestRaisedLimitMovesNoBookingLater(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		for _, window := range []time.Duration{10 * time.Second, time.Minute, time.Hour, 24 * time.Hour} {
			for _, precision := range []time.Duration{0, throttle.Exact, window / 100, window / 10} {
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
				if b.Outcome != throttle.Booked || slot != window {
					t.Fatalf("%s: %s for %s before it is raised", window, b.Outcome, slot)
				}
				raised := throttle.Limit{Units: 150, Window: window, Precision: precision}
				if err := s.SetLimits(dawn.Add(2*time.Second), throttle.Global, "", []throttle.Limit{raised},
					time.Time{}); err != nil {
					t.Fatal(err)
				}
				// Somebody asks under the new limit.
				if _, err := s.Reserve(dawn.Add(3*time.Second), throttle.Job{ID: "c", Weight: 1}); err != nil {
					t.Fatal(err)
				}
				again := ask(slot, "b")
				if again.Outcome != throttle.Granted || again.Start.Sub(dawn) > slot {
					t.Errorf("%s: booked for %s under 100, then raised to %s: %s for %s, %s later", window, slot,
						raised, again.Outcome, again.Start.Sub(dawn), again.Start.Sub(dawn)-slot)
				}
			}
		}
	})
}
