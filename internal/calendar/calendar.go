// Package calendar computes when the periods of a calendar begin in a time zone: days, weeks and months, and when
// opening hours begin and end. A ramp gives the periods of a calendar growing units.
//
// A period begins at its edge, and ends at the next. Periods are numbered from the year 1 on, so that all processes
// number them alike. An hour that a change of the clock leaves out stands for the first instant after it; of an hour
// that comes twice, the first counts. A day that a month does not have stands for its last.
package calendar

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // where the system has no zones
)

// The units of a calendar, as texts.
const (
	Day   = "day"
	Week  = "week"
	Month = "month"
)

// The most that an edge may come after the beginning of a day, or of a week or a month.
const (
	MaxHours       = 23
	MaxDaysOfWeek  = 6
	MaxDaysOfMonth = 30
)

// Calendar says when periods begin: some days and hours after the beginning of each day, week (on Monday) or month.
type Calendar struct {
	Unit        string
	Days, Hours int
	Zone        string
	location    *time.Location
}

// zoneName is a name of the zone database. "Local" is another zone on every machine.
var zoneName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$`)

// New returns a calendar of a zone by its name in the zone database, such as UTC or Europe/Paris.
func New(unit string, days, hours int, zone string) (*Calendar, error) {
	mostDays, isUnit := map[string]int{Day: 0, Week: MaxDaysOfWeek, Month: MaxDaysOfMonth}[unit]
	switch {
	case !isUnit:
		return nil, fmt.Errorf("%q is none of day, week, month", unit)
	case days < 0 || days > mostDays:
		return nil, fmt.Errorf("%d days after the beginning of a %s are not between 0 and %d", days, unit, mostDays)
	case hours < 0 || hours > MaxHours:
		return nil, fmt.Errorf("%d hours after the beginning of a day are not between 0 and %d", hours, MaxHours)
	case zone == "":
		return nil, fmt.Errorf("no time zone: want a name such as UTC or Europe/Paris, as in 5000/%s@Europe/Paris", unit)
	}
	location, err := locationOf(zone)
	if err != nil {
		return nil, err
	}
	return &Calendar{Unit: unit, Days: days, Hours: hours, Zone: zone, location: location}, nil
}

func locationOf(zone string) (*time.Location, error) {
	location, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" || !zoneName.MatchString(zone) {
		return nil, fmt.Errorf("%q is no time zone: want a name such as UTC or Europe/Paris", zone)
	}
	return location, nil
}

// IsUnit reports whether a text is a unit of a calendar, with or without what comes after the beginning.
func IsUnit(text string) bool {
	unit, _, _ := strings.Cut(text, "+")
	return unit == Day || unit == Week || unit == Month
}

// String is the text that Parse reads: "day@UTC", "month+14d+3h@Europe/Paris".
func (c *Calendar) String() string { return Text(c.Unit, c.Days, c.Hours, c.Zone) }

// Text is the text of a calendar, also of one that New refuses.
func Text(unit string, days, hours int, zone string) string {
	text := unit
	if days != 0 {
		text += "+" + strconv.Itoa(days) + "d"
	}
	if hours != 0 {
		text += "+" + strconv.Itoa(hours) + "h"
	}
	return text + "@" + zone
}

// Parse reads a unit, optionally how many days and hours after its beginning a period begins, and a zone.
func Parse(text string) (*Calendar, error) {
	begins, zone, _ := strings.Cut(text, "@")
	parts := strings.Split(begins, "+")
	of := [2]int{}
	next := 0
	for _, part := range parts[1:] {
		number, letter := part, ""
		if part != "" {
			number, letter = part[:len(part)-1], part[len(part)-1:]
		}
		n, err := strconv.ParseUint(number, 10, 16)
		which := strings.Index("dh", letter)
		if err != nil || letter == "" || which < next {
			return nil, fmt.Errorf("%q is not when a period begins: want such as %s+3h, week+6d or month+14d+3h", begins, Day)
		}
		of[which], next = int(n), which+1
	}
	return New(parts[0], of[0], of[1], zone)
}

var known Memory[Calendar]

// Of is Parse with a memory.
func Of(text string) (*Calendar, error) { return known.Read(text, Parse) }

// Length is about how long a period is: a day of 24 hours, a week of seven of them, a month of 31.
func (c *Calendar) Length() time.Duration {
	return map[string]time.Duration{Day: 24 * time.Hour, Week: 7 * 24 * time.Hour, Month: 31 * 24 * time.Hour}[c.Unit]
}

const (
	daySeconds = 24 * 60 * 60
	unixDays   = 719_162 // from the first day of the year 1, a Monday, to that of 1970
)

// Edge returns when a period begins.
func (c *Calendar) Edge(period int64) time.Time {
	return first((c.day(period)-unixDays)*daySeconds+int64(c.Hours)*60*60, c.location)
}

// day returns the day on which a period begins, as days counts it.
func (c *Calendar) day(period int64) int64 {
	switch c.Unit {
	case Week:
		return 7*period + int64(c.Days)
	case Month:
		year, month := int(period/12), time.Month(period%12)+1
		first := days(time.Date(year, month, 1, 0, 0, 0, 0, time.UTC))
		last := days(time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC)) - 1
		return min(first+int64(c.Days), last)
	}
	return period + int64(c.Days)
}

// Through returns the period.
func (c *Calendar) Through(period int64) int64 { return period }

// days is how many days of the year 1 and later are before a day in UTC.
func days(midnight time.Time) int64 { return midnight.Unix()/daySeconds + unixDays }

// first returns the first instant at which the clock of the zone shows a time or a later one. wall is the Unix time of
// an instant in UTC that reads the same.
func first(wall int64, location *time.Location) time.Time {
	at := time.Unix(wall-2*daySeconds, 0).In(location)
	for {
		_, offset := at.Zone()
		begins, ends := at.ZoneBounds()
		instant := time.Unix(wall-int64(offset), 0).In(location)
		if instant.Before(begins) {
			instant = begins
		}
		if ends.IsZero() || instant.Before(ends) {
			return instant
		}
		at = ends
	}
}

// Period returns the period of an instant: the last one that has begun.
func (c *Calendar) Period(at time.Time) int64 {
	local := at.In(c.location)
	year, month, day := local.Date()
	period := days(time.Date(year, month, day, 0, 0, 0, 0, time.UTC))
	switch c.Unit {
	case Week:
		period /= 7
	case Month:
		period = int64(year)*12 + int64(month) - 1
	}
	for c.Edge(period).After(at) {
		period--
	}
	for !c.Edge(period + 1).After(at) {
		period++
	}
	return period
}
