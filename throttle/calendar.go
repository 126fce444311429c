package throttle

import (
	"math"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/calendar"
)

// The units of a Calendar.
const (
	Day   = calendar.Day
	Week  = calendar.Week // begins on Monday
	Month = calendar.Month
)

// Calendar says when the periods of a quota begin: each day, week or month in a time zone, or some days and hours
// after its beginning. The zero Calendar is none.
//
// A time that a change of the clock leaves out stands for the first instant after it; of a time that comes twice,
// the first counts. In a month that has no such day, the period begins on the last day.
type Calendar struct {
	// Unit is Day, Week or Month.
	Unit string
	// Days is how many days after the beginning of a week or a month a period begins: 0 to 6 of a week,
	// 6 for Sunday; 0 to 30 of a month, 14 for the 15th. A Day has none.
	Days int
	// Hours is the hour at which a period begins, by the clock of the zone: 0 to 23.
	Hours int
	// Zone is the name of a time zone in the zone database: UTC, Europe/Paris, America/Los_Angeles.
	Zone string
}

// String prints the calendar as in the text of a limit: day@UTC, week+6d@Europe/Paris, month+14d+3h@UTC.
func (c Calendar) String() string { return calendar.Text(c.Unit, c.Days, c.Hours, c.Zone) }

// Period returns when the period of an instant begins and ends, by the zone data of this process; zero times
// for a calendar that no limit may have. Usage of the package inspect says when the period ends by Redis' data.
func (c Calendar) Period(at time.Time) (begins, ends time.Time) {
	of := c.known()
	if of == nil {
		return begins, ends
	}
	period := of.Period(at)
	return of.Edge(period), of.Edge(period + 1)
}

// known returns the calendar that computes edges; nil if validate refuses it.
func (c Calendar) known() *calendar.Calendar {
	of, err := calendar.Of(c.String())
	if err != nil {
		return nil
	}
	return of
}

func (c Calendar) validate() error {
	_, err := calendar.New(c.Unit, c.Days, c.Hours, c.Zone)
	return err
}

// calendarOf returns the calendar of edges.
func calendarOf(of *calendar.Calendar) Calendar {
	return Calendar{Unit: of.Unit, Days: of.Days, Hours: of.Hours, Zone: of.Zone}
}

// PerCalendarDay returns the quota of units per day from midnight to midnight in a zone, such as
// Europe/Paris.
func PerCalendarDay(units int64, zone string) Limit { return perCalendar(units, Day, zone) }

// PerCalendarWeek returns the quota of units per week, which begins on Monday, in a zone.
func PerCalendarWeek(units int64, zone string) Limit { return perCalendar(units, Week, zone) }

// PerCalendarMonth returns the quota of units per month of the calendar in a zone.
func PerCalendarMonth(units int64, zone string) Limit { return perCalendar(units, Month, zone) }

func perCalendar(units int64, unit, zone string) Limit {
	return Limit{Units: units, Calendar: Calendar{Unit: unit, Zone: zone}}
}

// mostPeriods bounds how many periods ahead an estimate looks.
const mostPeriods = 1000

// Through returns the beginning of the period in which a quota starts the last of some units, if it starts the first
// of them in the period of an instant, and starts no others. Through goes by the zone data of this process and looks
// ahead for up to a thousand periods. It returns the instant for other limits, and for a quota of no units.
func (l Limit) Through(units float64, from time.Time) time.Time {
	of := l.Calendar.known()
	if of == nil || l.Units <= 0 {
		return from
	}
	period := of.Period(from)
	if ramp := l.ramp(); ramp != nil {
		for last := period + mostPeriods; period < last && units > float64(ramp.Of(period)); period++ {
			units -= float64(ramp.Of(period))
		}
	} else if more := math.Ceil(units/float64(l.Units)) - 1; more > 0 {
		period += int64(min(more, mostPeriods))
	}
	return of.Edge(period)
}
