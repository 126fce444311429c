package throttle_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// fromNine is a quota whose next period begins an hour after dawn.
func fromNine(units int64) throttle.Limit {
	return throttle.Limit{Units: units, Calendar: throttle.Calendar{Unit: throttle.Day, Hours: 9, Zone: "UTC"}}
}

// edgesKey is the hash of edges of a throttle.
func edgesKey(t *testing.T, client *redis.Client, th *throttle.Throttle) string {
	t.Helper()
	keys, err := client.Keys(t.Context(), "thr:{"+th.Name()+"}:*:edges").Result()
	if err != nil || len(keys) != 1 {
		t.Fatalf("got keys %q, %v; want the one of edges", keys, err)
	}
	return keys[0]
}

// wants fails the test unless a job is answered like this, its start counted from dawn.
func wants(t *testing.T, s throttletest.Subject, at time.Duration, id string, weight int64, outcome throttle.Outcome,
	start time.Duration) throttle.Reservation {
	t.Helper()
	r, err := s.Reserve(dawn.Add(at), throttle.Job{ID: id, Weight: weight, Nonce: fmt.Sprint(id, at)})
	if err != nil || r.Outcome != outcome || outcome != throttle.Waiting && !r.Start.Equal(dawn.Add(start)) {
		t.Fatalf("job %s at %s: got %s %s, %v; want %s %s", id, at, r.Outcome, r.Start.Sub(dawn), err, outcome, start)
	}
	return r
}

// TestEdgesAreLost: edges that Redis has lost are computed again, and no count with them.
func TestEdgesAreLost(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := newThrottle(t, client, globalScope(fromNine(2)), &throttle.Options{Lookahead: 48 * time.Hour})
		s := newScripted(th)
		lose := func() {
			if err := client.Del(t.Context(), edgesKey(t, client, th)).Err(); err != nil {
				t.Fatal(err)
			}
		}
		granted := wants(t, s, 0, "a", 2, throttle.Granted, 0)
		lose()
		wants(t, s, time.Second, "b", 2, throttle.Booked, time.Hour)
		lose()
		if settled, err := s.Settle(dawn.Add(2*time.Second), granted, 1); !settled || err != nil {
			t.Errorf("settled %t, %v", settled, err)
		}
		lose()
		if used, err := s.Usage(dawn.Add(3*time.Second), throttle.Global, ""); err != nil || used.Limits[0].Used != 1 ||
			used.Limits[0].Booked != 2 || !used.Limits[0].Anew.Equal(dawn.Add(time.Hour)) {
			t.Errorf("usage: got %+v, %v", used, err)
		}
		lose()
		wants(t, s, time.Hour, "b", 2, throttle.Granted, time.Hour)
		wants(t, s, time.Hour, "c", 1, throttle.Booked, 25*time.Hour)
	})
}

// TestEdgesAreMissingInAPull: a pull that lacks edges books nothing under that quota, has them computed, and the next
// pull goes on.
func TestEdgesAreMissingInAPull(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := newThrottle(t, client, globalScope(throttle.PerMinute(100)), &throttle.Options{Lookahead: time.Second})
		s := newScripted(th)
		if err := s.SetLimits(dawn, throttle.Global, "", []throttle.Limit{fromNine(2)}, time.Time{}); err != nil {
			t.Fatal(err)
		}
		wants(t, s, time.Second, "a", 2, throttle.Granted, time.Second)
		wants(t, s, time.Second, "b", 2, throttle.Waiting, 0)
		if _, err := s.Pull(dawn.Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		key := edgesKey(t, client, th)
		if err := client.Del(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
		booked := 0
		for at := time.Hour - time.Second; at < time.Hour+5*time.Second; at += time.Second {
			pulled, err := s.Pull(dawn.Add(at))
			if err != nil {
				t.Fatal(err)
			}
			booked += len(pulled.Booked)
		}
		if n, err := client.Exists(t.Context(), key).Result(); n != 1 || err != nil || booked != 1 {
			t.Errorf("%d booked, %d keys of edges, %v; want one of each", booked, n, err)
		}
	})
}

// TestClaimBeyondTheKnownEdges: a heavy job claims its start next month, although the days until then are not known at
// first, and lighter jobs take what is left of this one.
func TestClaimBeyondTheKnownEdges(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		month := 400 * time.Hour // the first of February
		s := newScripted(newThrottle(t, client, globalScope(throttle.PerCalendarDay(10, "UTC"),
			throttle.PerCalendarMonth(3, "UTC")), &throttle.Options{Lookahead: time.Second}))
		wants(t, s, 0, "a", 2, throttle.Granted, 0)
		wants(t, s, 0, "heavy", 2, throttle.Waiting, 0)
		wants(t, s, 0, "light", 1, throttle.Waiting, 0)
		for at := time.Second; at < 5*time.Second; at += time.Second {
			if _, err := s.Pull(dawn.Add(at)); err != nil {
				t.Fatal(err)
			}
		}
		wants(t, s, 5*time.Second, "light", 1, throttle.Granted, 5*time.Second)
		if used, err := s.Usage(dawn.Add(5*time.Second), throttle.Global, ""); err != nil ||
			used.Limits[1].Used != 3 || used.Limits[1].Booked != 2 {
			t.Errorf("usage: got %+v, %v", used, err)
		}
		pulled, err := s.Pull(dawn.Add(month - time.Second))
		if err != nil || len(pulled.Booked) != 1 || !pulled.Booked[0].Start.Equal(dawn.Add(month)) {
			t.Errorf("a second before the month: got %+v, %v", pulled, err)
		}
		wants(t, s, month, "heavy", 2, throttle.Granted, month)
	})
}

// TestEdgesAreLostUnderASave: a job is booked for a day whose edges Redis has lost, and another job starts. The scope
// key lives until the booking has left its window, in two months, and not for good.
func TestEdgesAreLostUnderASave(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		const day = 24 * time.Hour
		th := newThrottle(t, client, globalScope(throttle.Per(3, 28*day), throttle.PerCalendarDay(3, "UTC")),
			&throttle.Options{Lookahead: time.Second})
		s := newScripted(th)
		wants(t, s, 0, "a", 2, throttle.Granted, 0)
		wants(t, s, 0, "heavy", 2, throttle.Waiting, 0)
		for at := time.Second; at < 3*time.Second; at += time.Second {
			if _, err := s.Pull(dawn.Add(at)); err != nil {
				t.Fatal(err)
			}
		}
		edges := edgesKey(t, client, th)
		if err := client.Del(t.Context(), edges).Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Pause(dawn.Add(4*time.Second), throttle.Global, "", dawn.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		lives, err := client.PTTL(t.Context(), strings.TrimSuffix(edges, "edges")+"key:global:").Result()
		if err != nil || lives < 28*day || lives > 3*28*day {
			t.Errorf("the scope key lives for %s, %v; want some two months", lives, err)
		}
	})
}

// TestEdgesAreLostUnderABooking: a job that is booked for a day whose edges Redis has lost, far beyond those that are
// computed again at once, leaves no unit behind, whether it is cancelled or deleted, or asks again.
func TestEdgesAreLostUnderABooking(t *testing.T) {
	t.Parallel()
	leave := map[string]func(s *scripted, now time.Time, job throttle.Job) error{
		"cancelled": func(s *scripted, now time.Time, job throttle.Job) error {
			_, err := s.Cancel(now, job)
			return err
		},
		"deleted": func(s *scripted, now time.Time, job throttle.Job) error {
			_, err := s.Leave(now, []string{job.ID})
			return err
		},
		"asks for less": func(s *scripted, now time.Time, job throttle.Job) error {
			job.Weight = 1
			if _, err := s.Reserve(now, job); err != nil {
				return err
			}
			_, err := s.Cancel(now, job)
			return err
		},
	}
	for name, leave := range leave {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onServers(t, func(t *testing.T, client *redis.Client) {
				const window = 28 * 24 * time.Hour
				th := newThrottle(t, client, globalScope(throttle.Per(3, window), throttle.PerCalendarDay(3, "UTC")),
					&throttle.Options{Lookahead: time.Second})
				s := newScripted(th)
				wants(t, s, 0, "a", 2, throttle.Granted, 0)
				wants(t, s, 0, "heavy", 2, throttle.Waiting, 0)
				for at := time.Second; at < 3*time.Second; at += time.Second {
					if _, err := s.Pull(dawn.Add(at)); err != nil {
						t.Fatal(err)
					}
				}
				booked := func() []int64 {
					usage, err := s.Usage(dawn.Add(5*time.Second), throttle.Global, "")
					if err != nil {
						t.Fatal(err)
					}
					return []int64{usage.Limits[0].Booked, usage.Limits[1].Booked}
				}
				if got := booked(); !slices.Equal(got, []int64{2, 2}) {
					t.Fatalf("%d are booked before, want 2 in both: this test has tested nothing", got)
				}
				if err := client.Del(t.Context(), edgesKey(t, client, th)).Err(); err != nil {
					t.Fatal(err)
				}
				if err := leave(s, dawn.Add(4*time.Second), throttle.Job{ID: "heavy", Weight: 2}); err != nil {
					t.Fatal(err)
				}
				if got := booked(); !slices.Equal(got, []int64{0, 0}) {
					t.Errorf("%d are booked in the end, want none", got)
				}
			})
		})
	}
}

// TestEdgesOfAnotherProcess: what one process has stored holds for all, also for one whose zone data differ, so that
// they count alike.
func TestEdgesOfAnotherProcess(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := globalScope(fromNine(2))
		th := newThrottle(t, client, scopes, &throttle.Options{Lookahead: 48 * time.Hour})
		one, other := newScripted(th), newScripted(sameAs(t, client, th, scopes, throttle.Options{}))
		wants(t, one, 0, "a", 1, throttle.Granted, 0)
		key := edgesKey(t, client, th)
		stored, err := client.HGetAll(t.Context(), key).Result()
		if err != nil || len(stored) != 1 {
			t.Fatalf("got %v, %v", stored, err)
		}
		for calendar, text := range stored { // as if a process took the zone to be an hour behind UTC
			first, edges, _ := strings.Cut(text, " ")
			var later strings.Builder
			for ; edges != ""; edges = edges[16:] {
				var at int64
				if _, err := fmt.Sscanf(edges[:16], "%d", &at); err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&later, "%016d", at+time.Hour.Microseconds())
			}
			if err := client.HSet(t.Context(), key, calendar, first+" "+later.String()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		wants(t, one, 90*time.Minute, "b", 1, throttle.Granted, 90*time.Minute)
		wants(t, other, 91*time.Minute, "c", 1, throttle.Booked, 2*time.Hour)
		wants(t, one, 2*time.Hour, "c", 1, throttle.Granted, 2*time.Hour)
		// Once the stored edges are short of what is looked ahead, new ones come after them.
		late := 80 * 24 * time.Hour
		wants(t, other, late, "d", 2, throttle.Granted, late)
		wants(t, one, late, "e", 1, throttle.Booked, late+time.Hour)
	})
}

// TestGuessUnderAQuota: a job in line is told the edge at which its turn comes.
func TestGuessUnderAQuota(t *testing.T) {
	t.Parallel()
	s := newScripted(newThrottle(t, miniClient(t), globalScope(fromNine(2)), &throttle.Options{Lookahead: time.Second}))
	wants(t, s, 0, "a", 2, throttle.Granted, 0)
	for i, want := range []time.Duration{time.Hour, time.Hour, 25 * time.Hour, 25 * time.Hour, 49 * time.Hour} {
		if r := wants(t, s, 0, fmt.Sprint("b", i), 1, throttle.Waiting, 0); !r.Start.Equal(dawn.Add(want)) {
			t.Errorf("job %d: guessed %s, want %s", i, r.Start.Sub(dawn), want)
		}
	}
}

// TestForecastOfQuotas: jobs that wait over several midnights, a closed month and a change of the clock start when it
// was forecast.
func TestForecastOfQuotas(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	tenant := []throttle.Limit{throttle.PerCalendarDay(9, "America/St_Johns"),
		{Units: 40, Calendar: throttle.Calendar{Unit: throttle.Month, Days: 19, Zone: "Europe/Paris"}}}
	scopes := []throttle.Scope{{Name: "tenant", Limits: tenant},
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerHour(7)}}}
	if f := foretold(t, scopes, longtest.Of(60, 120), 3, 90*24*time.Hour); f.last.Sub(f.began) < 24*time.Hour {
		t.Errorf("all have started by %s: no edge was passed", f.last)
	}
}

// TestExplainNamesTheEdge: the explanation says when the quota begins anew, by the clock of its zone.
func TestExplainNamesTheEdge(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := nearly(t, client, globalScope(throttle.PerCalendarDay(2, "Europe/Paris")), throttle.Options{})
		comes(t, s, 0, throttle.Job{ID: "a", Weight: 2}, throttle.Granted)
		reads(t, "b", explained(t, client, s, time.Second, throttle.Job{ID: "b", Weight: 1}), `
job b at 2027-01-15 08:00:01.000 UTC
  nothing is known of it: it never asked, was given back, or has started
  global                   2/day@Europe/Paris        2 used        0 booked  room in 14h59m59s
    begins anew on Sat 2027-01-16 00:00 CET (in 14h59m59s)
`)
	})
}
