package view_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// triedOn tries limits on a scope key.
func triedOn(t *testing.T, th *throttle.Throttle, scope, key string, limits []throttle.Limit) []view.Tried {
	t.Helper()
	u, err := inspect.New(th).Usage(t.Context(), scope, key)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := view.Try(t.Context(), inspect.New(th), []inspect.Usage{u}, limits)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestTry: a running limit is tried with the running jobs, a window with its starts, a quota with those of its
// period; units that nothing counts are unknown.
func TestTry(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	th, err := throttle.New("try", client, []throttle.Scope{
		{Name: "host", Limits: []throttle.Limit{throttle.Running(5), throttle.Per(100, 400*24*time.Hour),
			throttle.PerCalendarMonth(9, "UTC")}},
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerMinute(100)}},
	}, &throttle.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b", "c"} {
		if _, err := th.Reserve(t.Context(),
			throttle.Job{ID: id, Weight: 1, Keys: map[string]string{"host": "h"}}); err != nil {
			t.Fatal(err)
		}
	}
	limits := []throttle.Limit{throttle.Running(1), throttle.PerHour(2),
		throttle.PerDay(1), throttle.PerCalendarMonth(1, "UTC"), throttle.PerCalendarMonth(2, "Asia/Kolkata")}
	of := func(scope, key string) []view.Tried {
		t.Helper()
		rows := triedOn(t, th, scope, key, limits)
		for i := range rows {
			rows[i].Limit = ""
		}
		return rows
	}
	want := []view.Tried{
		{Scope: "host", Key: "h", Started: 3, Over: 2, Known: true},
		{Scope: "host", Key: "h", Started: 3, Over: 1, Known: true},
		{Scope: "host", Key: "h", Started: 3, Over: 2, Known: true},
		{Scope: "host", Key: "h", Started: 3, Over: 2, Known: true},
		{Scope: "host", Key: "h", Started: 3, Over: 1, Known: true},
	}
	if diff := cmp.Diff(want, of("host", "h")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if rows := of(throttle.Global, ""); rows[0].Known || rows[1].Known || rows[2].Known {
		t.Errorf("got %+v of what nobody counts", rows)
	}
}

// TestTryOfWhatNothingCounts: hours count nothing, and what runs is counted by running limits only.
func TestTryOfWhatNothingCounts(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	th, err := throttle.New("try", client, []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerMinute(100)}}}, &throttle.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	rows := triedOn(t, th, throttle.Global, "", []throttle.Limit{
		throttle.OpenHours("Mon-Fri 09:00-17:00 @UTC"), throttle.Running(3), throttle.PerDay(1), throttle.PerMinute(1)})
	for i, want := range []string{"hours keep back what comes while they are closed, and count no units",
		"how many units run is not known, since no running limit counts them",
		"what started in its window is not known, since no limit counts so far back", ""} {
		if rows[i].Why != want || rows[i].Known != (want == "") {
			t.Errorf("%s: %+v, want %q", rows[i].Limit, rows[i], want)
		}
	}
}

// TestTryARampByRedisClock: the step of a ramp is that of Redis' day, whatever this machine's clock shows.
func TestTryARampByRedisClock(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	today := time.Now().UTC().Truncate(24 * time.Hour)
	noon := today.Add(60 * time.Hour) // the day after tomorrow
	server.SetTime(noon)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	th, err := throttle.New("try", client, []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerDay(100)}}}, &throttle.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := th.Reserve(t.Context(), throttle.Job{ID: "a", Weight: 4}); err != nil {
		t.Fatal(err)
	}
	server.SetTime(noon.Add(time.Second))
	ramp := throttle.Ramp("1 2 3/day from " + today.Format(time.DateOnly) + " @UTC")
	if rows := triedOn(t, th, throttle.Global, "", []throttle.Limit{ramp}); rows[0].Started != 4 || rows[0].Over != 1 {
		t.Errorf("%+v; want 4 started and 1 over the third step", rows)
	}
}
