package calendar

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Edges numbers periods, and says when they begin.
type Edges interface {
	// Edge returns when a period begins. The next one begins then, or later.
	Edge(period int64) time.Time
	// Period returns the last period that has begun at an instant.
	Period(at time.Time) int64
	// Through returns until which period edges are kept if they are needed until one: that of a calendar, and of
	// hours the first closed one that follows an open one.
	Through(period int64) int64
	String() string
}

// EdgesOf reads the text of a calendar or of hours, with a memory.
func EdgesOf(text string) (Edges, error) {
	if strings.Contains(text, " ") {
		return HoursOf(text)
	}
	return Of(text)
}

// The most that hours have of ranges and of closed dates.
const (
	mostRanges = 64
	mostDates  = 64
)

// Hours are the opening hours of a week in a time zone, without closed dates. Their periods are open and closed in
// turn: an even number is of an open one. On a closed date the open periods are empty.
type Hours struct {
	Zone     string
	items    []string
	location *time.Location
	ranges   []dayRange
	closed   map[int64]bool // days, as days counts them
}

// dayRange is from when until when a day of the week is open, in minutes. It never goes over midnight.
type dayRange struct{ day, from, to int }

const dayMinutes = 24 * 60

var weekdays = []string{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"}

// ParseHours reads ranges of days and times, closed dates, and a zone, such as
// "Mon-Fri 09:00-17:00, Sat 22:00-02:00, except 2026-12-25 2027-01-01 @Europe/Paris". A range without days is of all
// of them. A range that ends before it begins goes on after midnight, on the next day.
func ParseHours(text string) (*Hours, error) {
	week, zone, has := strings.Cut(text, "@")
	h := &Hours{Zone: strings.TrimSpace(zone), closed: make(map[int64]bool)}
	if !has || h.Zone == "" {
		return nil, fmt.Errorf("no time zone: want a name such as UTC, as in Mon-Fri 09:00-17:00 @Europe/Paris")
	}
	var err error
	if h.location, err = locationOf(h.Zone); err != nil {
		return nil, err
	}
	for item := range strings.SplitSeq(week, ",") {
		if err := h.add(strings.Fields(item)); err != nil {
			return nil, err
		}
	}
	if len(h.ranges) == 0 {
		return nil, fmt.Errorf("no hours: want such as Mon-Fri 09:00-17:00 @Europe/Paris")
	}
	if h.ranges = united(h.ranges); len(h.ranges) > mostRanges || len(h.closed) > mostDates {
		return nil, fmt.Errorf("more than %d ranges in a week or %d closed dates", mostRanges, mostDates)
	}
	return h, nil
}

// except stands before closed dates.
const except = "except"

// add adds the words between two commas.
func (h *Hours) add(words []string) error {
	if len(words) > 0 && words[0] == except {
		return h.close(words)
	}
	if len(words) == 1 {
		words = []string{"Mon-Sun", words[0]}
	}
	if len(words) != 2 {
		return fmt.Errorf("%q is not hours: want such as Mon-Fri 09:00-17:00, or except 2026-12-25", strings.Join(words, " "))
	}
	first, last, err := daysOf(words[0])
	if err != nil {
		return err
	}
	from, to, err := timesOf(words[1])
	if err != nil {
		return err
	}
	for day := first; ; day = (day + 1) % len(weekdays) {
		h.ranges = append(h.ranges, dayRange{day, from, min(to, dayMinutes)})
		if to > dayMinutes {
			h.ranges = append(h.ranges, dayRange{(day + 1) % len(weekdays), 0, to - dayMinutes})
		}
		if day == last {
			break
		}
	}
	h.items = append(h.items, strings.Join(words, " "))
	return nil
}

// close adds closed dates.
func (h *Hours) close(words []string) error {
	for _, word := range words[1:] {
		date, err := time.Parse(time.DateOnly, word)
		if err != nil {
			return fmt.Errorf("%q is no date: want such as 2026-12-25", word)
		}
		h.closed[days(date)] = true
	}
	if len(words) == 1 {
		return fmt.Errorf("no date after %s: want such as %s 2026-12-25", except, except)
	}
	h.items = append(h.items, strings.Join(words, " "))
	return nil
}

// daysOf reads a day of the week, or the first and the last of some.
func daysOf(text string) (first, last int, err error) {
	from, to, several := strings.Cut(text, "-")
	if !several {
		to = from
	}
	first, last = slices.Index(weekdays, from), slices.Index(weekdays, to)
	if first < 0 || last < 0 {
		return 0, 0, fmt.Errorf("%q is no day of the week: want such as Mon or Mon-Fri", text)
	}
	return first, last, nil
}

// timesOf reads from when until when a day is open, in minutes. The end is more than a day where it is on the next.
func timesOf(text string) (from, to int, err error) {
	begins, ends, has := strings.Cut(text, "-")
	from, fine := minutesOf(begins)
	to, also := minutesOf(ends)
	switch {
	case !has || !fine || !also || from == dayMinutes:
		return 0, 0, fmt.Errorf("%q is no range of hours: want from 00:00 to 24:00, such as 09:00-17:00", text)
	case from == to:
		return 0, 0, fmt.Errorf("%q is never open: a whole day is 00:00-24:00", text)
	case to < from:
		to += dayMinutes
	}
	return from, to, nil
}

func minutesOf(text string) (minutes int, fine bool) {
	if len(text) != len("09:00") || text[2] != ':' {
		return 0, false
	}
	hour, badHour := strconv.ParseUint(text[:2], 10, 8)
	minute, badMinute := strconv.ParseUint(text[3:], 10, 8)
	minutes = int(hour)*60 + int(minute)
	return minutes, badHour == nil && badMinute == nil && minute < 60 && minutes <= dayMinutes
}

// united puts the ranges of a week in order, and makes one of those of a day that meet.
func united(ranges []dayRange) (united []dayRange) {
	slices.SortFunc(ranges, func(a, b dayRange) int {
		return cmp.Or(cmp.Compare(a.day, b.day), cmp.Compare(a.from, b.from))
	})
	for _, r := range ranges {
		if n := len(united); n > 0 && united[n-1].day == r.day && united[n-1].to >= r.from {
			united[n-1].to = max(united[n-1].to, r.to)
		} else {
			united = append(united, r)
		}
	}
	return united
}

var knownHours Memory[Hours]

// HoursOf is ParseHours with a memory.
func HoursOf(text string) (*Hours, error) { return knownHours.Read(text, ParseHours) }

// String is the text that ParseHours reads, with one space between words.
func (h *Hours) String() string { return strings.Join(h.items, ", ") + " @" + h.Zone }

// Edge returns when a period begins. A time that a change of the clock leaves out stands for the first instant after
// it; of a time that comes twice, the first counts.
func (h *Hours) Edge(period int64) time.Time {
	inWeek := 2 * int64(len(h.ranges))
	week := period / inWeek
	r, isOpening := h.ranges[period%inWeek/2], period%2 == 0
	day, minutes := 7*week+int64(r.day), r.to
	if isOpening && !h.closed[day] {
		minutes = r.from
	}
	return first((day-unixDays)*daySeconds+int64(minutes)*60, h.location)
}

// Period returns the last period that has begun at an instant.
func (h *Hours) Period(at time.Time) int64 {
	year, month, date := at.In(h.location).Date()
	day := days(time.Date(year, month, date, 0, 0, 0, 0, time.UTC))
	ofDay := slices.IndexFunc(h.ranges, func(r dayRange) bool { return int64(r.day) >= day%7 })
	if ofDay < 0 {
		ofDay = len(h.ranges)
	}
	period := 2 * (day/7*int64(len(h.ranges)) + int64(ofDay))
	for h.Edge(period).After(at) {
		period--
	}
	for !h.Edge(period + 1).After(at) {
		period++
	}
	return period
}

// Through returns the first closed period from one on that follows an open one.
func (h *Hours) Through(period int64) int64 {
	period += period % 2
	for !h.Edge(period).Before(h.Edge(period + 1)) {
		period += 2
	}
	return period + 1
}

// Opens returns the first instant from one on at which the hours are open.
func (h *Hours) Opens(at time.Time) time.Time {
	period := h.Period(at)
	if period%2 == 0 {
		return at
	}
	return h.Edge(h.Through(period) - 1)
}

// mostAhead is how many periods ahead Closes looks. Hours that are open day and night have none that is closed.
const mostAhead = 1000

// Closes returns the first instant from one on at which the hours are closed; the zero time if they are not, for long.
func (h *Hours) Closes(at time.Time) time.Time {
	period := h.Period(at)
	if period%2 == 1 {
		return at
	}
	for next := period + 1; next < period+mostAhead; next += 2 {
		if closes := h.Edge(next); closes.Before(h.Edge(next + 1)) {
			return closes
		}
	}
	return time.Time{}
}
