package check

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Open is a time in which opening hours are open, the end excluded.
type Open struct{ From, Until time.Time }

// Openings returns when opening hours are open, for at least all that lies between two instants, by the clock of their
// zone. The text is that of a throttle.Limit.
func Openings(hours string, from, until time.Time) []Open {
	week, name, _ := strings.Cut(hours, " @")
	zone := zoneOf(name)
	var ranges []string
	var closed string
	for item := range strings.SplitSeq(week, ", ") {
		if dates, is := strings.CutPrefix(item, "except "); is {
			closed = dates
		} else {
			ranges = append(ranges, item)
		}
	}
	var all []Open
	last := dateOf(until, zone).AddDate(0, 0, 1)
	for date := dateOf(from, zone).AddDate(0, 0, -1); !date.After(last); date = date.AddDate(0, 0, 1) {
		for _, text := range ranges {
			all = append(all, openOn(date, text, closed, zone)...)
		}
	}
	return all
}

// openOn returns when a range of hours that begins on a date is open. A night is in two parts, since either date may be
// closed.
func openOn(date time.Time, text, closed string, zone *time.Location) []Open {
	days, times, _ := strings.Cut(text, " ")
	if !isDayOf(days, date) {
		return nil
	}
	opens, closes, _ := strings.Cut(times, "-")
	midnight := date.AddDate(0, 0, 1)
	from, until := date.Add(sinceMidnight(opens)), date.Add(sinceMidnight(closes))
	parts := []Open{{from, until}}
	if !until.After(from) {
		parts = []Open{{from, midnight}, {midnight, midnight.Add(sinceMidnight(closes))}}
	}
	var open []Open
	for _, part := range parts {
		if !strings.Contains(closed, part.From.Format(time.DateOnly)) {
			open = append(open, Open{instant(part.From, zone), instant(part.Until, zone)})
		}
	}
	return open
}

// fullestPeriod returns the most units of one period, added up to an event at which the quota is in force, how many
// periods hold more than the quota there, and when the fullest began. Events that come within the given duration after
// the beginning of a period are left out. The events must be in order.
func fullestPeriod(events []Event, quota throttle.Limit, shorter time.Duration, inForce func(at int64) bool) (
	worst int64, over int, fullest time.Time,
) {
	zone := zoneOf(quota.Calendar.Zone)
	sums, full := make(map[time.Time]int64), make(map[time.Time]bool)
	for _, e := range events {
		at := time.UnixMicro(e.At)
		begins, _ := began(quota.Calendar, zone, at)
		if at.Sub(begins) < shorter {
			continue
		}
		sums[begins] += e.Units
		if !inForce(e.At) {
			continue
		}
		if sums[begins] > worst {
			worst, fullest = sums[begins], begins
		}
		if sums[begins] > quota.Units && quota.Units != throttle.Unlimited {
			full[begins] = true
		}
	}
	return worst, len(full), fullest
}

// outside returns the units and the events that lie outside of hours while they are in force. An event lies inside if
// the hours were open at its instant or at most the given duration before. The events must be in order.
func outside(events []Event, hours string, shorter time.Duration, inForce func(at int64) bool) (
	units int64, count int,
) {
	if len(events) == 0 {
		return 0, 0
	}
	openings := Openings(hours, time.UnixMicro(events[0].At), time.UnixMicro(events[len(events)-1].At))
	for _, e := range events {
		if at := time.UnixMicro(e.At); inForce(e.At) && !isOpen(openings, at) && !isOpen(openings, at.Add(-shorter)) {
			units += e.Units
			count++
		}
	}
	return units, count
}

// untilPeriods returns how long it takes from an instant until a quota or ramp has begun anew so often that the last of
// some units may start, and the global hours are open.
func (l Law) untilPeriods(quota throttle.Limit, from, units int64) time.Duration {
	at, zone := time.UnixMicro(from), zoneOf(quota.Calendar.Zone)
	_, number := began(quota.Calendar, zone, at)
	first := number
	if quota.Ramp == "" {
		number += int((units - 1) / quota.Units)
	} else {
		for units -= stepAt(quota, at).Units; units > 0; number++ {
			units -= stepAt(quota, beginning(quota.Calendar, zone, at, number+1)).Units
		}
	}
	if number == first {
		return 0
	}
	return l.opening(beginning(quota.Calendar, zone, at, number)).From.Sub(at)
}

// untilWindows returns the least time from an instant until a number of windows are full: the first window costs no
// time, and neither does the first window of each opening of the global hours.
func (l Law) untilWindows(windows float64, window time.Duration, from int64) time.Duration {
	began := time.UnixMicro(from)
	least := time.Duration((windows - 1) * float64(window))
	for at := began; ; {
		open := l.opening(at)
		fit := float64(open.Until.Sub(open.From))/float64(window) + 1
		if windows <= fit {
			return max(least, open.From.Sub(began)+time.Duration(max(0, windows-1)*float64(window)))
		}
		windows, at = windows-fit, open.Until
	}
}

// furthest is how far ahead the next opening is looked for.
const furthest = 8 * 24 * time.Hour

// opening returns what is left from an instant on of the opening of the global hours that it lies in, or the next one.
// Without hours, and where they stay closed for longer than a week, it is open for a century.
func (l Law) opening(from time.Time) Open {
	next := Open{from, from.AddDate(100, 0, 0)}
	hours := slices.IndexFunc(l.Scopes, func(s throttle.Scope) bool { return s.Name == throttle.Global })
	if hours < 0 {
		return next
	}
	for _, limit := range l.Scopes[hours].Limits {
		if limit.Hours == "" {
			continue
		}
		openings := slices.DeleteFunc(Openings(limit.Hours, from, from.Add(furthest)),
			func(o Open) bool { return !o.Until.After(from) || !o.Until.After(o.From) })
		if len(openings) == 0 {
			continue
		}
		next = slices.MinFunc(openings, func(a, b Open) int { return a.From.Compare(b.From) })
		if next.From.Before(from) {
			next.From = from
		}
	}
	return next
}

// isDayOf reports whether a date is one of some days, such as Mon or Sat-Mon.
func isDayOf(days string, date time.Time) bool {
	first, last, several := strings.Cut(days, "-")
	for day := date; ; day = day.AddDate(0, 0, -1) { // back to the first
		name := day.Format("Mon")
		switch {
		case name == first:
			return day.Equal(date) || first != last
		case !several, name == last && !day.Equal(date):
			return false
		}
	}
}

// sinceMidnight returns the time from midnight to a time of day such as 09:30.
func sinceMidnight(text string) time.Duration {
	hours, minutes, _ := strings.Cut(text, ":")
	h, _ := strconv.Atoi(hours) // the throttle has read it before
	m, _ := strconv.Atoi(minutes)
	return time.Duration(h)*time.Hour + time.Duration(m)*time.Minute
}

// isOpen reports whether an instant lies in an opening.
func isOpen(openings []Open, at time.Time) bool {
	return slices.ContainsFunc(openings, func(o Open) bool { return !at.Before(o.From) && at.Before(o.Until) })
}

// began returns when the period of a quota began that an instant lies in, and which one it is, counted from the day,
// week or month of that instant's date.
func began(of throttle.Calendar, zone *time.Location, at time.Time) (begins time.Time, number int) {
	for number = 1; ; number-- {
		if begins = beginning(of, zone, at, number); !begins.After(at) {
			return begins, number
		}
	}
}

// Edges returns when periods of a quota begin between two instants, the second included.
func Edges(of throttle.Calendar, from, until time.Time) []time.Time {
	zone := zoneOf(of.Zone)
	_, number := began(of, zone, from)
	var edges []time.Time
	for {
		number++
		edge := beginning(of, zone, from, number)
		if edge.After(until) {
			return edges
		}
		edges = append(edges, edge)
	}
}

// beginning returns when the period begins that is some periods after the one which the date of an instant is named by.
func beginning(of throttle.Calendar, zone *time.Location, at time.Time, after int) time.Time {
	date := dateOf(at, zone)
	switch of.Unit {
	case throttle.Week:
		sinceMonday := (int(date.Weekday()) + 6) % 7
		date = date.AddDate(0, 0, 7*after-sinceMonday+of.Days)
	case throttle.Month:
		first := time.Date(date.Year(), date.Month()+time.Month(after), 1, 0, 0, 0, 0, time.UTC)
		last := first.AddDate(0, 1, -1)
		date = first.AddDate(0, 0, min(of.Days, last.Day()-1))
	default:
		date = date.AddDate(0, 0, after)
	}
	return instant(date.Add(time.Duration(of.Hours)*time.Hour), zone)
}

// dateOf returns the date of an instant in a zone, as midnight in UTC.
func dateOf(at time.Time, zone *time.Location) time.Time {
	year, month, day := at.In(zone).Date()
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// instant returns the first instant at which the clock of a zone shows a time, or a later one where a change of the
// clock leaves that out. The time is given as that at which a clock in UTC shows it.
func instant(shown time.Time, zone *time.Location) time.Time {
	year, month, day := shown.Date()
	hour, minute, second := shown.Clock()
	at := time.Date(year, month, day, hour, minute, second, 0, zone)
	begins, ends := at.ZoneBounds()
	_, offset := at.Zone()
	switch local := at.Add(time.Duration(offset) * time.Second).UTC(); {
	case local.After(shown): // left out, and at lies behind the change
		return begins
	case local.Before(shown): // left out, and at lies before it
		return ends
	case begins.IsZero():
		return at
	}
	_, before := begins.Add(-time.Second).Zone()
	if earlier := at.Add(time.Duration(offset-before) * time.Second); earlier.Before(begins) && earlier.Before(at) {
		return earlier // it comes twice
	}
	return at
}

// zoneOf returns a zone that a throttle knows.
func zoneOf(name string) *time.Location {
	zone, err := time.LoadLocation(name)
	if err != nil {
		return time.UTC
	}
	return zone
}
