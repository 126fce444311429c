package throttle_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestBookedUnderOtherKeys: a job that stood in one lane asks again with another key, and is
// the first of two lanes then. One pull books it once, and has nothing left to do.
func TestBookedUnderOtherKeys(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := newScripted(newThrottle(t, client, tenantAndGlobal(throttle.PerHour(100), throttle.PerHour(1)),
			&throttle.Options{Lookahead: time.Second}))
		now := time.Unix(1_800_000_000, 0)
		for _, job := range []throttle.Job{
			{ID: "runs", Weight: 1, Keys: of("a")},
			{ID: "before", Weight: 1, Keys: of("a")},
			{ID: "moves", Weight: 1, Keys: of("a")},
			{ID: "moves", Weight: 1, Keys: of("b")},
		} {
			if _, err := s.Reserve(now, job); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.SetMode(now, throttle.Global, throttle.Off, time.Time{}); err != nil {
			t.Fatal(err)
		}
		pulled, err := s.Pull(now.Add(time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		var booked []string
		for _, r := range pulled.Booked {
			booked = append(booked, r.Job.ID)
		}
		slices.Sort(booked)
		if !slices.Equal(booked, []string{"before", "moves"}) || !pulled.Next.After(pulled.Now) {
			t.Errorf("booked %v, and looked at again %s later", booked, pulled.Next.Sub(pulled.Now))
		}
	})
}

// TestPlanOfABookedJobTakesNothing: a caller that plans a job which is booked already, such as a
// restarted program that enqueues its campaign anew, gets the job's slot, even if the slot has come.
// Only a caller that delivers the job gets its start.
func TestPlanOfABookedJobTakesNothing(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := newScripted(newThrottle(t, client,
			[]throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.Per(1, time.Second)}}}, nil))
		ask := func(after time.Duration, id string, plan bool) throttle.Reservation {
			r, err := s.Reserve(dawn.Add(after), throttle.Job{ID: id, Weight: 1, Keys: of("acme"), Plan: plan})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		ask(0, "first", false)
		slot := ask(0, "second", false)
		if slot.Outcome != throttle.Booked || !slot.Start.Equal(dawn.Add(time.Second)) {
			t.Fatalf("the second got %+v", slot)
		}
		for _, after := range []time.Duration{0, time.Second, 2 * time.Second} {
			if r := ask(after, "second", true); r.Outcome != throttle.Booked || !r.Start.Equal(slot.Start) {
				t.Errorf("planned after %s it got %s at %s, want its slot", after, r.Outcome, r.Start)
			}
		}
		if r := ask(2*time.Second, "second", false); r.Outcome != throttle.Granted {
			t.Errorf("who brings it got %+v", r)
		}
	})
}

// TestRaisedLimitMovesNoBookingLater: a limit is raised past 100 units, above which it is
// no longer exact by default, or is set with sub-windows; a job that was booked before
// starts at its slot or earlier.
func TestRaisedLimitMovesNoBookingLater(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		for _, window := range []time.Duration{10 * time.Second, time.Minute, time.Hour, 24 * time.Hour} {
			for _, precision := range []time.Duration{0, throttle.Exact, window / 100, window / 10} {
				th := newThrottle(t, client, globalScope(throttle.Per(100, window)), nil)
				s := newScripted(th)
				ask := func(at time.Duration, id string) throttle.Reservation {
					r, err := s.Reserve(dawn.Add(at), throttle.Job{ID: id, Weight: 100})
					if err != nil {
						t.Fatal(err)
					}
					return r
				}
				ask(0, "a")
				b := ask(time.Second, "b")
				slot := b.Start.Sub(dawn)
				if b.Outcome != throttle.Booked || slot != window {
					t.Fatalf("%s: %s for %s before it is raised", window, b.Outcome, slot)
				}
				raised := throttle.Limit{Units: 150, Window: window, Precision: precision}
				if err := s.SetLimits(dawn.Add(2*time.Second), throttle.Global, "", []throttle.Limit{raised},
					time.Time{}); err != nil {
					t.Fatal(err)
				}
				// Somebody asks under the new limit.
				if _, err := s.Reserve(dawn.Add(3*time.Second), throttle.Job{ID: "c", Weight: 1}); err != nil {
					t.Fatal(err)
				}
				again := ask(slot, "b")
				if again.Outcome != throttle.Granted || again.Start.Sub(dawn) > slot {
					t.Errorf("%s: booked for %s under 100, then raised to %s: %s for %s, %s later", window, slot,
						raised, again.Outcome, again.Start.Sub(dawn), again.Start.Sub(dawn)-slot)
				}
			}
		}
	})
}

// TestLighterJobLeavesRoom: a heavy job has a slot, and a light one starts there: the heavy job, which weighs less
// now, or a job that takes over the slot. The next pull books what waits for the room that is left.
func TestLighterJobLeavesRoom(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		for starts, comes := range map[string]time.Duration{"heavy": time.Hour, "new": time.Hour + 100*time.Millisecond} {
			scopes := append(globalScope(throttle.Per(10, time.Hour)), throttle.Scope{Name: "tenant"})
			s := newScripted(newThrottle(t, client, scopes, &throttle.Options{Lookahead: time.Second}))
			ask := func(at time.Duration, tenant, id string, weight int64, want throttle.Outcome) {
				t.Helper()
				r, err := s.Reserve(dawn.Add(at), throttle.Job{ID: id, Weight: weight, Keys: of(tenant)})
				if err != nil || r.Outcome != want {
					t.Fatalf("%s at %s: %s, %v; want it %s", id, at, r.Outcome, err, want)
				}
			}
			pull := func(at time.Duration) throttle.Pulled {
				pulled, err := s.Pull(dawn.Add(at))
				if err != nil {
					t.Fatal(err)
				}
				return pulled
			}
			ask(0, "a", "first", 10, throttle.Granted)
			ask(time.Second, "a", "heavy", 10, throttle.Waiting)
			pull(time.Hour - time.Second) // books it
			ask(time.Hour-time.Second, "b", "waits", 1, throttle.Waiting)
			pull(time.Hour - time.Second)
			pull(comes)
			ask(comes, "a", starts, 1, throttle.Granted)
			if pulled := pull(comes + time.Second); len(pulled.Booked) != 1 {
				t.Errorf("%s has started: booked %v, and looked at again %s later; want one booking", starts, pulled.Booked,
					pulled.Next.Sub(pulled.Now))
			}
		}
	})
}
