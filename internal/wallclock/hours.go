package wallclock

import (
	"strings"
	"time"
)

// IsOpen reports whether an instant lies in opening hours: in a range of a day that is not closed. A range is open from
// the first instant at which the clock shows its beginning, or a later time, until the first at which the clock shows
// its end. The text is that of a throttle's hours, which package calendar has checked.
func IsOpen(hours string, at time.Time) bool {
	week, name, _ := strings.Cut(hours, " @")
	zone, err := time.LoadLocation(name)
	if err != nil {
		panic(err)
	}
	ranges, closed, _ := strings.Cut(week, ", except ")
	for ago := -1; ago <= 2; ago++ {
		year, month, day := at.In(zone).Date()
		date := time.Date(year, month, day-ago, 0, 0, 0, 0, time.UTC)
		for text := range strings.SplitSeq(ranges, ", ") {
			if isOpenOn(date, text, closed, zone, at) {
				return true
			}
		}
	}
	return false
}

// isOpenOn reports whether an instant lies in the range of hours that begins on a date.
func isOpenOn(date time.Time, text, closed string, zone *time.Location, at time.Time) bool {
	days, times, _ := strings.Cut(text, " ")
	from, to, _ := strings.Cut(times, "-")
	if !strings.Contains(ofWeek(days), date.Format("Mon")) {
		return false
	}
	midnight := date.AddDate(0, 0, 1)
	begins, ends := date.Add(duration(from)), date.Add(duration(to))
	if !ends.After(begins) {
		ends = midnight.Add(duration(to))
	}
	lies := func(on, from, to time.Time) bool {
		return from.Before(to) && !strings.Contains(closed, on.Format(time.DateOnly)) &&
			!at.Before(first(from, zone)) && at.Before(first(to, zone))
	}
	if !ends.After(midnight) {
		return lies(date, begins, ends)
	}
	return lies(date, begins, midnight) || lies(midnight, midnight, ends)
}

// ofWeek returns the names of days from the first to the last, both of them included.
func ofWeek(days string) string {
	const weeks = "Mon Tue Wed Thu Fri Sat Sun Mon Tue Wed Thu Fri Sat Sun"
	from, to, several := strings.Cut(days, "-")
	if !several {
		to = from
	}
	begins := strings.Index(weeks, from)
	return weeks[begins : begins+strings.Index(weeks[begins:], to)+len(to)]
}

func duration(text string) time.Duration {
	hours, minutes, _ := strings.Cut(text, ":")
	d, err := time.ParseDuration(hours + "h" + minutes + "m")
	if err != nil {
		panic(err)
	}
	return d
}
