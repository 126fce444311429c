// Package wallclock finds when a period of a calendar began by watching the clock of its zone: slowly, and without
// package calendar, so that tests can hold the one against the other.
package wallclock

import "time"

// The steps in which the clock is watched: coarse ones, then fine ones before the first that shows the time.
const (
	coarse = 15 * time.Minute
	fine   = time.Second
)

// mostAhead is more than any clock is ahead of UTC, together with a day that a zone leaves out.
const mostAhead = 40 * time.Hour

// Began returns when the period of an instant began: a day, week or month, some days and hours after its beginning.
func Began(unit string, days, hours int, zone *time.Location, at time.Time) time.Time {
	year, month, day := at.In(zone).Date()
	date := func(ago int) time.Time {
		switch unit {
		case "week":
			monday := time.Date(year, month, day-7*ago, 0, 0, 0, 0, time.UTC)
			for monday.Weekday() != time.Monday {
				monday = monday.AddDate(0, 0, -1)
			}
			return monday.AddDate(0, 0, days)
		case "month":
			of := time.Date(year, month-time.Month(ago), 1+days, 0, 0, 0, 0, time.UTC)
			for of.Month() != time.Date(year, month-time.Month(ago), 1, 0, 0, 0, 0, time.UTC).Month() {
				of = of.AddDate(0, 0, -1) // the month has no such day
			}
			return of
		}
		return time.Date(year, month, day-ago, 0, 0, 0, 0, time.UTC)
	}
	for ago := -1; ; ago++ {
		if begins := first(date(ago).Add(time.Duration(hours)*time.Hour), zone); !begins.After(at) {
			return begins
		}
	}
}

// first returns the first instant at which the clock of a zone shows a time or a later one. The time is given as that
// at which a clock in UTC shows it.
func first(shown time.Time, zone *time.Location) time.Time {
	shows := func(at time.Time) bool {
		local := at.In(zone)
		year, month, day := local.Date()
		hour, minute, second := local.Clock()
		return !time.Date(year, month, day, hour, minute, second, 0, time.UTC).Before(shown)
	}
	at := shown.Add(-mostAhead)
	for !shows(at) {
		at = at.Add(coarse)
	}
	for at = at.Add(-coarse); !shows(at); {
		at = at.Add(fine)
	}
	return at
}
