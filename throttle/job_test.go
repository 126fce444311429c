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

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestF44_F46_F52_InvalidJobs: an invalid job gets a typed error that names the field,
// from every call that takes a job, and nothing is written.
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

// everyJobCall makes each call that takes a job, and returns the errors by call.
func everyJobCall(ctx context.Context, th *throttle.Throttle, job throttle.Job) map[string]error {
	errs := make(map[string]error)
	_, errs["Reserve"] = th.Reserve(ctx, job)
	_, errs["Peek"] = th.Peek(ctx, job)
	_, errs["Cancel"] = th.Cancel(ctx, job)
	_, errs["Explain"] = inspect.New(th).Explain(ctx, job)
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

// TestF46_WeightAtAndAboveTheLimit: a job that weighs as much as a limit starts, alone; a
// job that weighs one unit more can never start, whichever of the limits it is.
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

// TestLongIDsAreRefusedUnsent: an ID of more than 1,024 bytes gets a typed error that shows only a part of it,
// from every call that takes an ID, and nothing is sent to Redis. An ID of 1,024 bytes works everywhere.
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
		_, errs["ExplainID"] = inspect.New(th).ExplainID(ctx, job.ID)
		_, errs["Forecast"] = inspect.New(th).Forecast(ctx, []throttle.Job{job})
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
