package calendar_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/internal/calendar"
	"github.com/asynq-throttle/asynq-throttle/internal/wallclock"
)

func mustParse(t *testing.T, text string) *calendar.Calendar {
	t.Helper()
	c, err := calendar.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestEdges has the edges around instants, by hand.
func TestEdges(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ calendar, at, begins, ends string }{
		{"day@UTC", "2026-11-25T00:00:00Z", "2026-11-25T00:00:00Z", "2026-11-26T00:00:00Z"},
		{"day@UTC", "2026-11-25T23:59:59.999999Z", "2026-11-25T00:00:00Z", "2026-11-26T00:00:00Z"},
		{"day@America/Los_Angeles", "2026-11-25T07:59:59Z", "2026-11-24T08:00:00Z", "2026-11-25T08:00:00Z"},
		// The night in which the clock goes from 2 to 3 o'clock, and that in which it goes from 3 to 2.
		{"day@Europe/Paris", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"day@Europe/Paris", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"day+2h@Europe/Paris", "2026-03-29T12:00:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"},
		{"day+2h@Europe/Paris", "2026-10-25T12:00:00Z", "2026-10-25T00:00:00Z", "2026-10-26T01:00:00Z"},
		{"day+3h@Europe/Paris", "2026-03-29T00:59:59Z", "2026-03-28T02:00:00Z", "2026-03-29T01:00:00Z"},
		// Midnights that do not exist, and that come twice.
		{"day@America/Sao_Paulo", "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},
		{"day@America/Sao_Paulo", "2018-02-17T12:00:00Z", "2018-02-17T02:00:00Z", "2018-02-18T03:00:00Z"},
		{"day@America/Havana", "2026-11-01T12:00:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
		{"day@Asia/Beirut", "2026-03-29T12:00:00Z", "2026-03-28T22:00:00Z", "2026-03-29T21:00:00Z"},
		// Half hours, also of the change itself.
		{"day@Asia/Kolkata", "2026-11-25T18:29:59Z", "2026-11-24T18:30:00Z", "2026-11-25T18:30:00Z"},
		{"day@Australia/Lord_Howe", "2026-04-05T00:00:00Z", "2026-04-04T13:00:00Z", "2026-04-05T13:30:00Z"},
		{"day@Asia/Kathmandu", "2026-11-25T18:15:00Z", "2026-11-25T18:15:00Z", "2026-11-26T18:15:00Z"},
		// A day that a zone left out: the 30th begins when the 31st does, and is empty.
		{"day@Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{"day@Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{"week@UTC", "2026-11-25T12:00:00Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"},
		{"week+6d@UTC", "2026-11-25T12:00:00Z", "2026-11-22T00:00:00Z", "2026-11-29T00:00:00Z"},
		{"week+6d+22h@UTC", "2026-11-22T21:59:59Z", "2026-11-15T22:00:00Z", "2026-11-22T22:00:00Z"},
		{"month@UTC", "2026-12-31T23:59:59Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"month@UTC", "2028-02-29T23:59:59Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"},
		{"month+14d@Europe/Paris", "2026-11-14T22:59:59Z", "2026-10-14T22:00:00Z", "2026-11-14T23:00:00Z"},
		// The 31st, which is the last day of a shorter month.
		{"month+30d@UTC", "2026-02-27T23:59:59Z", "2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z"},
		{"month+30d@UTC", "2028-02-28T23:59:59Z", "2028-01-31T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"month+30d+23h@UTC", "2026-04-30T23:00:00Z", "2026-04-30T23:00:00Z", "2026-05-31T23:00:00Z"},
	} {
		at, err := time.Parse(time.RFC3339, test.at)
		if err != nil {
			t.Fatal(err)
		}
		c := mustParse(t, test.calendar)
		period := c.Period(at)
		begins, ends := c.Edge(period).UTC().Format(time.RFC3339), c.Edge(period+1).UTC().Format(time.RFC3339)
		if begins != test.begins || ends != test.ends {
			t.Errorf("%s at %s: from %s to %s, want from %s to %s", test.calendar, test.at, begins, ends, test.begins,
				test.ends)
		}
	}
}

var zones = []string{
	"UTC", "America/Los_Angeles", "Europe/Paris", "Asia/Kolkata", "Australia/Lord_Howe", "America/Sao_Paulo",
	"Pacific/Apia", "Asia/Kathmandu", "America/Havana", "Africa/Casablanca", "America/St_Johns", "Antarctica/Troll",
}

// TestPeriodsAreInOrder: of each instant, the period is the last that has begun, edges never go back, and an edge is
// the first instant at which the clock of the zone shows the time, or a later one.
func TestPeriodsAreInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]string{calendar.Day, calendar.Week, calendar.Month}).Draw(t, "unit")
		most := map[string]int{calendar.Day: 0, calendar.Week: 6, calendar.Month: 30}[unit]
		c, err := calendar.New(unit, rapid.IntRange(0, most).Draw(t, "days"), rapid.IntRange(0, 23).Draw(t, "hours"),
			rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		at := time.UnixMicro(rapid.Int64Range(0, 4_000_000_000_000_000).Draw(t, "at"))
		period := c.Period(at)
		begins, ends := c.Edge(period), c.Edge(period+1)
		if begins.After(at) || !ends.After(at) || c.Edge(period-1).After(begins) {
			t.Fatalf("%s: period %d from %s to %s has %s", c, period, begins, ends, at)
		}
		zone, err := time.LoadLocation(c.Zone)
		if err != nil {
			t.Fatal(err)
		}
		if shown := wallclock.Began(c.Unit, c.Days, c.Hours, zone, at); !shown.Equal(begins) {
			t.Fatalf("%s: the period of %s begins at %s, by the clock on the wall at %s", c, at, begins, shown)
		}
	})
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"day@UTC", "day+23h@Etc/GMT+8", "week+6d@America/Argentina/Buenos_Aires",
		"month+30d+1h@Asia/Kolkata"} {
		if got := mustParse(t, text).String(); got != text {
			t.Errorf("%q is written as %q", text, got)
		}
	}
	for text, want := range map[string]string{
		"day": "no time zone", "day@": "no time zone", "day@Local": "is no time zone", "day@Mars/Base": "is no time zone",
		"day@../x": "is no time zone", "day+1d@UTC": "not between 0 and 0", "week+7d@UTC": "not between 0 and 6",
		"month+31d@UTC": "not between 0 and 30", "day+24h@UTC": "not between 0 and 23", "year@UTC": "is none of day",
		"day+@UTC": "is not when a period begins", "day+3m@UTC": "is not when a period begins",
		"month+3h+1d@UTC": "is not when a period begins", "day+-1h@UTC": "is not when a period begins",
		"day+3h+3h@UTC": "is not when a period begins",
	} {
		if c, err := calendar.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want %q", text, c, err, want)
		}
	}
}
