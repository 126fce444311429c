package calendar_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/internal/calendar"
	"github.com/asynq-throttle/asynq-throttle/internal/wallclock"
)

// TestRampsAreThoseOfTheClock: at each instant, a ramp has the units that follow from the days of the zone's clock. A
// ramp is read as it was written, and goes on where it was held.
func TestRampsAreThoseOfTheClock(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		units := []string{"day", "day+3h", "week", "week+6d+1h", "month", "month+30d", "month+14d+23h"}
		text := "1 2 5 9 100/" + rapid.SampledFrom(units).Draw(t, "of") +
			rapid.SampledFrom([]string{"", " every 2", " every 7"}).Draw(t, "every")
		if text[len(text)-1] == '2' || text[len(text)-1] == '7' {
			text += map[byte]string{'d': "d", 'w': "w", 'm': "mo"}[text[len("1 2 5 9 100/")]]
		}
		date := func(what string) string {
			day := time.Date(2026, 1, 1+rapid.IntRange(0, 900).Draw(t, what), 0, 0, 0, 0, time.UTC)
			return " " + what + " " + day.Format(time.DateOnly)
		}
		text += date("from")
		if rapid.Bool().Draw(t, "is held") {
			text += date("held")
		}
		text += " @" + rapid.SampledFrom([]string{"UTC", "Europe/Paris", "America/St_Johns", "Pacific/Apia"}).Draw(t, "zone")
		r, err := calendar.ParseRamp(text)
		if err != nil {
			t.Fatal(err)
		}
		again, err := calendar.ParseRamp(r.String())
		if err != nil || again.String() != r.String() {
			t.Fatalf("%s is written as %s, and that as %s, %v", text, r, again, err)
		}
		for _, of := range []*calendar.Ramp{r, r.HeldAt(instant(t, "held")), r.ContinuedAt(instant(t, "continued"))} {
			at := instant(t, "at")
			if got, want := of.Of(of.Period(at)), wallclock.UnitsAt(of.String(), at); got != want {
				t.Fatalf("%s at %s: %d units, the clock says %d", of, at, got, want)
			}
		}
		at, later := instant(t, "at"), time.Duration(rapid.IntRange(0, 900).Draw(t, "later"))*time.Hour
		r.Held = 0
		held := r.HeldAt(at)
		if was, is := r.Of(r.Period(at)), held.Of(r.Period(at.Add(later))); was != is {
			t.Fatalf("%s had %d units when it was held, and then %d", held, was, is)
		}
		if goesOn := held.ContinuedAt(at.Add(later)); goesOn.Of(r.Period(at.Add(later))) != r.Of(r.Period(at)) {
			t.Fatalf("%s went on as %s", held, goesOn)
		}
	})
}

// instant draws an instant within some years.
func instant(t *rapid.T, what string) time.Time {
	return time.Unix(1_767_225_600+rapid.Int64Range(0, 1200*86_400).Draw(t, what), 0)
}

// TestTakes: Takes finds the same period as a search that tries one period after the other.
func TestTakes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := calendar.Steps{Units: []int64{2, 3, 10, 50}, First: 100, Every: rapid.Int64Range(1, 4).Draw(t, "every"),
			Held: rapid.SampledFrom([]int64{0, 90, 100, 103, 110, 200}).Draw(t, "held")}
		units, from := rapid.Int64Range(0, 51).Draw(t, "units"), rapid.Int64Range(80, 140).Draw(t, "from")
		got, takes := s.Takes(units, from)
		for period := from; period < 300; period++ {
			if s.Of(period) >= units {
				if !takes || got != period {
					t.Fatalf("%+v, %d units from %d: got %d, %t; want %d", s, units, from, got, takes, period)
				}
				return
			}
		}
		if takes {
			t.Fatalf("%+v, %d units from %d: got %d; want none", s, units, from, got)
		}
	})
}
