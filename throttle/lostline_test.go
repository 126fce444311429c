package throttle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestF15_LostLine takes away each key of the line by which a pull finds a lane, while another tenant
// waits that is paused. Whoever is in line and asks again has the lane found; also who comes after
// the others have left. No window is over its limit.
func TestF15_LostLine(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		for _, end := range []string{"", "timers", "wait:tenant:a", "lanes:tenant:a:a", "lane:a|global:,tenant:a", "tags:tenant:a", "jobs"} {
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
	if err := s.SetLimits(dawn, "tenant", "a", []throttle.Limit{throttle.Per(3, 10*time.Second)}); err != nil {
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
