package throttle_test

import (
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// settles fails the test unless a settlement does what is expected, and so much is used then.
func settles(t *testing.T, s *scripted, at time.Duration, granted throttle.Reservation, actual int64, want bool,
	used int64) {
	t.Helper()
	done, err := s.Settle(dawn.Add(at), granted, actual)
	if err != nil || done != want {
		t.Errorf("settled to %d after %s: %t, %v; want %t", actual, at, done, err, want)
	}
	usage, err := s.Usage(dawn.Add(at), throttle.Global, "")
	if err != nil || usage.Limits[0].Used != used {
		t.Errorf("after %s: %+v, %v; want %d used", at, usage.Limits, err, used)
	}
}

// TestGrantIsSettledOnceWhateverSettleWithin: with a SettleWithin of two hours a grant is settled
// once within these, even if more than an hour lies between two attempts, and not at all later.
func TestGrantIsSettledOnceWhateverSettleWithin(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	for _, first := range []time.Duration{time.Minute, 119 * time.Minute} {
		s := newScripted(newThrottle(t, client, globalScope(throttle.PerDay(10)),
			&throttle.Options{SettleWithin: 2 * time.Hour}))
		at := time.Duration(0)
		pass := func(until time.Duration) time.Duration {
			server.FastForward(until - at)
			at = until
			return at
		}
		granted := comes(t, s, 0, throttle.Job{ID: "a", Weight: 5}, throttle.Granted)
		late := comes(t, s, 0, throttle.Job{ID: "late", Weight: 2}, throttle.Granted)
		settles(t, s, pass(first), granted, 1, true, 1+2)
		for _, again := range []time.Duration{first, max(first, 62*time.Minute), 119 * time.Minute,
			120 * time.Minute, 121 * time.Minute, 20 * time.Hour} {
			settles(t, s, pass(max(at, again)), granted, 4, false, 1+2)
		}
		settles(t, s, at, late, 0, false, 1+2)
	}
}

// TestMarkOfASettlementLivesAsLongAsItCouldBeMadeAgain: on every server the mark is there
// until SettleWithin after the start.
func TestMarkOfASettlementLivesAsLongAsItCouldBeMadeAgain(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := newThrottle(t, client, globalScope(throttle.PerDay(10)), &throttle.Options{SettleWithin: 2 * time.Hour})
		granted := reserve(t, th, throttle.Job{ID: "a", Weight: 5})
		if done, err := th.Settle(t.Context(), granted, 1); !done || err != nil {
			t.Fatalf("settled: %t, %v", done, err)
		}
		marks := 0
		for _, key := range keyNames(t, client, th) {
			if strings.Contains(key, ":settled:") {
				marks++
				if left := ttl(t, client, key); left < 2*time.Hour-time.Minute || left > 2*time.Hour+time.Second {
					t.Errorf("%s lives for %s, want two hours from its start on", key, left)
				}
			}
		}
		if marks != 1 {
			t.Errorf("%d marks, want 1", marks)
		}
	})
}

// TestBothGrantsOfAJobAreSettledOnTheirOwn: a job that was granted twice, since it ran again,
// was charged twice: each grant is settled once, in any order, and neither settles the other.
func TestBothGrantsOfAJobAreSettledOnTheirOwn(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		for _, firstFirst := range []bool{true, false} {
			s := newScripted(newThrottle(t, client, globalScope(throttle.PerDay(20)), nil))
			one := comes(t, s, 0, throttle.Job{ID: "a", Weight: 5}, throttle.Granted)
			two := comes(t, s, time.Second, throttle.Job{ID: "a", Weight: 5}, throttle.Granted)
			if !firstFirst {
				one, two = two, one
			}
			settles(t, s, 2*time.Second, one, 1, true, 1+5)
			settles(t, s, 3*time.Second, one, 0, false, 1+5)
			settles(t, s, 4*time.Second, two, 3, true, 1+3)
			settles(t, s, 5*time.Second, two, 0, false, 1+3)
			settles(t, s, 6*time.Second, one, 9, false, 1+3)
		}
	})
}
