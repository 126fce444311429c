package throttle_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestEveryKeyExpiresInTime: on both servers, after some use, every key has an
// expiry. That of a scope key is no longer than what may count, the lookahead, the
// grace and a minute, and a quarter more; that of the line's keys the lookahead, two
// windows and 30 days.
func TestEveryKeyExpiresInTime(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		const grace, window = 5 * time.Second, 20 * time.Second
		scopes := []throttle.Scope{
			{Name: "tenant", Limits: []throttle.Limit{throttle.Per(3, time.Second),
				{Units: 9, Window: window, Precision: time.Second}}},
			{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(20, window)}, Optional: true},
		}
		for lookahead, want := range map[time.Duration]string{
			maxWindow:       "asked control jobs key overdue pulled settled timers",
			2 * time.Second: "asked control jobs key lane lanes overdue pulled settled tags timers wait",
		} {
			s := newScripted(newThrottle(t, client, scopes, &throttle.Options{Grace: grace, Lookahead: lookahead}))
			now := time.UnixMicro(1_800_000_000_000_000)
			var ahead time.Duration // of the furthest start when it was decided
			seen := make(map[string]bool)
			for i := range 60 {
				now = now.Add(time.Duration(i%7) * 100 * time.Millisecond)
				job := throttle.Job{ID: fmt.Sprint(i), Weight: int64(1 + i%3), Keys: of(fmt.Sprint(i % 2)),
					MaxWait: time.Duration(i%5) * time.Second}
				got, err := s.Reserve(now, job)
				if err != nil {
					t.Fatalf("job %d: %v", i, err)
				}
				if got.Outcome != throttle.Waiting {
					ahead = max(ahead, got.Delay())
				}
				for _, key := range keyNames(t, client, s.throttle) {
					kind := strings.Split(key, ":")[3]
					seen[kind] = true
					bound := lookahead + 2*window + 30*24*time.Hour
					switch kind {
					case "key", "ledger":
						bound = (ahead + window + 2*time.Second + lookahead + grace + time.Minute) * 5 / 4 // two sub-windows
					case "asked":
						bound = 10 * time.Minute
					case "settled":
						bound = ahead + time.Hour + time.Second
					}
					if left := ttl(t, client, key); left <= 0 || left > bound {
						t.Errorf("job %d, lookahead %s: key %q expires in %s, want above 0 and at most %s", i,
							lookahead, key, left, bound)
					}
				}
				if i%4 == 0 {
					giveBack := func() (bool, error) { return s.Cancel(now, got.Job) }
					if got.Outcome == throttle.Granted {
						giveBack = func() (bool, error) { return s.Refund(now, got) }
					}
					if done, err := giveBack(); err != nil || !done {
						t.Fatalf("job %d, which is %s, is given back: %t, %v", i, got.Outcome, done, err)
					}
				}
				for _, r := range drain(t, s, now) {
					ahead = max(ahead, r.Delay())
				}
			}
			if got := strings.Join(slices.Sorted(maps.Keys(seen)), " "); got != want {
				t.Errorf("lookahead %s: keys of %s, want %s: this test has tested nothing", lookahead, got, want)
			}
		}
	})
}

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
		t.Fatalf("got %s in %s, want a grant an hour ahead: this test has tested nothing", far.Outcome, far.Delay())
	}
	ask(2*time.Hour+18*time.Minute, "all", 10, 0)
	for _, over := range throttletest.Check(scopes, starts) {
		t.Errorf("window over its limit: %s", over)
	}
}
