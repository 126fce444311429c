package throttle_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

func expiringServer(t *testing.T) (*miniredis.Miniredis, *redis.Client) {
	t.Helper()
	server := miniredis.RunT(t)
	return server, defaultClient(t, server.Addr())
}

// TestEveryKeyExpiresInTime: on both servers, after some use, every key has an
// expiry. That of a scope key is no longer than what may count, the lookahead, the
// grace and a minute, and a quarter more; that of the line's keys the lookahead, two
// windows and 30 days.
func TestEveryKeyExpiresInTime(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		const grace, window = 5 * time.Second, 20 * time.Second
		scopes := []throttle.Scope{
			{Name: "tenant", Limits: []throttle.Limit{throttle.Per(3, time.Second), {Units: 9, Window: window, Precision: time.Second}}},
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
				job := throttle.Job{ID: fmt.Sprint(i), Weight: int64(1 + i%3), Keys: of(fmt.Sprint(i % 2)), MaxWait: time.Duration(i%5) * time.Second}
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
						t.Errorf("job %d, lookahead %s: key %q expires in %s, want above 0 and at most %s", i, lookahead, key, left, bound)
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
				t.Errorf("lookahead %s: keys of %s, want %s: this test has lost its object", lookahead, got, want)
			}
		}
	})
}

// TestF15_EvictedKeys takes away each kind of key in turn.
func TestF15_EvictedKeys(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		for _, precision := range []time.Duration{throttle.Exact, time.Second} {
			for _, end := range []string{"control", "key:global:", "ledger:global::60000000", "timers", "asked:"} {
				limit := throttle.Limit{Units: 20, Window: time.Minute, Precision: precision} // more entries than the scope key has in its own value
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

// takeAway deletes the one key that ends so, or the one of that kind.
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
// others wait: all start as long as they ask again, within the limit. Where the line
// itself is lost, its jobs pass for waiting until they leave; who has left and
// comes again starts too.
func TestF15_EvictedLine(t *testing.T) {
	t.Parallel()
	const lane = "a|global:,tenant:a"
	onServers(t, func(t *testing.T, client *redis.Client) {
		for _, end := range []string{"", "jobs", "timers", "tags:global:", "wait:global:", "lanes:global::a", "lane:" + lane} {
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

// TestF54_ConfigurationsSideBySide: an old and a new process decide each by its own
// configuration, and each counts what the other has started, from when it was first asked
// for also under a window that the other does not know.
func TestF54_ConfigurationsSideBySide(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		old := newThrottle(t, client, globalScope(throttle.PerMinute(10), throttle.PerHour(20)), nil)
		changed, err := throttle.New(old.Name(), client, globalScope(throttle.PerHour(5), throttle.PerDay(50)),
			&throttle.Options{Lookahead: maxWindow})
		if err != nil {
			t.Fatal(err)
		}
		reserve(t, old, throttle.Job{ID: "1", Weight: 4})
		// The new limit of the hour is below what was used: nothing more starts.
		if got := reserve(t, changed, throttle.Job{ID: "2", Weight: 2}); got.Outcome != throttle.Booked || got.Hold == nil || got.Hold.Limit != throttle.PerHour(5) {
			t.Errorf("lowered: got %+v, want booked because of 5/1h", got)
		}
		reserve(t, changed, throttle.Job{ID: "3", Weight: 1})
		for name, test := range map[string]struct {
			th   *throttle.Throttle
			want []throttle.LimitUsage // Used and Booked
		}{
			"old":     {old, []throttle.LimitUsage{{Used: 5, Booked: 2}, {Used: 5, Booked: 2}}},
			"changed": {changed, []throttle.LimitUsage{{Used: 5, Booked: 2}, {Used: 1, Booked: 2}}}, // the day is new to it
		} {
			usage, err := test.th.Usage(t.Context(), throttle.Global, "")
			if err != nil {
				t.Fatal(err)
			}
			for i := range usage.Limits {
				usage.Limits[i].Limit, usage.Limits[i].Free = throttle.Limit{}, time.Time{}
			}
			if diff := cmp.Diff(test.want, usage.Limits); diff != "" {
				t.Errorf("%s: usage (-want +got):\n%s", name, diff)
			}
		}
		// With the old configuration the raised limit has room at once, until its minute
		// is full of what both have started.
		if got := reserve(t, old, throttle.Job{ID: "4", Weight: 3}); got.Outcome != throttle.Granted {
			t.Errorf("raised: got %+v, want granted", got)
		}
	})
}
