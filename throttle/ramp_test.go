package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestRampIsWrittenOut: a rule becomes the list of its steps, each rounded down, but at least
// a unit above the one before, and at most max.
func TestRampIsWrittenOut(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"ramp 50/day x2 every 1d max 20000 from 2026-12-01 @UTC": "ramp 50 100 200 400 800 1600 3200 6400 12800 20000/day " +
			"from 2026-12-01 @UTC",
		"ramp  50  100/day  from  2026-12-01@Europe/Paris":       "ramp 50 100/day from 2026-12-01 @Europe/Paris",
		"ramp 7/day from 2026-12-01 @UTC":                        "ramp 7/day from 2026-12-01 @UTC",
		"ramp 1/day x1.3 max 6 from 2026-12-01 @UTC":             "ramp 1 2 3 4 5 6/day from 2026-12-01 @UTC",
		"ramp 100/day x1.3 max 300 from 2026-12-01 @UTC":         "ramp 100 130 169 219 284 300/day from 2026-12-01 @UTC",
		"ramp 3/week max 9 from 2026-12-07 +3 every 2w @UTC":     "ramp 3 6 9/week every 2w from 2026-12-07 @UTC",
		"ramp 50 60/day+3h from 2026-12-01 held 2026-12-05 @UTC": "ramp 50 60/day+3h from 2026-12-01 held 2026-12-05 @UTC",
		// A ramp begins with the first period from its date on. It is held in the period of the date.
		"ramp 1 2/week from 2026-12-01 held 2026-12-20 @UTC": "ramp 1 2/week from 2026-12-07 held 2026-12-14 @UTC",
		"ramp 1 2/month+30d from 2026-02-01 every 3mo @UTC":  "ramp 1 2/month+30d every 3mo from 2026-02-28 @UTC",
		"ramp 4503599627370496/day x1.999 max 9007199254740992 from 2026-12-01 @UTC": "ramp 4503599627370496 " +
			"9002695655113621 9007199254740992/day from 2026-12-01 @UTC",
	} {
		limit, err := throttle.ParseLimit(text)
		if err != nil || limit.String() != want || limit != throttle.Ramp(strings.TrimPrefix(text, "ramp ")) {
			t.Errorf("%s: got %s, %v; want %s", text, limit, err, want)
		}
		if again, err := throttle.ParseLimit(limit.String()); err != nil || again != limit {
			t.Errorf("%s: read again as %s, %v", limit, again, err)
		}
	}
	limit := throttle.Ramp("50/day+3h x2 max 20000 from 2026-12-01 @Europe/Paris")
	if limit.Units != 20_000 || limit.Label() != "day+3h@Europe/Paris" || limit.Length() != day ||
		limit.Zone() != "Europe/Paris" {
		t.Errorf("got %+v", limit)
	}
	two, err := throttle.ParseLimits("3/1m, ramp 1 2/day from 2026-12-01 @UTC, open 09:00-17:00, 20:00-21:00 @UTC")
	if err != nil || len(two) != 3 || two[1].Units != 2 {
		t.Errorf("got %v, %v", two, err)
	}
}

// TestRampsAreChecked: a text that is no ramp is refused, and the error says what is wrong.
func TestRampsAreChecked(t *testing.T) {
	t.Parallel()
	for text, reason := range map[string]string{
		"":                                      "want units and a period",
		"50":                                    "want units and a period",
		"50/day x2 from 2026-12-01 @UTC":        "never ends",
		"50/day +1 from 2026-12-01 @UTC":        "never ends",
		"1/day +1 max 101 from 2026-12-01 @UTC": "does not come to max 101 within 100 steps",
		"50/day max 90 from 2026-12-01 @UTC":    "without a rule",
		"50 60/day x2 max 90 from 2026-12-01 @UTC":             "a list of steps has no rule",
		"50/day x2 +3 max 90 from 2026-12-01 @UTC":             "more than a ramp may have of its kind",
		"50/day x1 max 90 from 2026-12-01 @UTC":                "no factor",
		"50/day x0.5 max 90 from 2026-12-01 @UTC":              "no factor",
		"50/day x1.0001 max 90 from 2026-12-01 @UTC":           "no factor",
		"50/day x max 90 from 2026-12-01 @UTC":                 "no factor",
		"50/day x1001 max 90 from 2026-12-01 @UTC":             "no factor",
		"50/day +0 max 90 from 2026-12-01 @UTC":                "no integer",
		"50/day x2 max 50 from 2026-12-01 @UTC":                "no more than the first step",
		"50/day x2 max -1 from 2026-12-01 @UTC":                "no integer",
		"50 50/day from 2026-12-01 @UTC":                       "no more than the one before",
		"100 50/day from 2026-12-01 @UTC":                      "no more than the one before",
		"0 50/day from 2026-12-01 @UTC":                        "no integer",
		"1 9007199254740993/day from 2026-12-01 @UTC":          "no integer",
		"/day from 2026-12-01 @UTC":                            "0 steps",
		"50 60/day @UTC":                                       "no date on which it begins",
		"50 60/day from @UTC":                                  "nothing follows",
		"50 60/day from 2026-02-30 @UTC":                       "no date",
		"50 60/day from 1969-12-31 @UTC":                       "no date",
		"50 60/day from 2026-12-01 held x @UTC":                "no date",
		"50 60/day every 2 from 2026-12-01 @UTC":               "not how long a step lasts",
		"50 60/day every 2w from 2026-12-01 @UTC":              "want 1d to 366d",
		"50 60/day every 0d from 2026-12-01 @UTC":              "not how long a step lasts",
		"50 60/day every 367d from 2026-12-01 @UTC":            "not how long a step lasts",
		"50 60/day often from 2026-12-01 @UTC":                 `"often" is none of`,
		"50 60/year from 2026-12-01 @UTC":                      "none of day, week, month",
		"50 60/day from 2026-12-01":                            "no time zone",
		"50 60/day from 2026-12-01 @Mars/Base":                 "no time zone",
		strings.Repeat("1 ", 50) + "/day from 2026-12-01 @UTC": "no more than",
	} {
		for _, err := range []error{errorOf(throttle.ParseLimit("ramp " + text)),
			errorOf(throttle.New("t", away(t), globalScope(throttle.Ramp(text)), nil))} {
			var bad *throttle.LimitError
			if text == "" && err != nil {
				continue // another limit without a window
			}
			if !errors.As(err, &bad) || !strings.Contains(bad.Reason, reason) {
				t.Errorf("ramp %s: got %v, want a *LimitError that says %s", text, err, reason)
			}
		}
	}
	good := throttle.Ramp("50 60/day from 2026-12-01 @UTC")
	for name, change := range map[string]func(*throttle.Limit){
		"units":          func(l *throttle.Limit) { l.Units = 50 },
		"a window":       func(l *throttle.Limit) { l.Window = time.Minute },
		"a calendar":     func(l *throttle.Limit) { l.Calendar.Zone = "Europe/Paris" },
		"other spelling": func(l *throttle.Limit) { l.Ramp = "50  60/day from 2026-12-01 @UTC" },
	} {
		limit := good
		change(&limit)
		var bad *throttle.LimitError
		if _, err := throttle.New("t", away(t), globalScope(limit), nil); !errors.As(err, &bad) {
			t.Errorf("%s: got %v, want a *LimitError", name, err)
		}
	}
	two := globalScope(good, throttle.PerCalendarDay(50, "UTC"))
	if _, err := throttle.New("t", away(t), two, nil); err == nil {
		t.Error("a scope has a ramp and the same quota")
	}
}

// errorOf returns the error of a call.
func errorOf[T any](_ T, err error) error { return err }

// TestRampIsHeldAndContinued: a held ramp keeps its step, a continued one goes on from there, an ended one is a quota.
func TestRampIsHeldAndContinued(t *testing.T) {
	t.Parallel()
	at := func(date int, hour int) time.Time { return time.Date(2026, 12, date, hour, 0, 0, 0, time.UTC) }
	ramp := throttle.Ramp("50 100 200/day+3h every 2d from 2026-12-01 @UTC")
	same := func(what string, got throttle.Limit, want string) {
		t.Helper()
		if got.String() != want {
			t.Errorf("%s: got %s, want %s", what, got, want)
		}
	}
	held := ramp.Held(at(3, 12)) // the first day of the second step
	same("held", held, "ramp 50 100 200/day+3h every 2d from 2026-12-01 held 2026-12-03 @UTC")
	same("held before the hour", ramp.Held(at(3, 2)),
		"ramp 50 100 200/day+3h every 2d from 2026-12-01 held 2026-12-02 @UTC")
	same("held twice", held.Held(at(9, 12)), held.String())
	same("continued", held.Continued(at(7, 12)), "ramp 50 100 200/day+3h every 2d from 2026-12-05 @UTC")
	same("continued in the same day", held.Continued(at(3, 13)), ramp.String())
	same("continued by a clock that is behind", held.Continued(at(1, 13)), ramp.String())
	same("continued, and not held", ramp.Continued(at(7, 12)), ramp.String())
	same("ended", held.Ended(), "200/day+3h@UTC")
	early := ramp.Held(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))
	same("held before it begins", early, "ramp 50 100 200/day+3h every 2d from 2026-12-01 held 2026-11-29 @UTC")
	same("and continued", early.Continued(at(2, 12)), "ramp 50 100 200/day+3h every 2d from 2026-12-04 @UTC")
	minute := throttle.PerMinute(3)
	if minute.Held(at(1, 0)) != minute || minute.Continued(at(1, 0)) != minute || minute.Ended() != minute {
		t.Error("a window is held, continued or ended")
	}
	for _, row := range []struct {
		limit throttle.Limit
		at    time.Time
		units int64
	}{
		{ramp, at(1, 2), 0}, {ramp, at(1, 3), 50}, {ramp, at(3, 2), 50}, {ramp, at(3, 3), 100}, {ramp, at(5, 3), 200},
		{ramp, at(30, 3), 200}, {held, at(3, 2), 50}, {held, at(30, 3), 100}, {early, at(30, 3), 0},
		{held.Continued(at(7, 12)), at(8, 12), 100}, {held.Continued(at(7, 12)), at(9, 12), 200}, {minute, at(1, 0), 3},
	} {
		if got := row.limit.UnitsAt(row.at); got != row.units {
			t.Errorf("%s at %s: got %d units, want %d", row.limit, row.at, got, row.units)
		}
	}
}

// TestRampBeyondTheKnownEdges: a job waits for a ramp that begins in two months, and a heavy one for a step in forty
// days, far beyond the edges that Redis knows at first.
func TestRampBeyondTheKnownEdges(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		pull := func(s *scripted, from time.Duration) (booked int) {
			for at := from; at < from+8*time.Second; at += time.Second {
				pulled, err := s.Pull(dawn.Add(at))
				if err != nil {
					t.Fatal(err)
				}
				booked += len(pulled.Booked)
			}
			return booked
		}
		lookahead := &throttle.Options{Lookahead: time.Second}
		later := 1440*time.Hour - 8*time.Hour // the midnight after 60 days
		from := dawn.Add(later).Format(time.DateOnly)
		s := newScripted(newThrottle(t, client, globalScope(throttle.Ramp("3 5/day from "+from+" @UTC")), lookahead))
		wants(t, s, 0, "light", 1, throttle.Waiting, 0)
		if n := pull(s, time.Second); n != 0 {
			t.Errorf("%d booked two months before a ramp begins", n)
		}
		if n := pull(s, later-3*time.Second); n != 1 {
			t.Errorf("%d booked when a ramp begins", n)
		}
		wants(t, s, later, "light", 1, throttle.Granted, later)

		s = newScripted(newThrottle(t, client, globalScope(throttle.Ramp("3 5/day every 40d from 2027-01-15 @UTC")),
			lookahead))
		wants(t, s, 0, "heavy", 4, throttle.Waiting, 0)
		wants(t, s, 0, "light", 1, throttle.Waiting, 0)
		if n := pull(s, time.Second); n != 1 {
			t.Errorf("%d booked beside a job that waits for a later step", n)
		}
		wants(t, s, 9*time.Second, "light", 1, throttle.Granted, 9*time.Second)
		step := 960*time.Hour - 8*time.Hour
		if r := wants(t, s, 10*time.Second, "heavy", 4, throttle.Booked, step); r.Hold == nil || r.Hold.Limit.Units != 3 {
			t.Errorf("held back by %+v", r.Hold)
		}
		wants(t, s, step, "heavy", 4, throttle.Granted, step)
	})
}

// TestForecastOverGrowingDays: jobs of several weights wait under a ramp, also for the step that takes them, and start
// when it was forecast. No day of the clock has more than its step.
func TestForecastOverGrowingDays(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	scopes := globalScope(throttle.PerHour(30), throttle.Ramp("4 8 16 32 60/day from 2027-01-16 @Europe/Paris"))
	scopes = append(scopes, throttle.Scope{Name: "tenant"})
	st := newStage(t, miniClient(t), scopes, throttle.Options{Lookahead: time.Second})
	var jobs []throttle.Job
	for i := range longtest.Of(75, 150) {
		weight := int64(1 + i%3)
		if i%40 == 25 {
			weight = 20
		}
		jobs = append(jobs, throttle.Job{ID: fmt.Sprint("j", i), Weight: weight, Keys: of(fmt.Sprint("t", i%4))})
	}
	began := st.now
	st.s.at(began)
	forecast, err := inspect.New(st.s.throttle).Forecast(context.Background(), jobs)
	if err != nil {
		t.Fatal(err)
	}
	for _, job := range jobs {
		st.arrive(job)
	}
	st.play(began.Add(30 * 24 * time.Hour))
	var starts []throttletest.Start
	for i, job := range jobs {
		start, started := st.starts[job.ID]
		if !started {
			t.Fatalf("job %s has not started", job.ID)
		}
		starts = append(starts, throttletest.Start{At: start, Weight: job.Weight, Keys: job.Keys})
		if off := start.Sub(forecast.Starts[i]).Abs(); off > 2*time.Second {
			t.Errorf("job %s started after %s, forecast was %s", job.ID, start.Sub(began), forecast.Starts[i].Sub(began))
		}
	}
	if days := forecast.Last.Sub(began); days < 5*day {
		t.Errorf("all have started within %s: not all steps were passed", days)
	}
	for _, over := range throttletest.Check(scopes, starts) {
		t.Error(over)
	}
}

// TestGuessOfARamp: the guess for a job far back in a lane counts each step's units.
func TestGuessOfARamp(t *testing.T) {
	t.Parallel()
	s := newScripted(newThrottle(t, miniClient(t), globalScope(throttle.Ramp("2 4 8/day+9h from 2027-01-15 @UTC")),
		&throttle.Options{Lookahead: time.Second}))
	for i, hours := range []int{1, 1, 25, 25, 25, 25, 49, 49, 49, 49, 49, 49, 49, 49, 73} {
		want := time.Duration(hours) * time.Hour
		if r := wants(t, s, 0, fmt.Sprint("b", i), 1, throttle.Waiting, 0); !r.Start.Equal(dawn.Add(want)) {
			t.Errorf("job %d: guessed %s, want %s", i, r.Start.Sub(dawn), want)
		}
	}
}

// TestExplainNamesTheStep: the explanation has the whole ramp, and the units in force.
func TestExplainNamesTheStep(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		ramp := throttle.Ramp("2 5 9/day from 2027-01-14 @Europe/Paris")
		s := nearly(t, client, globalScope(ramp), throttle.Options{})
		comes(t, s, 0, throttle.Job{ID: "a", Weight: 5}, throttle.Granted)
		reads(t, "b", explained(t, client, s, time.Second, throttle.Job{ID: "b", Weight: 1}), `
job b at 2027-01-15 08:00:01.000 UTC
  nothing is known of it: it never asked, was given back, or has started
  global                   ramp 2 5 9/day from 2027-01-14 @Europe/Paris        5 used        0 booked  room in 14h59m59s
    5 units in force
    begins anew on Sat 2027-01-16 00:00 CET (in 14h59m59s)
`)
	})
}
