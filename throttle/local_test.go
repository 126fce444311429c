package throttle_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// away is a Redis that can never be reached, without a network.
func away(t testing.TB) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	return client
}

// TestF03_PropertyLocalShare: with Redis away no process starts more than its
// share in any window of any limit, whatever comes when.
func TestF03_PropertyLocalShare(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		share := rapid.Float64Range(0.01, 1).Draw(r, "share")
		scopes, shares := drawShares(r, share)
		jobs := drawSpacedJobs(r)
		var starts []throttletest.Start
		synctest.Test(t, func(t *testing.T) {
			th := newThrottle(t, away(t), scopes, &throttle.Options{Fallback: throttle.FallbackLocal, LocalShare: share})
			time.Sleep(time.Until(historiesBegin)) // a bubble begins in the year 2000
			starts = startsOf(t, th, jobs)
		})
		for _, over := range throttletest.Check(shares, starts) {
			r.Fatalf("more than the share of %g: %s", share, over)
		}
	})
}

// spacedJob is a job, and how long after it the next one comes.
type spacedJob struct {
	job   throttle.Job
	pause time.Duration
}

// drawSpacedJobs draws jobs that come within hours or days. Rapid stops a check by panicking, which a bubble does not
// survive: all that is drawn, is drawn outside of it.
func drawSpacedJobs(t *rapid.T) []spacedJob {
	jobs := make([]spacedJob, rapid.IntRange(1, 200).Draw(t, "jobs"))
	for i := range jobs {
		jobs[i].job = throttle.Job{
			ID:     fmt.Sprint(i),
			Weight: rapid.Int64Range(1, 10).Draw(t, "weight"),
			Keys:   of(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "tenant")),
		}
		jobs[i].pause = time.Duration(rapid.Int64Range(0, 2_000_000).Draw(t, "pause")) * time.Microsecond
		if rapid.IntRange(0, 19).Draw(t, "long pause") == 0 {
			jobs[i].pause += 11 * time.Hour
		}
	}
	return jobs
}

// startsOf asks for each job when it comes, and returns those that were granted. All others are refused because Redis
// is away.
func startsOf(t *testing.T, th *throttle.Throttle, jobs []spacedJob) (starts []throttletest.Start) {
	t.Helper()
	for i, next := range jobs {
		got, err := th.Reserve(t.Context(), next.job)
		switch {
		case err == nil && got.Source == throttle.FallbackLocal && got.Outcome == throttle.Granted && got.Delay() == 0:
			starts = append(starts, throttletest.Start{At: got.Start, Weight: next.job.Weight, Keys: next.job.Keys})
		case !errors.Is(err, throttle.ErrUnavailable):
			t.Errorf("job %d: got %+v, %v; want granted from local, or an error of the class ErrUnavailable", i, got, err)
		}
		time.Sleep(next.pause)
	}
	return starts
}

// drawShares draws scopes, and the same with their limits cut down to the share.
func drawShares(t *rapid.T, share float64) (scopes, shares []throttle.Scope) {
	for _, name := range []string{"tenant", throttle.Global} {
		limit := throttle.Per(rapid.Int64Range(10, 300).Draw(t, name),
			time.Duration(rapid.Int64Range(1, 60).Draw(t, "window"))*time.Second)
		limits, parts := []throttle.Limit{limit}, []throttle.Limit{limit}
		if rapid.Bool().Draw(t, "has a quota") {
			limits = append(limits, drawQuota(t))
			parts = append(parts, limits[1])
		}
		for i := range parts {
			if parts[i].Units != throttle.Unlimited {
				parts[i].Units = int64(float64(parts[i].Units) * share)
			}
		}
		scopes = append(scopes, throttle.Scope{Name: name, Limits: limits})
		shares = append(shares, throttle.Scope{Name: name, Limits: parts})
	}
	return scopes, shares
}

// TestF03_LocalShareIsUsed: the share is not only kept, a good part of it is
// granted, again and again; and a job that one scope refuses takes nothing from
// another.
func TestF03_LocalShareIsUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		scopes := tenantAndGlobal(throttle.PerMinute(40), throttle.PerMinute(100))
		th := newThrottle(t, away(t), scopes, &throttle.Options{Fallback: throttle.FallbackLocal, LocalShare: 0.5})
		granted := make(map[string]int)
		for i := range 10 * 60 { // ten minutes
			for _, tenant := range []string{"a", "b", "c"} {
				if _, err := th.Reserve(t.Context(),
					throttle.Job{ID: fmt.Sprint(tenant, i), Weight: 1, Keys: of(tenant)}); err == nil {
					granted[tenant]++
				}
			}
			time.Sleep(time.Second)
		}
		// Of its 20 a minute a tenant gets 10 at once and 10 a minute; all together
		// 25 of their 50 and 25 a minute.
		if granted["a"] < 100 || granted["a"] > 200 {
			t.Errorf("tenant a: %d granted in ten minutes, want 100 to 200", granted["a"])
		}
		if all := granted["a"] + granted["b"] + granted["c"]; all < 250 || all > 500 {
			t.Errorf("all: %d granted in ten minutes (%v), want 250 to 500", all, granted)
		}
		// A tenant that is refused leaves the global share to others.
		for i := range 1000 {
			_, _ = th.Reserve(t.Context(), throttle.Job{ID: fmt.Sprint("flood", i), Weight: 1, Keys: of("flood")})
		}
		time.Sleep(time.Minute)
		if _, err := th.Reserve(t.Context(), throttle.Job{ID: "d", Weight: 8, Keys: of("d")}); err != nil {
			t.Errorf("tenant d after another's flood: got %v, want granted", err)
		}
	})
}

// TestFallbacksAreLoggedAndNotFlooding: one line a second for each kind of
// failure, with how many were left out.
func TestFallbacksAreLoggedAndNotFlooding(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zapcore.DebugLevel)
		th := newThrottle(t, away(t), globalScope(throttle.PerHour(1)), &throttle.Options{
			Fallback: throttle.FallbackOpen, BreakAfter: -1, Logger: zap.New(core),
		})
		const private = "jane@example.org"
		for i := range 1000 {
			reserve(t, th, throttle.Job{ID: private + fmt.Sprint(i), Weight: 1})
		}
		time.Sleep(time.Second)
		reserve(t, th, throttle.Job{ID: private, Weight: 1})
		entries := logs.All()
		if len(entries) != 2 {
			t.Fatalf("%d lines for 1,001 fallbacks in two seconds, want 2", len(entries))
		}
		for i, left := range []int64{0, 999} {
			fields := entries[i].ContextMap()
			if entries[i].Level != zapcore.WarnLevel || fields["throttle"] != th.Name() ||
				fields["failure"] != "other" || fields["not_logged"] != left {
				t.Errorf("line %d: got %s %v, want a warning about %s with %d not logged", i, entries[i].Level,
					fields, th.Name(), left)
			}
		}
	})
}

// TestF03_NoFallbackGrantsAPlan: a job that is only planned does not start now, so no fallback grants it, and it takes
// nothing of the share of the jobs that start.
func TestF03_NoFallbackGrantsAPlan(t *testing.T) {
	t.Parallel()
	for _, fallback := range []throttle.Fallback{throttle.FallbackOpen, throttle.FallbackLocal} {
		th := newThrottle(t, away(t), tenantAndGlobal(throttle.Running(2), throttle.PerMinute(40)),
			&throttle.Options{Fallback: fallback, LocalShare: 0.5, Lookahead: time.Second})
		job := throttle.Job{ID: "a", Weight: 1, Keys: of("acme"), Plan: true}
		if r, err := th.Reserve(t.Context(), job); !errors.Is(err, throttle.ErrUnavailable) {
			t.Errorf("%s: a plan got %+v, %v; want an error of the class ErrUnavailable", fallback, r, err)
		}
		job.Plan = false
		if r, err := th.Reserve(t.Context(), job); err != nil || r.Source != fallback {
			t.Errorf("%s: the job got %+v, %v; want granted", fallback, r, err)
		}
	}
}
