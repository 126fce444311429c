package throttle_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

func globalScope(limits ...throttle.Limit) []throttle.Scope {
	return []throttle.Scope{{Name: throttle.Global, Limits: limits}}
}

// tenantAndGlobal are the scopes of most tests: two keyed, one shared.
func tenantAndGlobal(tenant, global throttle.Limit) []throttle.Scope {
	return []throttle.Scope{
		{Name: "tenant", Limits: []throttle.Limit{tenant}},
		{Name: throttle.Global, Limits: []throttle.Limit{global}},
	}
}

func of(tenant string) map[string]string { return map[string]string{"tenant": tenant} }

// TestF44_F46_F52_InvalidJobs: a job that is wrong gets a typed error that names
// the field, from every call that takes a job, and nothing is written.
func TestF44_F46_F52_InvalidJobs(t *testing.T) {
	t.Parallel()
	good := throttle.Job{ID: "id", Weight: 1, Keys: of("acme")}
	with := func(change func(*throttle.Job)) throttle.Job {
		job := good
		change(&job)
		return job
	}
	tests := map[string]struct {
		job   throttle.Job
		field string
		value any
	}{
		"no ID":               {with(func(j *throttle.Job) { j.ID = "" }), "ID", ""},
		"F44 weight 0":        {with(func(j *throttle.Job) { j.Weight = 0 }), "Weight", int64(0)},
		"F44 weight -1":       {with(func(j *throttle.Job) { j.Weight = -1 }), "Weight", int64(-1)},
		"F44 weight MinInt64": {with(func(j *throttle.Job) { j.Weight = math.MinInt64 }), "Weight", int64(math.MinInt64)},
		"F47 weight 2^53+1":   {with(func(j *throttle.Job) { j.Weight = 1<<53 + 1 }), "Weight", int64(1<<53 + 1)},
		"F47 weight MaxInt64": {with(func(j *throttle.Job) { j.Weight = math.MaxInt64 }), "Weight", int64(math.MaxInt64)},
		"no keys":             {with(func(j *throttle.Job) { j.Keys = nil }), "Keys", "tenant"},
		"F50 empty key":       {with(func(j *throttle.Job) { j.Keys = of("") }), "Keys", "tenant"},
		"empty key of optional": {with(func(
			j *throttle.Job) {
			j.Keys = map[string]string{"tenant": "a", "domain": ""}
		}), "Keys", "domain"},
		"unknown scope": {with(func(
			j *throttle.Job) {
			j.Keys = map[string]string{"tenant": "a", "host": "x"}
		}), "Keys", "host"},
		"a key for global": {with(func(
			j *throttle.Job) {
			j.Keys = map[string]string{"tenant": "a", throttle.Global: "x"}
		}), "Keys", throttle.Global},
		"priority -1":             {with(func(j *throttle.Job) { j.Priority = -1 }), "Priority", -1},
		"priority 5":              {with(func(j *throttle.Job) { j.Priority = throttle.LowestPriority + 1 }), "Priority", 5},
		"negative max wait":       {with(func(j *throttle.Job) { j.MaxWait = -1 }), "MaxWait", time.Duration(-1)},
		"max wait above 400 days": {with(func(j *throttle.Job) { j.MaxWait = 400*day + 1 }), "MaxWait", 400*day + 1},
		"nonce with a space":      {with(func(j *throttle.Job) { j.Nonce = "a b" }), "Nonce", "a b"},
		"nonce with a newline":    {with(func(j *throttle.Job) { j.Nonce = "a\n" }), "Nonce", "a\n"},
		"nonce of 129 bytes": {with(func(j *throttle.Job) { j.Nonce = strings.Repeat("n", 129) }), "Nonce",
			strings.Repeat("n", 129)},
	}
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := append(tenantAndGlobal(throttle.PerHour(5), throttle.PerHour(5)),
			throttle.Scope{Name: "domain", Limits: []throttle.Limit{throttle.PerHour(5)}, Optional: true})
		th := newThrottle(t, client, scopes, nil)
		reserve(t, th, throttle.Job{ID: "before", Weight: 2, Keys: of("acme")})
		for name, test := range tests {
			unchanged(t, client, th, func() {
				for call, err := range everyJobCall(t.Context(), th, test.job) {
					var wrong *throttle.InvalidJobError
					if err == nil && call == "Cancel" && test.field != "ID" {
						continue // of a job that gives something back the ID is enough
					}
					if !errors.As(err, &wrong) {
						t.Errorf("%s, %s: got %v, want an *InvalidJobError", name, call, err)
						continue
					}
					if wrong.Field != test.field || wrong.Value != test.value || wrong.Job != test.job.ID || wrong.Reason == "" {
						t.Errorf("%s, %s: got %+v, want field %s and value %v", name, call, wrong, test.field, test.value)
					}
				}
			})
		}
	})
}

// everyJobCall makes each call that takes a job and tells their errors.
func everyJobCall(ctx context.Context, th *throttle.Throttle, job throttle.Job) map[string]error {
	errs := make(map[string]error)
	_, errs["Reserve"] = th.Reserve(ctx, job)
	_, errs["Peek"] = th.Peek(ctx, job)
	_, errs["Cancel"] = th.Cancel(ctx, job)
	_, errs["Explain"] = th.Inspector().Explain(ctx, job)
	_, errs["Wait"] = th.Wait(ctx, job)
	return errs
}

// TestF45_WeightsInJSON: encoding/json lets no fraction, word or overflow become
// a weight, and what it lets through is checked.
func TestF45_WeightsInJSON(t *testing.T) {
	t.Parallel()
	th := newThrottle(t, miniClient(t), globalScope(throttle.PerHour(5)), nil)
	for _, weight := range []string{`NaN`, `"1"`, `Infinity`, `-Infinity`, `1.5`, `1e400`, `1e300`,
		`9223372036854775808`, `0`, `-1`, `null`} {
		job := throttle.Job{ID: "x"}
		if err := json.Unmarshal([]byte(`{"Weight":`+weight+`}`), &job); err != nil {
			continue
		}
		var wrong *throttle.InvalidJobError
		if _, err := th.Reserve(t.Context(), job); !errors.As(err, &wrong) || wrong.Field != "Weight" {
			t.Errorf("weight %s became %d: Reserve says %v, want an *InvalidJobError", weight, job.Weight, err)
		}
	}
}

// TestF46_WeightAtAndAboveTheLimit: a weight of a whole window starts, alone; one
// more can never, whichever of the limits it is.
func TestF46_WeightAtAndAboveTheLimit(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		narrow := throttle.PerHour(7)
		scopes := []throttle.Scope{
			{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerSecond(100), throttle.PerDay(1000)}},
			{Name: "tenant", Limits: []throttle.Limit{throttle.PerMinute(20), narrow}},
		}
		th := newThrottle(t, client, scopes, nil)
		unchanged(t, client, th, func() {
			for call, err := range everyJobCall(t.Context(), th, throttle.Job{ID: "heavy", Weight: 8, Keys: of("acme")}) {
				var never *throttle.NeverFitsError
				if err == nil && (call == "Cancel" || call == "Explain") {
					continue // what was reserved under other limits can be given back
				}
				if !errors.As(err, &never) {
					t.Errorf("%s of weight 8: got %v, want a *NeverFitsError", call, err)
					continue
				}
				want := throttle.NeverFitsError{Job: "heavy", Weight: 8, Scope: "tenant", Key: "acme", Limit: narrow}
				if *never != want {
					t.Errorf("%s of weight 8: got %+v, want %+v", call, *never, want)
				}
			}
		})
		if got := reserve(t, th, throttle.Job{ID: "full", Weight: 7, Keys: of("acme")}); got.Outcome !=
			throttle.Granted || got.Hold != nil {
			t.Errorf("weight 7 of 7: got %+v, want granted at once", got)
		}
		if got := reserve(t, th, throttle.Job{ID: "one more", Weight: 1, Keys: of("acme")}); got.Outcome != throttle.Booked {
			t.Errorf("1 more: got %+v, want booked", got)
		}
	})
}

// TestF47_LargeUnitsLoseNothing: sums near 2^53 are exact, in the ledgers, in the
// totals and in the answers.
func TestF47_LargeUnitsLoseNothing(t *testing.T) {
	t.Parallel()
	const window = time.Hour
	for name, precision := range map[string]time.Duration{"many sub-windows": window / 1000, "sub-windows": time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onServers(t, func(t *testing.T, client *redis.Client) {
				limit := throttle.Limit{Units: maxUnits, Window: window, Precision: precision}
				s := newScripted(newThrottle(t, client, globalScope(limit), nil))
				now := time.UnixMicro(1_800_000_000_000_000)
				steps := []struct {
					weight int64
					want   throttle.Outcome
					used   int64 // afterwards
				}{
					{1<<53 - 3, throttle.Granted, 1<<53 - 3},
					{1, throttle.Granted, 1<<53 - 2},
					{3, throttle.Booked, 1<<53 - 2},
					{1, throttle.Granted, 1<<53 - 1},
					{1, throttle.Granted, 1 << 53},
					{1, throttle.Booked, 1 << 53},
					{1 << 53, throttle.Booked, 1 << 53},
				}
				for i, step := range steps {
					now = now.Add(time.Microsecond)
					got, err := s.Reserve(now, throttle.Job{ID: fmt.Sprint(i), Weight: step.weight})
					if err != nil || got.Outcome != step.want {
						t.Errorf("step %d, weight %d: got %v, %v; want %v", i, step.weight, got.Outcome, err, step.want)
					}
					usage, err := s.Usage(now, throttle.Global, "")
					if err != nil || usage.Limits[0].Used != step.used {
						t.Errorf("step %d, weight %d: used %d, %v; want %d", i, step.weight, usage.Limits[0].Used, err, step.used)
					}
				}
				count, err := s.Count(now.Add(time.Microsecond), throttle.Global, "", time.Minute, 0)
				if err != nil || count != 1<<53 {
					t.Errorf("Count: got %d, %v; want %d", count, err, int64(1<<53))
				}
			})
		})
	}
}

// TestF48_NoneAndUnlimited: under a limit of 0 jobs wait in line; Unlimited holds nothing
// back, and nothing is kept for it.
func TestF48_NoneAndUnlimited(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		closed := newThrottle(t, client, globalScope(throttle.PerMinute(0), throttle.PerHour(10)), nil)
		if got := reserve(t, closed, throttle.Job{ID: "x", Weight: 1}); got.Outcome != throttle.Waiting ||
			got.Hold == nil || got.Hold.Limit.Units != 0 {
			t.Errorf("limit 0: got %+v, want waiting under it", got)
		}
		usage, err := closed.Inspector().Usage(t.Context(), throttle.Global, "")
		if err != nil || !usage.Limits[0].Free.IsZero() || usage.Limits[1].Free.IsZero() {
			t.Errorf("usage of limit 0: got %+v, %v; want no free instant for it, one for the other", usage, err)
		}

		open := newThrottle(t, client, globalScope(throttle.PerMinute(throttle.Unlimited)), nil)
		for i := range 50 {
			job := throttle.Job{ID: fmt.Sprint(i), Weight: maxUnits}
			if got := reserve(t, open, job); got.Outcome != throttle.Granted || got.Hold != nil || got.Delay() != 0 {
				t.Fatalf("unlimited, job %d: got %+v, want granted at once", i, got)
			}
		}
		usage, err = open.Inspector().Usage(t.Context(), throttle.Global, "")
		if err != nil || len(usage.Limits) != 1 || !usage.Limits[0].Free.Equal(usage.Now) {
			t.Errorf("usage of Unlimited: got %+v, %v; want free now", usage, err)
		}
		if keys := keyspace(t, client, open); len(keys) > 0 {
			t.Errorf("kept for Unlimited: %q", keys)
		}
		limitless := newThrottle(t, client, []throttle.Scope{{Name: throttle.Global}}, nil)
		if got := reserve(t, limitless, throttle.Job{ID: "x", Weight: 1}); got.Outcome != throttle.Granted {
			t.Errorf("a scope without limits: got %+v, want granted", got)
		}
	})
}

// TestF49_ExtremeWindows: the shortest and the longest window work, and their
// keys expire.
func TestF49_ExtremeWindows(t *testing.T) {
	t.Parallel()
	for _, window := range []time.Duration{time.Millisecond, 1001 * time.Microsecond, 24 * time.Hour, 400 * day} {
		for _, precision := range []time.Duration{0, throttle.Exact, window} {
			limit := throttle.Limit{Units: 2, Window: window, Precision: precision}
			t.Run(limit.String(), func(t *testing.T) {
				t.Parallel()
				onServers(t, func(t *testing.T, client *redis.Client) {
					lookahead := max(4*window, 100*time.Millisecond) // as far as four jobs reach
					th := newThrottle(t, client, globalScope(limit),
						&throttle.Options{Grace: time.Second, Lookahead: min(lookahead, maxWindow)})
					s := newScripted(th)
					var starts []throttletest.Start
					now := time.UnixMicro(1_800_000_000_000_123)
					for i := range 4 {
						job := throttle.Job{ID: fmt.Sprint(i), Weight: 1, MaxWait: 400 * day}
						got, err := s.Reserve(now, job)
						if err != nil {
							t.Fatalf("job %d: %v", i, err)
						}
						starts = append(starts, throttletest.Start{At: got.Start, Weight: 1})
						if early := now.Add(window); i >= 2 && got.Start.Before(early) {
							t.Errorf("job %d: starts at %s, want not before %s", i, got.Start, early)
						}
						if late := now.Add(2*window + precision); got.Start.After(late) {
							t.Errorf("job %d: starts at %s, want not after %s", i, got.Start, late)
						}
					}
					for _, over := range throttletest.Check(globalScope(limit), starts) {
						t.Error(over)
					}
					for _, key := range keyNames(t, client, th) {
						if !strings.Contains(key, ":key:") && !strings.Contains(key, ":ledger:") {
							continue
						}
						// The last start is up to two windows off and counts for up to two
						// more, where a sub-window is as long as the window; then there are
						// the lookahead, the grace, a minute, and a quarter of all that.
						if left, most := ttl(t, client, key),
							5*window+lookahead+time.Second+time.Minute; left < window || left > most+most/4 {
							t.Errorf("key %q lives for %s; the window is %s", key, left, window)
						}
					}
				})
			})
		}
	}
}

// TestF52_ClientsAndContexts: what a caller can get wrong about them is an error
// and never a panic.
func TestF52_ClientsAndContexts(t *testing.T) {
	t.Parallel()
	scopes := globalScope(throttle.PerHour(5))
	job := throttle.Job{ID: "x", Weight: 1}

	var nilClient *redis.Client
	for _, client := range []redis.Scripter{nil, nilClient} {
		if _, err := throttle.New("n", client, scopes, nil); !isOptionError(err, "client") {
			t.Errorf("New with client %#v: got %v, want an *OptionError", client, err)
		}
	}

	closed := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	th := newThrottle(t, closed, scopes, &throttle.Options{BreakAfter: -1})
	for call, err := range everyCall(t.Context(), th, job) {
		var unavailable *throttle.UnavailableError
		if !errors.As(err, &unavailable) || !errors.Is(err, throttle.ErrUnavailable) || !errors.Is(err, redis.ErrClosed) {
			t.Errorf("%s with a closed client: got %v, want an *UnavailableError because of %v", call, err, redis.ErrClosed)
		}
	}

	client := miniClient(t)
	th = newThrottle(t, client, scopes, nil)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithTimeout(t.Context(), -time.Second)
	defer cancelLate()
	unchanged(t, client, th, func() {
		for call, err := range everyCall(cancelled, th, job) {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s with a cancelled context: got %v, want %v", call, err, context.Canceled)
			}
		}
		for call, err := range everyCall(late, th, job) {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s with a context that has timed out: got %v, want %v", call, err, context.DeadlineExceeded)
			}
		}
		var none context.Context
		for call, err := range everyCall(none, th, job) {
			var wrong *throttle.ArgumentError
			if !errors.As(err, &wrong) || wrong.Argument != "ctx" {
				t.Errorf("%s without a context: got %v, want an *ArgumentError for ctx", call, err)
			}
		}
	})
}

// everyCall makes every call there is and tells their errors.
func everyCall(ctx context.Context, th *throttle.Throttle, job throttle.Job) map[string]error {
	errs := everyJobCall(ctx, th, job)
	_, errs["Usage"] = th.Inspector().Usage(ctx, throttle.Global, "")
	_, errs["Count"] = th.Inspector().Count(ctx, throttle.Global, "", time.Second, 0)
	_, errs["Pull"] = th.Driver().Pull(ctx)
	_, errs["Leave"] = th.Driver().Leave(ctx, []string{job.ID})
	_, _, errs["Jobs"] = th.Driver().Jobs(ctx, "|global:", "")
	_, errs["Lines"] = th.Inspector().Lines(ctx, "")
	return errs
}

// TestF53_Scopes: duplicates and too many are refused when the throttle is made.
func TestF53_Scopes(t *testing.T) {
	t.Parallel()
	client := miniClient(t)
	perWindow := func(n int) []throttle.Limit {
		limits := make([]throttle.Limit, n)
		for i := range limits {
			limits[i] = throttle.Per(1000, time.Duration(i+1)*time.Second)
		}
		return limits
	}
	many := make([]throttle.Scope, 1000)
	for i := range many {
		many[i] = throttle.Scope{Name: fmt.Sprintf("s%d", i), Limits: perWindow(1)}
	}
	tests := map[string]struct {
		scopes []throttle.Scope
		field  string
	}{
		"no scope":      {nil, "scopes"},
		"a scope twice": {append(globalScope(), globalScope(throttle.PerHour(1))...), "Scope.Name"},
		"a window twice": {globalScope(throttle.PerHour(1), throttle.PerMinute(1), throttle.Per(2, time.Hour)),
			"Scope.Limits"},
		"65 limits": {globalScope(perWindow(65)...), "Scope.Limits"},
		"65 in two scopes": {append(globalScope(perWindow(32)...),
			throttle.Scope{Name: "t", Limits: perWindow(33)}), "Scope.Limits"},
		"1,000 scopes": {many, "Scope.Limits"},
	}
	for name, test := range tests {
		if _, err := throttle.New("n", client, test.scopes, nil); !isOptionError(err, test.field) {
			t.Errorf("%s: got %v, want an *OptionError for %s", name, err, test.field)
		}
	}
}

// TestF53_MostLimits: 64 limits in several scopes are decided in one call, on
// bounded keys.
func TestF53_MostLimits(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		var scopes []throttle.Scope
		keys := make(map[string]string)
		for s := range 4 {
			scope := throttle.Scope{Name: fmt.Sprintf("scope%d", s)}
			for i := range 16 {
				scope.Limits = append(scope.Limits, throttle.Per(int64(1000-s*16-i), time.Duration(i+1)*time.Minute))
			}
			scopes, keys[scope.Name] = append(scopes, scope), strings.Repeat("long:", 100)
		}
		th := newThrottle(t, client, scopes, nil)
		if got := reserve(t, th, throttle.Job{ID: "1", Weight: 937, Keys: keys}); got.Outcome != throttle.Granted {
			t.Errorf("937 of at least 937: got %+v, want granted", got)
		}
		got := reserve(t, th, throttle.Job{ID: "2", Weight: 64, Keys: keys})
		if got.Outcome != throttle.Booked || got.Hold == nil || got.Hold.Limit.Units >= 1000 {
			t.Errorf("64 more: got %+v, want booked because of a limit below 1,000", got)
		}
		// The booking, its timer, the control key and the last answer.
		if n := len(keyNames(t, client, th)); n != 4+4 {
			t.Errorf("%d keys, want %d", n, 4+4)
		}
	})
}

// TestOptions: each option that is out of its range is named; the bounds and the
// defaults are not.
func TestOptions(t *testing.T) {
	t.Parallel()
	client := miniClient(t)
	bad := map[string][]throttle.Options{
		"Fallback": {{Fallback: -1}, {Fallback: throttle.FallbackLocal + 1}},
		"LocalShare": {{Fallback: throttle.FallbackLocal}, local(-0.5), local(1.01), local(math.NaN()),
			local(math.Inf(1))},
		"Timeout":       {{Timeout: -1}, {Timeout: time.Microsecond}, {Timeout: time.Minute + 1}},
		"Grace":         {{Grace: -1}, {Grace: time.Microsecond}, {Grace: 24*time.Hour + 1}},
		"Lookahead":     {{Lookahead: -1}, {Lookahead: 100*time.Millisecond - 1}, {Lookahead: 400*day + 1}},
		"FairScope":     {{FairScope: "tenant"}, {FairScope: "Global"}},
		"Shares":        {shares(0), shares(-1), shares(maxShare + 1), {Shares: map[string]int{"a": 1, "b": 0}}},
		"PriorityFloor": {{PriorityFloor: -0.1}, {PriorityFloor: 0.009}, {PriorityFloor: 0.51}, {PriorityFloor: math.NaN()}},
		"BreakPeriod":   {{BreakPeriod: -1}, {BreakPeriod: time.Microsecond}, {BreakPeriod: time.Hour + 1}},
	}
	for field, options := range bad {
		for _, o := range options {
			if _, err := throttle.New("n", client, globalScope(throttle.PerHour(1)), &o); !isOptionError(err, field) {
				t.Errorf("%+v: got %v, want an *OptionError for %s", o, err, field)
			}
		}
	}
	good := []*throttle.Options{
		nil, {}, {LocalShare: 7}, {BreakAfter: -1}, {Fallback: throttle.FallbackLocal, LocalShare: 1},
		{Timeout: time.Millisecond, Grace: time.Millisecond, BreakPeriod: time.Millisecond},
		{Timeout: time.Minute, Grace: 24 * time.Hour, BreakPeriod: time.Hour},
		{Lookahead: 100 * time.Millisecond, FairScope: throttle.Global}, {Lookahead: 400 * day},
		{Shares: map[string]int{"a": 1, "": maxShare}}, {PriorityFloor: 0.01}, {PriorityFloor: 0.5},
	}
	for _, o := range good {
		if _, err := throttle.New("n", client, globalScope(throttle.PerHour(1)), o); err != nil {
			t.Errorf("%+v: got %v, want none", o, err)
		}
	}
}

func local(share float64) throttle.Options {
	return throttle.Options{Fallback: throttle.FallbackLocal, LocalShare: share}
}

func shares(share int) throttle.Options {
	return throttle.Options{Shares: map[string]int{"a": share}}
}

// TestNewCopies: what the caller does with its slices later changes nothing.
func TestNewCopies(t *testing.T) {
	t.Parallel()
	limits := []throttle.Limit{throttle.PerHour(1)}
	scopes := []throttle.Scope{{Name: throttle.Global, Limits: limits}}
	th := newThrottle(t, miniClient(t), scopes, nil)
	limits[0], scopes[0].Name = throttle.PerHour(100), "other"
	reserve(t, th, throttle.Job{ID: "1", Weight: 1})
	if got := reserve(t, th, throttle.Job{ID: "2", Weight: 1}); got.Outcome != throttle.Booked {
		t.Errorf("second job under 1/1h: got %v, want booked", got.Outcome)
	}
}

// TestUsageAndCountRefuse: a scope or an interval that is none is named.
func TestUsageAndCountRefuse(t *testing.T) {
	t.Parallel()
	scopes := append(tenantAndGlobal(throttle.PerMinute(5), throttle.PerHour(5)),
		throttle.Scope{Name: "free", Limits: []throttle.Limit{throttle.PerDay(throttle.Unlimited)}})
	th := newThrottle(t, miniClient(t), scopes, nil)
	for _, test := range []struct{ scope, key, field string }{
		{"host", "x", "scope"}, {"", "", "scope"}, {"tenant", "", "key"}, {throttle.Global, "x", "key"},
	} {
		_, usageErr := th.Inspector().Usage(t.Context(), test.scope, test.key)
		_, countErr := th.Inspector().Count(t.Context(), test.scope, test.key, time.Second, 0)
		for _, err := range []error{usageErr, countErr} {
			var wrong *throttle.ArgumentError
			if !errors.As(err, &wrong) || wrong.Argument != test.field {
				t.Errorf("scope %q, key %q: got %v, want an *ArgumentError for %s", test.scope, test.key, err, test.field)
			}
		}
	}
	for _, test := range []struct {
		scope, key string
		from, to   time.Duration
	}{
		{"tenant", "a", time.Minute + 1, 0}, {throttle.Global, "", 24 * time.Hour, 0},
		{"tenant", "a", time.Second, 2 * time.Second},
		{"tenant", "a", time.Second, -1}, {"tenant", "a", -1, 0}, {"free", "a", time.Second, 0},
	} {
		var wrong *throttle.ArgumentError
		if _, err := th.Inspector().Count(t.Context(), test.scope, test.key, test.from,
			test.to); !errors.As(err, &wrong) || wrong.Argument != "interval" {
			t.Errorf("Count %q from %s to %s ago: got %v, want an *ArgumentError for interval", test.scope,
				test.from, test.to, err)
		}
	}
}

// TestDeadline: a job that would start too late gets no slot, and the error says
// when it would have been and why.
func TestDeadline(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		limit := throttle.PerMinute(1)
		th := newThrottle(t, client, globalScope(limit), nil)
		s := newScripted(th)
		now := time.UnixMicro(1_800_000_000_000_000)
		if _, err := s.Reserve(now, throttle.Job{ID: "1", Weight: 1, Deadline: now}); err != nil {
			t.Fatalf("deadline now, room now: got %v", err)
		}
		deadline := now.Add(59 * time.Second)
		unchanged(t, client, th, func() {
			_, err := s.Reserve(now, throttle.Job{ID: "2", Weight: 1, Deadline: deadline})
			var late *throttle.DeadlineError
			if !errors.As(err, &late) {
				t.Fatalf("got %v, want a *DeadlineError", err)
			}
			if late.Job != "2" || !late.Deadline.Equal(deadline) || !late.Start.Equal(now.Add(time.Minute)) ||
				late.Hold == nil || late.Hold.Limit != limit {
				t.Errorf("got %+v with %+v, want start %s, held by %s", late, late.Hold, now.Add(time.Minute), limit)
			}
		})
		got, err := s.Reserve(now, throttle.Job{ID: "2", Weight: 1, Deadline: now.Add(time.Minute)})
		if err != nil || got.Outcome != throttle.Booked {
			t.Errorf("deadline at the slot: got %v, %v; want booked", got.Outcome, err)
		}
	})
}

// TestErrorTexts: each begins with the package's name, holds the offending number
// with its unit, and none of the job's keys or its ID, which may be private.
func TestErrorTexts(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for want, err := range map[string]error{
		"throttle: option Timeout = 2m0s: is not between 1ms and 1m": &throttle.OptionError{
			Field: "Timeout", Value: 2 * time.Minute, Reason: "is not between 1ms and 1m"},
		`throttle: limit "x/1m": units "x" are not an integer of 0 or more`: &throttle.LimitError{
			Text: "x/1m", Reason: `units "x" are not an integer of 0 or more`},
		"throttle: job's Weight 0 is not between 1 and 9007199254740992": &throttle.InvalidJobError{
			Job: "secret", Field: "Weight", Value: int64(0), Reason: "is not between 1 and 9007199254740992"},
		"throttle: weight 11 can never start under the tenant limit 10/1m": &throttle.NeverFitsError{
			Job: "secret", Weight: 11, Scope: "tenant", Key: "secret", Limit: throttle.PerMinute(10)},
		"throttle: the earliest start 2026-03-01T12:01:00Z " +
			"is after the deadline 2026-03-01T12:00:00Z": &throttle.DeadlineError{
			Job: "secret", Deadline: at, Start: at.Add(time.Minute), Hold: &throttle.Hold{Key: "secret"}},
		"throttle: Redis cannot decide (timeout): context deadline exceeded": &throttle.UnavailableError{
			Job: "secret", Nonce: "secret", Failure: "timeout", Err: context.DeadlineExceeded},
	} {
		if err.Error() != want {
			t.Errorf("got  %s\nwant %s", err, want)
		}
	}
	if _, err := throttle.New("n", miniClient(t), globalScope(throttle.Per(1, 0)), nil); err == nil ||
		!strings.HasPrefix(err.Error(), "throttle: scope global: ") {
		t.Errorf("New: got %v, want it to begin throttle: and name the scope", err)
	}
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

// TestLongIDsAreRefusedUnsent: an ID of more than 1,024 bytes gets a typed error that does not have all of it,
// from every call that takes one, and Redis hears nothing. One of as many works everywhere.
func TestLongIDsAreRefusedUnsent(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, server *redis.Client) {
		// so that the throttle uses this very client
		client := redis.NewClient(&redis.Options{Addr: server.Options().Addr, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = client.Close() })
		wire := new(sent)
		client.AddHook(wire)
		th := newThrottle(t, client, tenantAndGlobal(throttle.Running(5), throttle.PerHour(5)),
			&throttle.Options{Lookahead: time.Second})
		ctx, longest := t.Context(), strings.Repeat("\xff", 1024)
		job := throttle.Job{ID: longest, Weight: 1, Keys: of("acme")}
		granted := reserve(t, th, job)
		if done, err := th.Done(ctx, granted); err != nil || !done[0] {
			t.Errorf("Done of an ID of 1,024 bytes: got %v, %v; want that it held its places", done, err)
		}
		if done, err := th.Refund(ctx, granted); err != nil || !done {
			t.Errorf("Refund of an ID of 1,024 bytes: got %v, %v", done, err)
		}
		job.ID += "x"
		granted.Job.ID = job.ID
		th.AwaitPublished() // what a process publishes is sent too
		wire.take()
		errs := everyJobCall(ctx, th, job)
		_, errs["Done"] = th.Done(ctx, granted)
		_, errs["Renew"] = th.Renew(ctx, granted)
		_, errs["Refund"] = th.Refund(ctx, granted)
		_, errs["Release"] = th.Driver().Release(ctx, granted)
		_, errs["Pull"] = th.Driver().Pull(ctx, granted)
		_, errs["Leave"] = th.Driver().Leave(ctx, []string{job.ID})
		_, errs["ExplainID"] = th.Inspector().ExplainID(ctx, job.ID)
		_, errs["Forecast"] = th.Inspector().Forecast(ctx, []throttle.Job{job})
		for call, err := range errs {
			var wrong *throttle.InvalidJobError
			if !errors.As(err, &wrong) || wrong.Field != "ID" || wrong.Value != len(job.ID) || len(err.Error()) > 500 {
				t.Errorf("%s: got %.200v, want a short *InvalidJobError of the ID", call, err)
			}
		}
		if asked := wire.take(); len(asked) > 0 {
			t.Errorf("Redis was asked %q, want nothing", asked)
		}
	})
}
