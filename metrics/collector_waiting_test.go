package metrics_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestScrapeOfJobsInLine: a scrape reports how many jobs are in line, and for how long the first
// has been.
func TestScrapeOfJobsInLine(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	server.SetTime(now)
	collector, th := observed(t, server.Addr(), nil, throttle.Options{Lookahead: time.Second})
	for n := range 7 { // the tenant has 4 a minute
		j := job(strconv.Itoa(n), "acme", 1)
		if n == 6 {
			j.Priority = 2
		}
		if _, err := th.Reserve(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		server.SetTime(now.Add(time.Duration(n) * time.Millisecond))
	}
	server.SetTime(now.Add(20 * time.Second))
	got := scrape(t, collector)
	got.want(t, map[string]float64{
		"throttle_waiting_jobs{priority=0,scope=tenant,throttle=mail}": 2,
		"throttle_waiting_jobs{priority=2,scope=tenant,throttle=mail}": 1,
	})
	if waits := got.values()["throttle_oldest_wait_seconds{priority=0,scope=tenant,throttle=mail}"]; waits < 19.9 ||
		waits > 20 {
		t.Errorf("the oldest has waited %v s, want 20", waits)
	}
}

// TestScrapeOfSettings: a scrape reports pauses and settings of run time, which are read once a
// minute at most.
func TestScrapeOfSettings(t *testing.T) {
	t.Parallel()
	collector, th := observed(t, miniredis.RunT(t).Addr(), nil, throttle.Options{})
	ctx := t.Context()
	if _, err := th.Reserve(ctx, job("a", "acme", 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := inspect.New(th).Pause(ctx, "tenant", "acme", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{"acme", "globex"} {
		if err := inspect.New(th).SetLimits(ctx, "tenant", tenant, []throttle.Limit{throttle.PerHour(7)}); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]float64{
		"throttle_paused_keys{scope=tenant,throttle=mail}": 1,
		"throttle_overrides{scope=tenant,throttle=mail}":   2,
		"throttle_overrides{scope=*,throttle=mail}":        0,
	}
	scrape(t, collector).want(t, want)
	if err := inspect.New(th).ResetLimits(ctx, "tenant", "globex"); err != nil {
		t.Fatal(err)
	}
	scrape(t, collector).want(t, want)
}

// TestScrapeOfOldestOverride: a scrape reports for how long the oldest limits without an end have
// been set. Limits that end by themselves, and pauses, are not counted.
func TestScrapeOfOldestOverride(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	now := time.Now().Truncate(time.Second) // the local clock says how far off an end is
	server.SetTime(now)
	collector, th := observed(t, server.Addr(), nil, throttle.Options{})
	ctx, limits := t.Context(), []throttle.Limit{throttle.PerHour(7)}
	end := inspect.Until(now.Add(24 * time.Hour))
	if err := inspect.New(th).SetLimits(ctx, "tenant", "hooli", limits, end); err != nil {
		t.Fatal(err)
	}
	for n, tenant := range []string{"acme", "globex"} {
		server.SetTime(now.Add(time.Duration(n+1) * time.Hour))
		if err := inspect.New(th).SetLimits(ctx, "tenant", tenant, limits); err != nil {
			t.Fatal(err)
		}
	}
	server.SetTime(now.Add(6 * time.Hour))
	if _, err := th.Reserve(ctx, job("a", "acme", 1)); err != nil {
		t.Fatal(err)
	}
	scrape(t, collector).want(t, map[string]float64{
		"throttle_oldest_override_seconds{scope=tenant,throttle=mail}": 5 * 3600,
		"throttle_oldest_override_seconds{scope=*,throttle=mail}":      0,
		"throttle_overrides{scope=tenant,throttle=mail}":               3,
	})
}
