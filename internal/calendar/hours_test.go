package calendar_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/internal/calendar"
	"github.com/asynq-throttle/asynq-throttle/internal/wallclock"
)

// TestHoursOpenAndClose has the next opening and the next closing from instants on, by hand.
func TestHoursOpenAndClose(t *testing.T) {
	t.Parallel()
	const office, night, paris = "Mon-Fri 09:00-17:00, Sat 10:00-12:00, except 2026-12-25 @Europe/Paris",
		"Fri 22:00-06:00, except 2026-12-25 @UTC", "01:30-02:30, 02:40-04:00 @Europe/Paris"
	for _, test := range []struct{ hours, at, opens, closes string }{
		{office, "2026-11-25T07:59:59Z", "2026-11-25T08:00:00Z", "2026-11-25T07:59:59Z"},
		{office, "2026-11-25T08:00:00Z", "2026-11-25T08:00:00Z", "2026-11-25T16:00:00Z"},
		{office, "2026-11-25T15:59:59.999999Z", "2026-11-25T15:59:59.999999Z", "2026-11-25T16:00:00Z"},
		{office, "2026-11-25T16:00:00Z", "2026-11-26T08:00:00Z", "2026-11-25T16:00:00Z"},
		{office, "2026-11-28T11:00:00Z", "2026-11-30T08:00:00Z", "2026-11-28T11:00:00Z"}, // over a weekend
		{office, "2026-12-24T16:00:00Z", "2026-12-26T09:00:00Z", "2026-12-24T16:00:00Z"}, // over Christmas
		// A night goes on after midnight, and is of two days: a closed date has its own part alone.
		{night, "2026-11-27T21:59:00Z", "2026-11-27T22:00:00Z", "2026-11-27T21:59:00Z"},
		{night, "2026-11-27T22:00:00Z", "2026-11-27T22:00:00Z", "2026-11-28T06:00:00Z"},
		{night, "2026-12-25T22:00:00Z", "2026-12-26T00:00:00Z", "2026-12-25T22:00:00Z"},
		{night, "2026-12-26T00:00:00Z", "2026-12-26T00:00:00Z", "2026-12-26T06:00:00Z"},
		// 2 o'clock does not come: 02:30 and 02:40 are 03:00 in summer time.
		{paris, "2026-03-29T00:29:00Z", "2026-03-29T00:30:00Z", "2026-03-29T00:29:00Z"},
		{paris, "2026-03-29T00:30:00Z", "2026-03-29T00:30:00Z", "2026-03-29T02:00:00Z"},
		// 02:30 comes twice, and the first one counts.
		{paris, "2026-10-24T23:30:00Z", "2026-10-24T23:30:00Z", "2026-10-25T00:30:00Z"},
		{paris, "2026-10-25T00:30:00Z", "2026-10-25T00:40:00Z", "2026-10-25T00:30:00Z"},
		{paris, "2026-10-25T01:35:00Z", "2026-10-25T01:35:00Z", "2026-10-25T03:00:00Z"},
		{"09:30-17:00 @Asia/Kolkata", "2026-11-25T12:00:00Z", "2026-11-26T04:00:00Z", "2026-11-25T12:00:00Z"},
	} {
		at, err := time.Parse(time.RFC3339, test.at)
		if err != nil {
			t.Fatal(err)
		}
		h, err := calendar.ParseHours(test.hours)
		if err != nil {
			t.Fatal(err)
		}
		opens, closes := h.Opens(at).UTC().Format(time.RFC3339Nano), h.Closes(at).UTC().Format(time.RFC3339Nano)
		if opens != test.opens || closes != test.closes {
			t.Errorf("%s at %s: opens %s and closes %s, want %s and %s", test.hours, test.at, opens, closes, test.opens,
				test.closes)
		}
	}
	always, err := calendar.ParseHours("00:00-24:00 @Europe/Paris")
	if at := time.Unix(1_795_219_498, 0); err != nil || !always.Closes(at).IsZero() || !always.Opens(at).Equal(at) {
		t.Errorf("%v: hours that are never closed close at %s", err, always.Closes(at))
	}
}

// TestHoursAreThoseOfTheClock: at each instant hours are open when the clock of the zone shows it, edges never go back,
// and an open period follows until which edges are kept.
func TestHoursAreThoseOfTheClock(t *testing.T) {
	t.Parallel()
	texts := []string{"Mon-Fri 09:00-17:00", "Fri-Mon 22:00-06:00", "00:30-01:30, 01:45-02:15, 02:30-24:00",
		"Sun 00:00-03:00, Sat 02:00-02:30, except 2027-03-28 2027-11-07", "Mon-Sun 23:59-00:01",
		"00:00-24:00, except 2027-01-01"}
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom(zones).Draw(t, "zone")
		h, err := calendar.ParseHours(rapid.SampledFrom(texts).Draw(t, "hours") + " @" + zone)
		if err != nil {
			t.Fatal(err)
		}
		location, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Unix(rapid.Int64Range(1_200_000_000, 1_900_000_000).Draw(t, "at"), 0)
		if _, change := at.In(location).ZoneBounds(); !change.IsZero() && rapid.Bool().Draw(t, "near a change") {
			at = change.Add(time.Duration(rapid.IntRange(-12, 12).Draw(t, "quarters")) * 15 * time.Minute)
		}
		period := h.Period(at)
		if h.Edge(period).After(at) || !h.Edge(period+1).After(at) || h.Edge(period-1).After(h.Edge(period)) {
			t.Fatalf("%s: period %d from %s to %s has %s", h, period, h.Edge(period), h.Edge(period+1), at)
		}
		opens := h.Opens(at)
		if shown := wallclock.IsOpen(h.String(), at); shown != opens.Equal(at) {
			t.Fatalf("%s at %s: opens at %s; by the clock on the wall it is open: %t", h, at.UTC(), opens.UTC(), shown)
		}
		if !wallclock.IsOpen(h.String(), opens) || opens.After(at) && wallclock.IsOpen(h.String(), opens.Add(-1)) {
			t.Fatalf("%s at %s opens at %s, which is not so by the clock on the wall", h, at, opens)
		}
		last := h.Through(period)
		if last%2 == 0 || !h.Edge(last-1).Before(h.Edge(last)) || last < period {
			t.Fatalf("%s: from period %d edges are kept up to %d, which follows no open one", h, period, last)
		}
	})
}

func TestParseHours(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		" Mon-Fri  09:00-17:00,Sat 10:00-12:00@Europe/Paris ": "Mon-Fri 09:00-17:00, Sat 10:00-12:00 @Europe/Paris",
		"22:00-06:00 @UTC": "Mon-Sun 22:00-06:00 @UTC",
		"Sat-Mon 00:00-24:00, except 2026-12-25 @UTC": "Sat-Mon 00:00-24:00, except 2026-12-25 @UTC",
		"Mon 09:00-12:00, Mon 11:00-17:00 @Etc/GMT+8": "Mon 09:00-12:00, Mon 11:00-17:00 @Etc/GMT+8",
	} {
		if h, err := calendar.ParseHours(text); err != nil || h.String() != want {
			t.Errorf("%q is written as %q, %v; want %q", text, h, err, want)
		}
	}
	for text, want := range map[string]string{
		"Mon-Fri 09:00-17:00": "no time zone", "Mon 09:00-17:00 @": "no time zone",
		"Mon 09:00-17:00 @Mars/Base": "is no time zone",
		"Mon 09:00-17:00 @Local":     "is no time zone", "@UTC": "is not hours", "except 2026-12-25 @UTC": "no hours",
		"Mon 09:00-25:00 @UTC": "is no range of hours", "Mon 09:60-17:00 @UTC": "is no range of hours",
		"Mon 24:00-02:00 @UTC": "is no range of hours", "Mon 9:00-17:00 @UTC": "is no range of hours",
		"Mon 09:00 @UTC": "is no range of hours", "Mon 09:00-09:00 @UTC": "is never open",
		"Mo 09:00-17:00 @UTC": "is no day of the week", "Mon-Fr 09:00-17:00 @UTC": "is no day of the week",
		"Mon Tue 09:00-17:00 @UTC": "is not hours", "Mon 09:00-17:00, @UTC": "is not hours",
		"Mon 09:00-17:00, except @UTC": "no date after", "Mon 09:00-17:00, except 2026-02-30 @UTC": "is no date",
	} {
		if h, err := calendar.ParseHours(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want %q", text, h, err, want)
		}
	}
}
