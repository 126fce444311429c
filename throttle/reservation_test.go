package throttle_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestWaited: a granted job says how long it has waited, by Redis' clock: nothing if it was
// granted at once, else from its first request to its start, also through the line.
func TestWaited(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := nearly(t, client, threeScopes, throttle.Options{})
		job := func(id string) throttle.Job {
			return throttle.Job{ID: id, Weight: 1, Keys: map[string]string{"tenant": "acme", "domain": "gmail.com"}}
		}
		granted := func(at time.Duration, id string, want time.Duration) {
			t.Helper()
			if r := comes(t, s, at, job(id), throttle.Granted); r.Waited < want || r.Waited > want+time.Millisecond {
				t.Errorf("%s has waited %s, want %s", id, r.Waited, want)
			}
		}
		granted(0, "first", 0)
		granted(0, "second", 0)
		comes(t, s, 9500*time.Millisecond, job("booked"), throttle.Booked)
		comes(t, s, 9500*time.Millisecond, job("booked too"), throttle.Booked)
		comes(t, s, 9600*time.Millisecond, job("waits"), throttle.Waiting)
		granted(10*time.Second, "booked", 500*time.Millisecond)
		granted(10*time.Second, "booked too", 500*time.Millisecond)
		drain(t, s, dawn.Add(19500*time.Millisecond))
		granted(20*time.Second, "waits", 10400*time.Millisecond)
	})
}

// TestWordsForOutcomes keeps the words that logs and tables show.
func TestWordsForOutcomes(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[throttle.Outcome]string{
		throttle.Granted: "granted", throttle.Booked: "booked", throttle.Waiting: "waiting", 0: "undecided", 4: "undecided",
	} {
		if outcome.String() != want {
			t.Errorf("Outcome(%d): got %s, want %s", outcome, outcome, want)
		}
	}
}
