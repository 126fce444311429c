package throttle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestF15_LostLine takes away each key of the line by which a pull finds a lane, while a paused tenant
// waits too. When a job in line asks again, pulls find its lane again; so they do when a job comes
// after the others have left. No window is over its limit.
func TestF15_LostLine(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		for _, end := range []string{"", "timers", "wait:tenant:a", "lanes:tenant:a:a", "lane:a|global:,tenant:a",
			"tags:tenant:a", "jobs"} {
			for _, leave := range []bool{false, true} {
				lostLine(t, client, end, leave)
			}
		}
	})
}

func lostLine(t *testing.T, client *redis.Client, end string, leave bool) {
	t.Helper()
	what := fmt.Sprintf("%q away, left %t", end, leave)
	scopes := tenantAndGlobal(throttle.Per(2, 10*time.Second), throttle.Per(100, 10*time.Second))
	s := newScripted(newThrottle(t, client, scopes, &throttle.Options{Lookahead: time.Second}))
	var starts []throttletest.Start
	ask := func(at time.Duration, id string) bool {
		t.Helper()
		job := throttle.Job{ID: id, Weight: 1, Keys: of(id[:1])}
		got, err := s.Reserve(dawn.Add(at), job)
		if err != nil {
			t.Fatalf("%s, at %s, job %s: %v", what, at, id, err)
		}
		if got.Outcome == throttle.Granted {
			starts = append(starts, throttletest.Start{At: got.Start, Weight: 1, Keys: job.Keys})
		}
		return got.Outcome == throttle.Granted
	}
	// Limits of its own keep a scope key from the shorter way, which is for where nobody waits.
	if err := s.SetLimits(dawn, "tenant", "a", []throttle.Limit{throttle.Per(3, 10*time.Second)},
		time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pause(dawn, "tenant", "b", dawn.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	ask(0, "b")
	waiting := map[string]bool{}
	for i := range 8 {
		id := fmt.Sprint("a", i)
		waiting[id] = !ask(time.Duration(i)*time.Millisecond, id)
	}
	if end != "" {
		takeAway(t, client, s, end)
	}
	for id, waits := range waiting {
		if waits && leave {
			if _, err := s.Leave(dawn.Add(time.Second), []string{id}); err != nil {
				t.Fatal(err)
			}
		}
	}
	ask(2*time.Second, "b")
	for at := 10 * time.Second; at < 2*time.Minute; at += time.Second {
		drain(t, s, dawn.Add(at))
		for id, waits := range waiting {
			waiting[id] = waits && !ask(at, id)
		}
	}
	for id, waits := range waiting {
		if waits {
			t.Errorf("%s: %s has not started in two minutes", what, id)
		}
	}
	scopes[0].Limits = []throttle.Limit{throttle.Per(3, 10*time.Second)}
	for _, over := range throttletest.Check(scopes, starts) {
		t.Errorf("%s: window over its limit: %s", what, over)
	}
}

// TestF15_LostLaneUnderArrivals takes a lane's jobs away, or another key of the line, while others keep coming to the
// lane, as many as the limit lets through. The old jobs ask again now and then, and all start in a minute; no window is
// over its limit.
func TestF15_LostLaneUnderArrivals(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		for _, end := range []string{"lane:a|global:,tenant:a", "jobs", "timers", "wait:tenant:a", "lanes:tenant:a:a",
			"tags:tenant:a"} {
			lostUnderArrivals(t, client, end)
		}
	})
}

func lostUnderArrivals(t *testing.T, client *redis.Client, end string) {
	t.Helper()
	scopes := tenantAndGlobal(throttle.Per(2, 10*time.Second), throttle.Per(100, 10*time.Second))
	s := newScripted(newThrottle(t, client, scopes, &throttle.Options{Lookahead: time.Second}))
	var starts []throttletest.Start
	waiting := map[string]bool{}
	ask := func(at time.Duration, id string) {
		t.Helper()
		job := throttle.Job{ID: id, Weight: 1, Keys: of("a")}
		got, err := s.Reserve(dawn.Add(at), job)
		if err != nil {
			t.Fatalf("without %s: %v", end, err)
		}
		waiting[id] = got.Outcome != throttle.Granted
		if !waiting[id] {
			starts = append(starts, throttletest.Start{At: got.Start, Weight: 1, Keys: job.Keys})
		}
	}
	for i := range 8 {
		ask(time.Duration(i)*time.Millisecond, fmt.Sprint("old", i))
	}
	takeAway(t, client, s, end)
	for second := range 60 {
		at := time.Duration(1+second) * time.Second
		for _, r := range drain(t, s, dawn.Add(at)) {
			if waiting[r.Job.ID] {
				ask(r.Start.Sub(dawn), r.Job.ID)
			}
		}
		if second%5 == 0 {
			ask(at, fmt.Sprint("late", second))
		}
		for i := range 8 {
			if id := fmt.Sprint("old", i); second%10 == 9 && waiting[id] {
				ask(at, id)
			}
		}
	}
	for i := range 8 {
		if id := fmt.Sprint("old", i); waiting[id] {
			t.Errorf("without %s: %s has not started in a minute", end, id)
		}
	}
	for _, over := range throttletest.Check(scopes, starts) {
		t.Errorf("without %s: window over its limit: %s", end, over)
	}
}
