package throttle_test

import (
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestFarGrantOutlivesItsKey: a job that is granted a start far ahead, after a debt, counts for a
// window from that start: its scope key does not expire before.
func TestFarGrantOutlivesItsKey(t *testing.T) {
	t.Parallel()
	_, client := ageingServer(t)
	scopes := globalScope(throttle.Limit{Units: 10, Window: time.Hour, Precision: throttle.Exact})
	s := newScripted(newThrottle(t, client, scopes, &throttle.Options{Lookahead: time.Second}))
	var starts []throttletest.Start
	ask := func(at time.Duration, id string, weight int64, wait time.Duration) throttle.Reservation {
		t.Helper()
		r, err := s.Reserve(dawn.Add(at), throttle.Job{ID: id, Weight: weight, MaxWait: wait})
		if err != nil {
			t.Fatal(err)
		}
		if r.Outcome == throttle.Granted {
			starts = append(starts, throttletest.Start{At: r.Start, Weight: weight})
		}
		return r
	}
	ask(0, "first", 4, 0)
	debtor := ask(time.Hour-time.Second, "debtor", 6, 0)
	ask(time.Hour-500*time.Millisecond, "waits", 3, 0)
	if done, err := s.Settle(dawn.Add(time.Hour), debtor, 20); err != nil || !done {
		t.Fatal(done, err)
	}
	far := ask(time.Hour+time.Second, "waits", 3, time.Hour)
	if far.Outcome != throttle.Granted || far.Delay() < 50*time.Minute {
		t.Fatalf("got %s in %s, want a grant an hour ahead: this test has lost its object", far.Outcome, far.Delay())
	}
	ask(2*time.Hour+18*time.Minute, "all", 10, 0)
	for _, over := range throttletest.Check(scopes, starts) {
		t.Errorf("window over its limit: %s", over)
	}
}
