package throttle_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestHoursAreChecked: bad hours are refused before anything is asked of Redis, with what is wrong.
func TestHoursAreChecked(t *testing.T) {
	t.Parallel()
	good := throttle.OpenHours("Mon-Fri 09:00-17:00@Europe/Paris", "2026-12-25", "2027-01-01")
	if want := "open Mon-Fri 09:00-17:00, except 2026-12-25 2027-01-01 @Europe/Paris"; good.String() != want {
		t.Errorf("got %q, want %q", good, want)
	}
	for name, limit := range map[string]throttle.Limit{
		"a zone":         throttle.OpenHours("Mon-Fri 09:00-17:00 @Mars/Base"),
		"an hour":        throttle.OpenHours("Mon-Fri 09:00-25:00 @UTC"),
		"a date":         throttle.OpenHours("Mon-Fri 09:00-17:00 @UTC", "2026-02-30"),
		"no hours":       throttle.OpenHours("@UTC"),
		"no zone":        throttle.OpenHours("09:00-17:00", "2026-12-25"),
		"units":          {Units: 3, Hours: good.Hours},
		"a window":       {Units: throttle.Unlimited, Hours: good.Hours, Window: time.Minute},
		"other spelling": {Units: throttle.Unlimited, Hours: "Mon-Fri  09:00-17:00 @UTC"},
	} {
		_, err := throttle.New("t", away(t), globalScope(limit), nil)
		var bad *throttle.LimitError
		if !errors.As(err, &bad) || bad.Reason == "" {
			t.Errorf("%s: got %v, want a *LimitError", name, err)
		}
	}
	two := globalScope(good, throttle.OpenHours("Sat 10:00-12:00 @UTC"))
	if _, err := throttle.New("t", away(t), two, nil); err == nil {
		t.Error("a scope has hours twice")
	}
}

// TestHoursBeyondTheKnownEdges: a job waits for hours that open in eight months, and another for a month's quota, far
// behind the known edges of hours that open several times a day.
func TestHoursBeyondTheKnownEdges(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		dates := make([]string, 60)
		for i := range dates {
			dates[i] = dawn.AddDate(0, 0, i).Format(time.DateOnly)
		}
		s := newScripted(newThrottle(t, client, globalScope(throttle.OpenHours("Sun 09:00-10:00 @UTC", dates...)),
			&throttle.Options{Lookahead: time.Second}))
		opens := 1 * time.Hour // on Sunday, the 21st of March
		for !dawn.Add(opens).Equal(time.Date(2027, 3, 21, 9, 0, 0, 0, time.UTC)) {
			opens += 24 * time.Hour
		}
		if r := wants(t, s, 0, "a", 1, throttle.Waiting, 0); !r.Start.Equal(dawn.Add(opens)) {
			t.Errorf("waits until %s, want %s", r.Start, dawn.Add(opens))
		}
		s = newScripted(newThrottle(t, client, globalScope(throttle.PerCalendarMonth(3, "UTC"),
			throttle.OpenHours("09:00-10:00, 11:00-12:00, 13:00-14:00, 08:00-08:30 @UTC")),
			&throttle.Options{Lookahead: time.Second}))
		wants(t, s, 0, "a", 2, throttle.Granted, 0)
		wants(t, s, 0, "heavy", 2, throttle.Waiting, 0)
		for at := time.Second; at < 5*time.Second; at += time.Second {
			if _, err := s.Pull(dawn.Add(at)); err != nil {
				t.Fatal(err)
			}
		}
		month := 408 * time.Hour // 8 o'clock on the first of February
		pulled, err := s.Pull(dawn.Add(month - time.Second))
		if err != nil || len(pulled.Booked) != 1 || !pulled.Booked[0].Start.Equal(dawn.Add(month)) {
			t.Errorf("a second before the month opens: got %+v, %v", pulled, err)
		}
		wants(t, s, month, "heavy", 2, throttle.Granted, month)
	})
}

// TestHoursEdgesAreLost: edges that Redis has lost are computed again, also in a pull.
func TestHoursEdgesAreLost(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := newThrottle(t, client, globalScope(throttle.OpenHours("09:00-17:00 @UTC")),
			&throttle.Options{Lookahead: time.Second})
		s := newScripted(th)
		wants(t, s, 0, "a", 1, throttle.Waiting, 0)
		if err := client.Del(t.Context(), edgesKey(t, client, th)).Err(); err != nil {
			t.Fatal(err)
		}
		pulled, err := s.Pull(dawn.Add(time.Hour - time.Second))
		if err != nil || len(pulled.Booked) != 1 || !pulled.Booked[0].Start.Equal(dawn.Add(time.Hour)) {
			t.Errorf("got %+v, %v", pulled, err)
		}
	})
}

// TestForecastOverClosedNights: jobs of four tenants wait over five closed nights and a weekend, under a window, a
// quota and hours, and start when it was forecast.
func TestForecastOverClosedNights(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	scopes := globalScope(throttle.PerHour(7), throttle.PerCalendarDay(30, "Asia/Kolkata"),
		throttle.OpenHours("Mon-Fri 09:30-17:00, Sat 22:00-01:00 @Asia/Kolkata", "2027-01-20"))
	scopes = append(scopes, throttle.Scope{Name: "tenant"})
	nights := make(map[string]bool)
	for _, start := range foretold(t, scopes, 130, 2, 30*24*time.Hour).starts {
		nights[start.At.Format(time.DateOnly)] = true
	}
	if len(nights) < 6 {
		t.Errorf("jobs started on %d days, want six or more", len(nights))
	}
}

// TestOneLookAtTheOpening: pulls look at a lane that waits for an opening every five minutes, for changes that a
// process may make, and once at the edge; there are no others.
func TestOneLookAtTheOpening(t *testing.T) {
	t.Parallel()
	s := newScripted(newThrottle(t, miniClient(t), globalScope(throttle.OpenHours("09:00-17:00 @UTC")),
		&throttle.Options{Lookahead: time.Second}))
	next := wants(t, s, 0, "a", 1, throttle.Waiting, 0).Next
	pulls := 0
	for ; pulls < 20 && !next.IsZero(); pulls++ {
		pulled, err := s.Pull(next)
		if err != nil {
			t.Fatal(err)
		}
		if len(pulled.Booked) == 1 {
			break
		}
		next = pulled.Next
	}
	if !next.Equal(dawn.Add(time.Hour-time.Second)) || pulls != 11 {
		t.Errorf("booked by pull %d at %s, want by the 12th, a second before it opens", pulls+1, next.Sub(dawn))
	}
}

// TestExplainNamesTheOpening: the explanation says until when hours are closed or open, by the clock of their zone.
func TestExplainNamesTheOpening(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := nearly(t, client, globalScope(throttle.OpenHours("Mon-Fri 10:00-17:00 @Europe/Paris")), throttle.Options{})
		comes(t, s, 0, throttle.Job{ID: "a", Weight: 2}, throttle.Waiting)
		reads(t, "b", explained(t, client, s, time.Second, throttle.Job{ID: "b", Weight: 1}), `
job b at 2027-01-15 08:00:01.000 UTC
  nothing is known of it: it never asked, was given back, or has started
  global                   open Mon-Fri 10:00-17:00 @Europe/Paris closed until Fri 10:00 Europe/Paris (in 59m59s)
`)
		reads(t, "c", explained(t, client, s, time.Hour, throttle.Job{ID: "c", Weight: 1}), `
job c at 2027-01-15 09:00:00.000 UTC
  nothing is known of it: it never asked, was given back, or has started
  global                   open Mon-Fri 10:00-17:00 @Europe/Paris open until Fri 17:00 Europe/Paris (in 7h)
`)
	})
}
