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
	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestPropertyExpiry lets keys expire as time goes on and compares with the model,
// which forgets nothing: no key goes while something in it counts, every key goes
// afterwards.
func TestPropertyExpiry(t *testing.T) {
	t.Parallel()
	server, client := expiringServer(t)
	rapid.Check(t, func(t *rapid.T) { newAging(t, server, client).run(t, false) })
}

// TestF15_PropertyEviction takes keys away at any time, as a server with an
// eviction policy does: no call fails, nobody is blocked for good, and what is
// there expires.
func TestF15_PropertyEviction(t *testing.T) {
	t.Parallel()
	server, client := expiringServer(t)
	rapid.Check(t, func(t *rapid.T) { newAging(t, server, client).run(t, true) })
}

func expiringServer(t *testing.T) (*miniredis.Miniredis, *redis.Client) {
	t.Helper()
	server := miniredis.RunT(t)
	return server, defaultClient(t, server.Addr())
}

// aging is a throttle on a miniredis whose keys expire with the test's time.
type aging struct {
	server *miniredis.Miniredis
	client *redis.Client
	scopes []throttle.Scope
	grace  time.Duration
	script *scripted
	model  *throttletest.Model
	now    time.Time
	jobs   []throttle.Job
	asked  int
}

func newAging(t *rapid.T, server *miniredis.Miniredis, client *redis.Client) *aging {
	a := &aging{
		server: server, client: client, scopes: drawScopes(t),
		grace: rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Minute}).Draw(t, "grace"),
		now:   time.UnixMicro(1_800_000_000_000_000),
	}
	options := throttle.Options{Grace: a.grace, Lookahead: rapid.SampledFrom([]time.Duration{throttle.MaxWindow, time.Second}).Draw(t, "lookahead"), Timeout: time.Minute}
	a.script = newScripted(newThrottle(t, client, a.scopes, &options))
	a.model = throttletest.NewModel(a.scopes, options)
	return a
}

func (a *aging) run(t *rapid.T, evict bool) {
	actions := map[string]func(*rapid.T){
		"advance": a.advance,
		"arrive":  func(t *rapid.T) { a.reserve(t, a.draw(t), evict) },
		"return":  func(t *rapid.T) { a.reserve(t, a.known(t), evict) },
		"cancel":  func(t *rapid.T) { a.giveBack(t, evict) },
		"usage":   func(t *rapid.T) { a.usage(t, evict) },
		"":        a.everyKeyExpires,
	}
	if evict {
		actions["evict"] = a.evict
	}
	t.Repeat(actions)
	a.nothingRemains(t)
}

func (a *aging) advance(t *rapid.T) {
	step := rapid.OneOf(
		rapid.Int64Range(0, 5_000_000),
		rapid.Int64Range(0, 200_000_000),
		rapid.SampledFrom([]int64{1, 1_000_000, 7_000_000, 37_000_000, 60_000_000, 90_000_000, 3_600_000_000, 3_700_000_000, 9_000_000_000}),
	).Draw(t, "step")
	a.forward(time.Duration(step) * time.Microsecond)
}

func (a *aging) forward(d time.Duration) {
	a.now = a.now.Add(d)
	a.server.FastForward(d)
}

func (a *aging) draw(t *rapid.T) throttle.Job {
	job := throttle.Job{
		ID:      fmt.Sprint("job", len(a.jobs)),
		Weight:  rapid.Int64Range(1, (&machine{scopes: a.scopes}).lightest()).Draw(t, "weight"),
		Keys:    of(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "tenant")),
		MaxWait: rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute, 2 * time.Hour}).Draw(t, "wait"),
	}
	a.jobs = append(a.jobs, job)
	return job
}

func (a *aging) known(t *rapid.T) throttle.Job {
	if len(a.jobs) == 0 {
		t.Skip("no job yet")
	}
	return rapid.SampledFrom(a.jobs).Draw(t, "job")
}

func (a *aging) reserve(t *rapid.T, job throttle.Job, evicted bool) {
	a.asked++
	job.Nonce = fmt.Sprint("n", a.asked)
	got, gotErr := a.script.Reserve(a.now, job)
	if evicted {
		a.succeeded(t, "Reserve", gotErr)
		return
	}
	want, wantErr := a.model.Reserve(a.now, job)
	same(t, "Reserve", certain(got), certain(want), gotErr, wantErr)
}

func (a *aging) giveBack(t *rapid.T, evicted bool) {
	job := a.known(t)
	got, gotErr := a.script.Cancel(a.now, job)
	if evicted {
		a.succeeded(t, "Cancel", gotErr)
		return
	}
	want, wantErr := a.model.Cancel(a.now, job)
	same(t, "Cancel", got, want, gotErr, wantErr)
}

func (a *aging) usage(t *rapid.T, evicted bool) {
	got, gotErr := a.script.Usage(a.now, "tenant", "a")
	if evicted {
		a.succeeded(t, "Usage", gotErr)
		return
	}
	want, wantErr := a.model.Usage(a.now, "tenant", "a")
	same(t, "Usage", got, want, gotErr, wantErr)
}

func (a *aging) succeeded(t *rapid.T, call string, err error) {
	if err != nil {
		t.Fatalf("%s: %v", call, err)
	}
}

func (a *aging) keys() []string {
	var own []string
	for _, key := range a.server.Keys() {
		if strings.Contains(key, "{"+a.script.throttle.Name()+"}") {
			own = append(own, key)
		}
	}
	return own
}

func (a *aging) evict(t *rapid.T) {
	keys := a.keys()
	if len(keys) == 0 {
		t.Skip("nothing to take away")
	}
	a.server.Del(rapid.SampledFrom(keys).Draw(t, "key"))
}

func (a *aging) everyKeyExpires(t *rapid.T) {
	for _, key := range a.keys() {
		if a.server.TTL(key) <= 0 {
			t.Fatalf("key %q has no expiry", key)
		}
	}
}

// nothingRemains goes on until the last start and its window are past. Then there
// is room for everything, and no key.
func (a *aging) nothingRemains(t *rapid.T) {
	var last time.Duration // that a key may live: a booking far ahead, its window and slack
	for _, key := range a.keys() {
		last = max(last, a.server.TTL(key))
	}
	a.forward(last)
	if keys := a.keys(); len(keys) > 0 {
		t.Fatalf("after %s there is still %q", last, keys)
	}
	for _, tenant := range []string{"a", "b"} {
		job := throttle.Job{ID: "last of " + tenant, Weight: 1, Keys: map[string]string{"tenant": tenant, "domain": tenant}}
		got, err := a.script.Peek(a.now, job)
		if err != nil || got.Outcome != throttle.Granted || got.Hold != nil {
			t.Fatalf("after %s: got %+v, %v; want room", last, got, err)
		}
	}
}

// TestEveryKeyExpiresInTime: on both servers, after some use, every key has an
// expiry, no longer than what may count, the grace, the slack for a clock that
// steps back and a quarter of the window; the line's keys the lookahead,
// two windows and a day.
func TestEveryKeyExpiresInTime(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		const grace, window = 5 * time.Second, 20 * time.Second
		scopes := []throttle.Scope{
			{Name: "tenant", Limits: []throttle.Limit{throttle.Per(3, time.Second), {Units: 9, Window: window, Precision: time.Second}}},
			{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(20, window)}, Optional: true},
		}
		for lookahead, want := range map[time.Duration]string{
			throttle.MaxWindow: "agenda job key ledger line",
			2 * time.Second:    "agenda heads job key lane ledger line ready tags",
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
					case "job":
						bound = ahead + time.Hour + 2*time.Second // what was given back cannot be settled
					case "key", "ledger":
						bound = ahead + window + time.Second + grace + 30*time.Second + window/4 + time.Second
					}
					if left := ttl(t, client, key); left <= 0 || left > bound {
						t.Errorf("job %d, lookahead %s: key %q expires in %s, want above 0 and at most %s", i, lookahead, key, left, bound)
					}
				}
				if i%4 == 0 {
					if _, err := s.Cancel(now, got.Job); err != nil {
						t.Fatalf("cancel %d: %v", i, err)
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
			for _, end := range []string{"key:global:", "ledger:global::10000000", "line", "agenda", "job:b"} {
				limit := throttle.Limit{Units: 3, Window: 10 * time.Second, Precision: precision}
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
				for i, id := range []string{"a", "b", "c", "booked", "other"} {
					ask(time.Duration(i)*time.Second, id)
				}
				if n, err := client.Del(t.Context(), "thr:{"+s.throttle.Name()+"}:3:"+end).Result(); err != nil || n != 1 {
					t.Fatalf("%s: %d keys taken away, %v", what, n, err)
				}
				for i, id := range []string{"new", "booked", "other", "b"} {
					ask(5*time.Second+time.Duration(i), id)
				}
				for key, held := range keyspace(t, client, s.throttle) {
					if strings.HasSuffix(held, "expires:false") {
						t.Errorf("%s: afterwards %s has no expiry", what, key)
					}
				}
				// All that was promised is long past: there is room for all.
				for _, id := range []string{"x", "y", "z"} {
					if got := ask(time.Minute, id); got.Outcome != throttle.Granted || got.Hold != nil {
						t.Errorf("%s: a minute later, job %s: got %+v, want granted at once", what, id, got)
					}
				}
			}
		}
	})
}

// TestF15_EvictedLine takes away each key of the line while one job is booked and
// others wait: all start as long as they ask again, within the limit.
func TestF15_EvictedLine(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		for _, end := range []string{"", "line", "agenda", "ready", "tags", "heads:a", "lane:a|"} {
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
				if n, err := client.Del(t.Context(), "thr:{"+s.throttle.Name()+"}:3:"+end).Result(); err != nil || n != 1 {
					t.Fatalf("%s: %d keys taken away, %v", end, n, err)
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
// configuration, and each counts what the other has started, also under a window that
// the other does not know.
func TestF54_ConfigurationsSideBySide(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		old := newThrottle(t, client, globalScope(throttle.PerMinute(10), throttle.PerHour(20)), nil)
		changed, err := throttle.New(old.Name(), client, globalScope(throttle.PerHour(5), throttle.PerDay(50)),
			&throttle.Options{Lookahead: throttle.MaxWindow})
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
			"changed": {changed, []throttle.LimitUsage{{Used: 5, Booked: 2}, {Used: 5, Booked: 2}}},
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
