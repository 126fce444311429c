package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

func expiringServer(t *testing.T) (*miniredis.Miniredis, *redis.Client) {
	t.Helper()
	server := miniredis.RunT(t)
	return server, defaultClient(t, server.Addr())
}

// ageingServer is a miniredis whose keys expire by the instants that its scripts are told.
func ageingServer(t *testing.T) (*miniredis.Miniredis, *redis.Client) {
	t.Helper()
	server := miniredis.RunT(t)
	client := onceClient(t, server.Addr()) // its hooks are not lost
	client.AddHook(ageing{server: server, at: new(atomic.Int64)})
	return server, client
}

// TestPropertyExpiry goes through random histories in which keys expire as time goes on,
// and compares with the model, which forgets nothing: no key goes while anything in it
// counts. Every key has an expiry but one that has something set; when that is taken back,
// none remains.
func TestPropertyExpiry(t *testing.T) {
	t.Parallel()
	server, client := ageingServer(t)
	rapid.Check(t, func(t *rapid.T) {
		h := newMachine(t, client)
		a := &aging{machine: h, server: server}
		actions := h.actions()
		actions[""], actions["time passes"], actions["time passes "] = a.everyKeyExpires, a.advance, a.advance
		t.Repeat(actions)
		a.takeBack(t)
		a.nothingRemains(t)
	})
}

// TestF15_PropertyEviction takes keys away at any time, as a server with an eviction policy
// does: no call fails, what is there expires, and nobody is blocked for good.
func TestF15_PropertyEviction(t *testing.T) {
	t.Parallel()
	server, client := ageingServer(t)
	rapid.Check(t, func(t *rapid.T) {
		a := &aging{machine: newMachine(t, client), server: server, lost: make(map[string]bool)}
		t.Repeat(map[string]func(*rapid.T){
			"time passes": a.advance,
			"evict":       a.evict,
			"arrive":      func(t *rapid.T) { a.asks(t, a.drawNew(t)) },
			"arrive ":     func(t *rapid.T) { a.asks(t, a.drawNew(t)) },
			"come back":   a.comesBack,
			"on time":     a.comesOnTime,
			"cancel":      func(t *rapid.T) { done(t, "Cancel")(a.redis.Cancel(a.now, a.known(t))) },
			"leave":       func(t *rapid.T) { done(t, "Leave")(a.redis.Leave(a.now, []string{a.known(t).ID, "nobody"})) },
			"pull":        a.pulls,
			"pull ":       a.pulls,
			"release":     func(t *rapid.T) { done(t, "Release")(a.redis.Release(a.now, a.grant(t))) },
			"settle":      func(t *rapid.T) { done(t, "Settle")(a.redis.Settle(a.now, a.grant(t), 7)) },
			"refund":      func(t *rapid.T) { done(t, "Refund")(a.redis.Refund(a.now, a.grant(t))) },
			"usage":       func(t *rapid.T) { done(t, "Usage")(a.redis.Usage(a.now, "tenant", "a")) },
			"lines":       func(t *rapid.T) { done(t, "Lines")(a.redis.Lines(a.now, "")) },
			"":            a.everyKeyExpires,
		})
		a.nothingRemains(t)
	})
}

// ageing has a server's keys expire by the instants that its scripts are told.
type ageing struct {
	server *miniredis.Miniredis
	at     *atomic.Int64 // us
}

// DialHook implements redis.Hook.
func (ageing) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (ageing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook lets time pass before a script runs. A throttle that is earlier than the last
// one is another history's.
func (a ageing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 4 && strings.HasPrefix(fmt.Sprint(args[0]), "eval") {
			keys, _ := args[2].(int)
			if now, err := strconv.ParseInt(fmt.Sprint(args[3+keys]), 10, 64); err == nil {
				if before := a.at.Swap(now); before > 0 && before < now {
					a.server.FastForward(time.Duration(now-before) * time.Microsecond)
				}
			}
		}
		return next(ctx, cmd)
	}
}

// aging is a history on a miniredis whose keys expire.
type aging struct {
	*machine
	server *miniredis.Miniredis
	passed time.Duration
	lost   map[string]bool // the ends of keys that were taken away
}

// mostPasses is less than the line's keys live beside each window: what nobody pulls for
// longer is forgotten.
const mostPasses = 29 * 24 * time.Hour

// advance lets much time pass, more often than the machine does.
func (a *aging) advance(t *rapid.T) {
	step := rapid.OneOf(
		rapid.Int64Range(0, 5_000_000),
		rapid.Int64Range(0, 200_000_000),
		rapid.SampledFrom([]int64{1, 1_000_000, 7_000_000, 37_000_000, 60_000_000, 90_000_000, 600_000_000,
			3_600_000_000, 3_700_000_000, 9_000_000_000, 100_000_000_000}),
	).Draw(t, "step")
	if a.passed += time.Duration(step) * time.Microsecond; a.passed < mostPasses {
		a.now = a.now.Add(time.Duration(step) * time.Microsecond)
	}
}

func (a *aging) keys() []string {
	var own []string
	for _, key := range a.server.Keys() {
		if strings.Contains(key, "{"+a.redis.throttle.Name()+"}") {
			own = append(own, key)
		}
	}
	return own
}

func (a *aging) everyKeyExpires(t *rapid.T) {
	for _, key := range a.keys() {
		_, end, _ := strings.Cut(key, "}:4:")
		if a.server.TTL(key) > 0 || a.isLost(end) {
			continue
		}
		text, _ := a.server.Get(key)
		first, _, _ := strings.Cut(text, "\n")
		hasOwn := strings.HasPrefix(end, "key:") && !strings.HasSuffix(first, " -")
		isSet := end == "control" && text != "-"
		if scopeKey, is := strings.CutPrefix(end, "ledger:"); is {
			scopeKey = scopeKey[:strings.LastIndex(scopeKey, ":")]
			hasOwn = a.set.own[scopeKey].is != nil
		}
		if !hasOwn && !isSet {
			t.Fatalf("key %q has no expiry: %q", key, text)
		}
	}
}

// takeBack takes back what is set at run time, which lives as long as it is set.
func (a *aging) takeBack(t *rapid.T) {
	for _, name := range slices.Sorted(maps.Keys(a.set.own)) {
		scope, key, _ := strings.Cut(name, ":")
		if err := a.redis.ResetLimits(a.now, scope, key); err != nil {
			t.Fatal(err)
		}
	}
	for _, scope := range slices.Sorted(maps.Keys(a.set.modes)) {
		if err := a.redis.ResetMode(a.now, scope); err != nil {
			t.Fatal(err)
		}
	}
}

// nothingRemains goes on until the last key must be gone, and the last start and its window
// past. Then there is no key, and room for everything.
func (a *aging) nothingRemains(t *rapid.T) {
	var last time.Duration
	for _, key := range a.keys() {
		last = max(last, a.server.TTL(key))
	}
	a.server.FastForward(last)
	a.now = a.now.Add(last)
	keys := slices.DeleteFunc(a.keys(),
		func(key string) bool { _, end, _ := strings.Cut(key, "}:4:"); return a.isLost(end) })
	if len(keys) > 0 {
		t.Fatalf("after %s there is still %q", last, keys)
	}
	for _, tenant := range []string{"a", "b", "c"} {
		job := throttle.Job{ID: "last of " + tenant, Weight: 1, Keys: map[string]string{"tenant": tenant, "domain": "x"}}
		got, err := a.redis.Reserve(a.now, job)
		if err != nil || got.Outcome != throttle.Granted || got.Hold != nil {
			t.Fatalf("after %s: %s got %+v, %v; want room", last, job.ID, got, err)
		}
		done(t, "Refund")(a.redis.Refund(a.now, got))
		got.Cooldowns = map[string]time.Duration{throttle.Global: 0, "domain": 0} // which the jobs share
		done(t, "Done")(a.redis.Done(a.now, got))
	}
}

// evict takes a key away.
func (a *aging) evict(t *rapid.T) {
	keys := a.keys()
	if len(keys) == 0 {
		t.Skip("nothing to take away")
	}
	key := rapid.SampledFrom(keys).Draw(t, "key")
	_, end, _ := strings.Cut(key, "}:4:")
	a.lost[end] = true
	a.server.Del(key)
}

// isLost tolerates nothing.
func (a *aging) isLost(string) bool { return false }

// asks asks for a job, which may be refused for its weight or its deadline.
func (a *aging) asks(t *rapid.T, job throttle.Job) {
	a.jobs[job.ID] = job
	r, err := a.redis.Reserve(a.now, job)
	var late *throttle.DeadlineError
	switch {
	case errors.As(err, &late):
		return
	case err != nil:
		t.Fatalf("Reserve: %v", err)
	case r.Outcome == throttle.Booked:
		a.slots = append(a.slots, r)
	case r.Outcome == throttle.Granted:
		a.grants[job.ID+" "+job.Nonce] = r
	}
}

func (a *aging) comesBack(t *rapid.T) {
	job := a.known(t)
	job.Nonce, job.Deadline = a.nonce(), time.Time{}
	a.asks(t, job)
}

func (a *aging) comesOnTime(t *rapid.T) {
	if len(a.slots) == 0 {
		t.Skip("no slot yet")
	}
	i := rapid.IntRange(0, len(a.slots)-1).Draw(t, "slot")
	slot := a.slots[i]
	a.slots = slices.Delete(a.slots, i, i+1)
	if slot.Start.After(a.now) {
		a.now = slot.Start
	}
	job := slot.Job
	job.Nonce, job.Deadline, job.Plan = a.nonce(), time.Time{}, false
	a.asks(t, job)
}

func (a *aging) pulls(t *rapid.T) {
	pulled, err := a.redis.Pull(a.now)
	done(t, "Pull")(pulled, err)
	for _, r := range pulled.Booked {
		r.Job = a.jobs[r.Job.ID]
		a.slots = append(a.slots, r)
	}
}

func (a *aging) grant(t *rapid.T) throttle.Reservation {
	if len(a.grants) == 0 {
		t.Skip("no grant yet")
	}
	return a.grants[rapid.SampledFrom(slices.Sorted(maps.Keys(a.grants))).Draw(t, "grant")]
}

// done fails the test where a call fails.
func done(t *rapid.T, call string) func(value any, err error) {
	t.Helper()
	return func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", call, err)
		}
	}
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

// TestF54_ConfigurationsSideBySide: an old and a new process decide each by its own
// configuration, and each counts what the other has started, from when it was first asked
// for also under a window that the other does not know.
func TestF54_ConfigurationsSideBySide(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		old := newThrottle(t, client, globalScope(throttle.PerMinute(10), throttle.PerHour(20)), nil)
		changed, err := throttle.New(old.Name(), client, globalScope(throttle.PerHour(5), throttle.PerDay(50)),
			&throttle.Options{Timeout: patient, Lookahead: maxWindow})
		if err != nil {
			t.Fatal(err)
		}
		reserve(t, old, throttle.Job{ID: "1", Weight: 4})
		// The new limit of the hour is below what was used: nothing more starts.
		if got := reserve(t, changed, throttle.Job{ID: "2", Weight: 2}); got.Outcome != throttle.Booked ||
			got.Hold == nil || got.Hold.Limit != throttle.PerHour(5) {
			t.Errorf("lowered: got %+v, want booked because of 5/1h", got)
		}
		reserve(t, changed, throttle.Job{ID: "3", Weight: 1})
		for name, test := range map[string]struct {
			th   *throttle.Throttle
			want []inspect.LimitUsage // Used and Booked
		}{
			"old":     {old, []inspect.LimitUsage{{Used: 5, Booked: 2}, {Used: 5, Booked: 2}}},
			"changed": {changed, []inspect.LimitUsage{{Used: 5, Booked: 2}, {Used: 1, Booked: 2}}}, // the day is new to it
		} {
			usage, err := inspect.New(test.th).Usage(t.Context(), throttle.Global, "")
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
