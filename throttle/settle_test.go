package throttle_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestSettleRefusesWhatIsNoGrant: a reservation that is no grant gets a typed error that names
// the field, and nothing is written.
func TestSettleRefusesWhatIsNoGrant(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := newThrottle(t, client, tenantAndGlobal(throttle.PerHour(5), throttle.PerHour(5)), nil)
		good := reserve(t, th, throttle.Job{ID: "good", Weight: 5, Keys: of("acme")})
		booked := reserve(t, th, throttle.Job{ID: "booked", Weight: 1, Keys: of("acme")})
		with := func(change func(*throttle.Reservation)) throttle.Reservation {
			r := good
			change(&r)
			return r
		}
		tests := map[string]struct {
			granted throttle.Reservation
			actual  int64
			field   string
			value   any
		}{
			"-1 units":       {good, -1, "actual", int64(-1)},
			"MinInt64 units": {good, math.MinInt64, "actual", int64(math.MinInt64)},
			"2^53+1 units":   {good, 1<<53 + 1, "actual", int64(1<<53 + 1)},
			"a booking":      {booked, 1, "Outcome", throttle.Booked},
			"a job in line": {with(func(r *throttle.Reservation) { r.Outcome = throttle.Waiting }), 1,
				"Outcome", throttle.Waiting},
			"nothing":  {throttle.Reservation{}, 1, "Outcome", throttle.Outcome(0)},
			"no start": {with(func(r *throttle.Reservation) { r.Start = time.Time{} }), 1, "Start", time.Time{}},
			"a start past 2^53 us": {with(func(r *throttle.Reservation) { r.Start = time.UnixMicro(1<<53 + 1) }),
				1, "Start", time.UnixMicro(1<<53 + 1)},
			"no ID":                 {with(func(r *throttle.Reservation) { r.Job.ID = "" }), 1, "ID", ""},
			"no weight":             {with(func(r *throttle.Reservation) { r.Job.Weight = 0 }), 1, "Weight", int64(0)},
			"no keys":               {with(func(r *throttle.Reservation) { r.Job.Keys = nil }), 1, "Keys", "tenant"},
			"nonce with a blank":    {with(func(r *throttle.Reservation) { r.Job.Nonce = "a b" }), 1, "Nonce", "a b"},
			"nonce with a new line": {with(func(r *throttle.Reservation) { r.Job.Nonce = "a\n" }), 1, "Nonce", "a\n"},
		}
		for name, test := range tests {
			unchanged(t, client, th, func() {
				done, err := th.Settle(t.Context(), test.granted, test.actual)
				var wrong *throttle.InvalidJobError
				if done || !errors.As(err, &wrong) {
					t.Errorf("%s: got %t, %v, want an *InvalidJobError", name, done, err)
					return
				}
				if wrong.Field != test.field || wrong.Value != test.value || wrong.Job != test.granted.Job.ID ||
					wrong.Reason == "" {
					t.Errorf("%s: got %+v, want field %s and value %v", name, wrong, test.field, test.value)
				}
			})
		}
		var wrong *throttle.ArgumentError
		//nolint:staticcheck // a nil context is what is tested
		if _, err := th.Settle(nil, good, 1); !errors.As(err, &wrong) || wrong.Argument != "ctx" {
			t.Errorf("without a context: %v", err)
		}
		if done, err := th.Settle(t.Context(), good, maxUnits); !done || err != nil {
			t.Errorf("at the end of it all: %t, %v, want it settled for 2^53", done, err)
		}
	})
}

// TestSettleOnceOfMany: of many callers that settle the same grant at once, one succeeds.
func TestSettleOnceOfMany(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := newThrottle(t, client, globalScope(throttle.PerHour(100)), nil)
		r := reserve(t, th, throttle.Job{ID: "a", Weight: 50})
		var done atomic.Int64
		var settled atomic.Int64
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for i := range int64(16) {
			wg.Go(func() {
				<-begin
				is, err := th.Settle(t.Context(), r, i)
				if err != nil {
					t.Error(err)
				}
				if is {
					done.Add(1)
					settled.Store(i)
				}
			})
		}
		close(begin)
		wg.Wait()
		usage, err := inspect.New(th).Usage(t.Context(), throttle.Global, "")
		if err != nil {
			t.Fatal(err)
		}
		if done.Load() != 1 || usage.Limits[0].Used != settled.Load() {
			t.Errorf("settled %d times, %d used, want once and %d", done.Load(), usage.Limits[0].Used, settled.Load())
		}
	})
}

// TestSettleManyAtOnce: grants that are settled at once by many all count as what they
// are settled for, though they lie in the same sub-windows.
func TestSettleManyAtOnce(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := newThrottle(t, client, tenantAndGlobal(throttle.PerDay(10_000), throttle.PerDay(10_000)), nil)
		var want atomic.Int64
		var wg sync.WaitGroup
		for i := range int64(16) {
			wg.Go(func() {
				for n := range int64(10) {
					r := reserve(t, th, throttle.Job{ID: fmt.Sprint(i, "-", n), Weight: 5, Keys: of(fmt.Sprint(i % 2))})
					if done, err := th.Settle(t.Context(), r, n); err != nil || !done {
						t.Errorf("%t, %v", done, err)
					}
					want.Add(n)
				}
			})
		}
		wg.Wait()
		for key, units := range map[string]int64{"": want.Load(), "0": want.Load() / 2, "1": want.Load() / 2} {
			scope := "tenant"
			if key == "" {
				scope = throttle.Global
			}
			usage, err := inspect.New(th).Usage(t.Context(), scope, key)
			if err != nil || usage.Limits[0].Used != units {
				t.Errorf("%s %q: %+v, %v, want %d used", scope, key, usage, err, units)
			}
		}
	})
}

// TestSettleByAnotherProcess: a throttle settles a reservation that it did not grant, and that was
// stored and read again; the observer gets one event.
func TestSettleByAnotherProcess(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := tenantAndGlobal(throttle.PerHour(9), throttle.PerHour(9))
		th := newThrottle(t, client, scopes, nil)
		text, err := json.Marshal(reserve(t, th, throttle.Job{ID: "a", Weight: 5, Keys: of("acme")}))
		if err != nil {
			t.Fatal(err)
		}
		var granted throttle.Reservation
		if err := json.Unmarshal(text, &granted); err != nil {
			t.Fatal(err)
		}
		observer := new(heard)
		other := sameAs(t, client, th, scopes, throttle.Options{Observer: observer})
		for i, want := range []bool{true, false} {
			if done, err := other.Settle(t.Context(), granted, 2); done != want || err != nil {
				t.Errorf("settled for the %d. time: %t, %v", i+1, done, err)
			}
		}
		if done, err := th.Refund(t.Context(), granted); done || err != nil {
			t.Errorf("refunded by the first: %t, %v", done, err)
		}
		want := []throttle.Settlement{{Throttle: th.Name(), Job: granted.Job, Charged: 5, Actual: 2}}
		if diff := cmp.Diff(want, observer.settled); diff != "" {
			t.Error("told", diff)
		}
	})
}

// TestSettleUncharged: a grant of a fallback was not charged, so there is nothing to correct, and
// Redis is not asked.
func TestSettleUncharged(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]throttle.Options{
		"open":  {Fallback: throttle.FallbackOpen},
		"local": {Fallback: throttle.FallbackLocal, LocalShare: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts.BreakAfter = -1
			th, observer, server := observed(t, opts)
			server.SetError("LOADING")
			r := reserve(t, th, throttle.Job{ID: "a", Weight: 1, Keys: of("acme")})
			server.SetError("")
			if r.Source == throttle.FallbackClosed {
				t.Fatalf("granted by %v", r.Source)
			}
			before := len(observer.calls)
			for call, settle := range map[string]func() (bool, error){
				"Settle": func() (bool, error) { return th.Settle(t.Context(), r, 9) },
				"Refund": func() (bool, error) { return th.Refund(t.Context(), r) },
			} {
				if done, err := settle(); done || err != nil {
					t.Errorf("%s: %t, %v, want false", call, done, err)
				}
			}
			if len(observer.calls) != before || len(server.Keys()) != 0 {
				t.Errorf("Redis was asked: %v, keys %v", observer.scripts(), server.Keys())
			}
		})
	}
}

// TestSettleWhileRedisIsAway: the charge stays what it was, the error says why, and it
// can be settled later.
func TestSettleWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	th, _, server := observed(t, throttle.Options{Fallback: throttle.FallbackOpen, BreakAfter: -1})
	r := reserve(t, th, throttle.Job{ID: "a", Weight: 2, Keys: of("acme")})
	server.SetError("OOM command not allowed")
	done, err := th.Settle(t.Context(), r, 1)
	if unavailable(t, "Settle", err, "oom"); done {
		t.Error("settled")
	}
	server.SetError("")
	if done, err := th.Settle(t.Context(), r, 1); !done || err != nil {
		t.Errorf("later: %t, %v", done, err)
	}
}

// TestSettleLeavesAloneWhatWasOff: a scope that was off when a job was granted has charged nothing.
// To correct that job's charge there changed what others had taken at about the same time, and so
// let more start than the limit.
func TestSettleLeavesAloneWhatWasOff(t *testing.T) {
	t.Parallel()
	for name, actual := range map[string]int64{"less": 0, "more": 5} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onServers(t, func(t *testing.T, client *redis.Client) {
				hour := throttle.Limit{Units: 100, Window: time.Hour, Precision: time.Hour}
				th := newThrottle(t, client, tenantAndGlobal(hour, hour), nil)
				mode := func(m throttle.Mode) {
					t.Helper()
					if err := inspect.New(th).SetMode(t.Context(), "tenant", m); err != nil {
						t.Fatal(err)
					}
				}
				mode(throttle.Off)
				unseen := reserve(t, th, throttle.Job{ID: "unseen", Weight: 3, Keys: of("acme")})
				mode(throttle.Enforce)
				seen := reserve(t, th, throttle.Job{ID: "seen", Weight: 7, Keys: of("acme")})
				if diff := cmp.Diff([][]string{{"tenant"}, nil}, [][]string{unseen.Uncharged, seen.Uncharged}); diff != "" {
					t.Errorf("uncharged, -want +got:\n%s", diff)
				}
				if done, err := th.Settle(t.Context(), unseen, actual); err != nil || !done {
					t.Errorf("got %t, %v", done, err)
				}
				for scope, want := range map[string]int64{"tenant": 7, throttle.Global: 7 + actual} {
					key := map[string]string{"tenant": "acme"}[scope]
					usage, err := inspect.New(th).Usage(t.Context(), scope, key)
					if err != nil || usage.Limits[0].Used != want {
						t.Errorf("%s: got %+v, %v, want %d used", scope, usage.Limits, err, want)
					}
				}
			})
		})
	}
}

// TestSettleOfNothingLeft: where all of a sub-window was given back nothing is found any more, in
// the tail as in the log: what was taken beyond a charge of there counts from now on. Here the clock
// steps back a little: what starts until it has caught up counts a second later, and its refund takes
// back the unit of another that did start then.
func TestSettleOfNothingLeft(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		day := throttle.Limit{Units: 1000, Window: 24 * time.Hour, Precision: time.Second}
		for _, more := range []int64{2, 40} { // with 40 the first entries are in the log
			s := newScripted(newThrottle(t, client, globalScope(day), nil))
			ask := func(at time.Duration, id string, weight int64) throttle.Reservation {
				t.Helper()
				r, err := s.Reserve(dawn.Add(at), throttle.Job{ID: id, Weight: weight})
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			other := ask(0, "other", 1)
			ask(2*time.Second, "seen", 1)
			back := ask(0, "back", 9)
			for i := range more {
				ask(time.Duration(i+1)*time.Minute, fmt.Sprint("more", i), 1)
			}
			later := dawn.Add(50 * time.Minute)
			if _, err := s.Refund(later, back); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Settle(later, other, 21); err != nil {
				t.Fatal(err)
			}
			if u, err := s.Usage(later, throttle.Global, ""); err != nil || u.Limits[0].Used != more+30 {
				t.Errorf("%d more: %d units of the day are used, %v; want theirs and 30", more, u.Limits[0].Used, err)
			}
		}
	})
}

// TestSettleForTooManyUnits: a ledger counts up to 2^53 units, which doubles tell exactly. What is
// settled beyond that is not counted; what has started keeps its own, and the scope key has room
// again when all has left.
func TestSettleForTooManyUnits(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		for _, precision := range []time.Duration{throttle.Exact, time.Second} {
			scopes := globalScope(throttle.Limit{Units: 10, Window: time.Minute, Precision: precision})
			for name, s := range map[string]throttletest.Subject{
				"scripts": newScripted(newThrottle(t, client, scopes, nil)),
				"model":   throttletest.NewModel(scopes, throttle.Options{Lookahead: maxWindow}),
			} {
				var starts []throttletest.Start
				ask := func(at time.Duration, id string, weight int64) throttle.Reservation {
					t.Helper()
					r, err := s.Reserve(dawn.Add(at), throttle.Job{ID: id, Weight: weight})
					if err != nil {
						t.Fatalf("%s, at %s: %v", name, at, err)
					}
					if r.Outcome == throttle.Granted {
						starts = append(starts, throttletest.Start{At: r.Start, Weight: weight})
					}
					return r
				}
				debtors := []throttle.Reservation{ask(0, "1", 1), ask(0, "2", 1), ask(0, "3", 3)}
				for i := range 5 {
					ask(30*time.Second, fmt.Sprint("half", i), 1)
				}
				for _, debtor := range debtors {
					if _, err := s.Settle(dawn.Add(31*time.Second), debtor, 1<<53); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
				for i := range 10 {
					ask(61*time.Second+precision, fmt.Sprint("next", i), 1)
				}
				for _, over := range throttletest.Check(scopes, starts) {
					t.Errorf("%s: window over its limit: %s", name, over)
				}
				if r := ask(2*time.Hour, "late", 10); r.Outcome != throttle.Granted {
					t.Errorf("%s: two hours later: %s", name, r.Outcome)
				}
			}
		}
	})
}
