package throttle_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestF15_EvictedKeys takes away each kind of key in turn.
func TestF15_EvictedKeys(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		for _, precision := range []time.Duration{throttle.Exact, time.Second} {
			for _, end := range []string{"control", "key:global:", "ledger:global::w60000000", "jobs", "timers", "asked:"} {
				// more entries than the scope key has in its own value
				limit := throttle.Limit{Units: 20, Window: time.Minute, Precision: precision}
				s := newScripted(newThrottle(t, client, globalScope(limit), nil))
				what := fmt.Sprintf("%s of %s", end, limit)
				now := time.UnixMicro(1_800_000_000_000_000)
				ask := func(at time.Duration, id string) throttle.Reservation {
					t.Helper()
					got, err := s.Reserve(now.Add(at), throttle.Job{ID: id, Weight: 1})
					if err != nil {
						t.Fatalf("%s, at %s, job %s: %v", what, at, id, err)
					}
					return got
				}
				for i := range 20 {
					ask(time.Duration(i)*time.Second, fmt.Sprint("first", i))
				}
				ask(20*time.Second, "booked")
				ask(21*time.Second, "other")
				takeAway(t, client, s, end)
				for i, id := range []string{"new", "booked", "other", "first3"} {
					ask(25*time.Second+time.Duration(i)*time.Microsecond, id)
				}
				for key, held := range keyspace(t, client, s.throttle) {
					if strings.HasSuffix(held, "expires:false") {
						t.Errorf("%s: afterwards %s has no expiry", what, key)
					}
				}
				// All that was promised is long past: there is room for all.
				for _, id := range []string{"x", "y", "z"} {
					if got := ask(10*time.Minute, id); got.Outcome != throttle.Granted || got.Hold != nil {
						t.Errorf("%s: ten minutes later, job %s: got %+v, want granted at once", what, id, got)
					}
				}
			}
		}
	})
}

// takeAway deletes the one key with this end, or the one of this kind.
func takeAway(t *testing.T, client *redis.Client, s *scripted, end string) {
	t.Helper()
	n := 0
	for _, key := range keyNames(t, client, s.throttle) {
		_, name, _ := strings.Cut(key, "}:4:")
		if name == end || end == "asked:" && strings.HasPrefix(name, end) {
			n++
			if err := client.Del(t.Context(), key).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n != 1 {
		t.Fatalf("%s: %d keys to take away of %q, want 1", end, n, keyNames(t, client, s.throttle))
	}
}

// TestF15_EvictedLine takes away each key of the line while one job is booked and
// others wait: all start as long as they ask again, within the limit. If the line
// itself is lost, its jobs count as waiting until they leave; a job that has left and
// comes again starts too.
func TestF15_EvictedLine(t *testing.T) {
	t.Parallel()
	const lane = "a|global:,tenant:a"
	onServers(t, func(t *testing.T, client *redis.Client) {
		for _, end := range []string{"", "jobs", "timers", "tags:global:", "wait:global:", "lanes:global::a",
			"lane:" + lane} {
			lost := strings.Contains(end, "lane") || strings.HasPrefix(end, "wait")
			scopes := tenantAndGlobal(throttle.Per(5, 10*time.Second), throttle.Per(2, 10*time.Second))
			s := newScripted(newThrottle(t, client, scopes, &throttle.Options{Lookahead: time.Second}))
			began := time.UnixMicro(1_800_000_000_000_000)
			var starts []throttletest.Start
			ask := func(at time.Duration, id string) bool {
				t.Helper()
				job := throttle.Job{ID: id, Weight: 1, Keys: of(id[:1])}
				got, err := s.Reserve(began.Add(at), job)
				if err != nil {
					t.Fatalf("%q away, at %s, job %s: %v", end, at, id, err)
				}
				if got.Outcome != throttle.Granted {
					return false
				}
				starts = append(starts, throttletest.Start{At: got.Start, Weight: 1, Keys: job.Keys})
				return true
			}
			waiting := []string{"a0", "b1", "a2", "a3", "a4", "b5", "a6"}
			for i := 0; i < len(waiting); {
				if ask(time.Duration(i)*time.Millisecond, waiting[i]) {
					waiting = slices.Delete(waiting, i, i+1)
				} else {
					i++
				}
			}
			drain(t, s, began.Add(9500*time.Millisecond)) // books some
			if end != "" {
				takeAway(t, client, s, end)
			}
			if lost {
				if _, err := s.Leave(began.Add(9600*time.Millisecond), waiting); err != nil {
					t.Fatal(err)
				}
			}
			for at := 10 * time.Second; at < time.Minute && len(waiting) > 0; at += time.Second {
				drain(t, s, began.Add(at))
				waiting = slices.DeleteFunc(waiting, func(id string) bool { return ask(at, id) })
			}
			if len(waiting) > 0 {
				t.Errorf("%q away: %v did not start", end, waiting)
			}
			for _, over := range throttletest.Check(scopes, starts) {
				t.Errorf("%q away: window over its limit: %s", end, over)
			}
		}
	})
}
