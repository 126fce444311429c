package throttle

import (
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/calendar"
)

// openText begins the text of hours.
const openText = "open"

// OpenHours returns the limit that lets jobs start only in opening hours, such as
//
//	OpenHours("Mon-Fri 09:00-17:00, Sat 10:00-12:00 @Europe/Paris", "2026-12-25", "2027-01-01")
//
// The text has ranges of days and times, separated by commas, an at sign and the time zone. A day is one of Mon to
// Sun; a range without days is of every day. Times are of the clock of the zone, from 00:00 to 24:00; at the end of a
// range the hours are closed. A range that ends before it begins, such as Fri 22:00-06:00, goes on after midnight, on
// the next day. closed are dates, such as 2026-12-25, on which nothing starts, from midnight to midnight; they may
// also stand in the text, as in ", except 2026-12-25 2027-01-01 @Europe/Paris".
//
// A time that a change of the clock leaves out stands for the first instant after it; of a time that comes twice, the
// first counts. What cannot be read, New and SetLimits refuse with a *LimitError.
func OpenHours(hours string, closed ...string) Limit {
	if week, zone, has := strings.Cut(hours, "@"); has && len(closed) > 0 {
		hours = week + ", except " + strings.Join(closed, " ") + " @" + zone
	}
	of, err := calendar.HoursOf(hours)
	if err != nil {
		return Limit{Units: Unlimited, Hours: hours}
	}
	return hoursOf(of)
}

func hoursOf(of *calendar.Hours) Limit { return Limit{Units: Unlimited, Hours: of.String()} }

// isHoursText reports whether the text of a limit begins as that of hours does.
func isHoursText(text string) bool {
	_, is := cutWord(strings.TrimSpace(text), openText)
	return is
}

// cutWord returns what follows the first word of a text; false if the first word is another one.
func cutWord(text, word string) (rest string, is bool) {
	first, rest, _ := strings.Cut(text, " ")
	return rest, first == word
}

// isHours reports whether it lets jobs start only in opening hours.
func (l Limit) isHours() bool { return l.Hours != "" }

func (l Limit) validateHours() error {
	of, err := calendar.HoursOf(l.Hours)
	switch {
	case err != nil:
		return &LimitError{Text: l.String(), Reason: err.Error()}
	case of.String() != l.Hours:
		return &LimitError{Text: l.String(), Reason: "the hours are not written as OpenHours writes them: " + of.String()}
	case l != hoursOf(of):
		return &LimitError{Text: l.String(),
			Reason: "hours count nothing: want Unlimited units, and no window, precision, lease, calendar or ramp"}
	}
	return nil
}

// opens returns the first instant from one on at which the hours are open, by the zone data of this process.
func (l Limit) opens(at time.Time) time.Time {
	of, err := calendar.HoursOf(l.Hours)
	if err != nil {
		return at // no throttle has such a limit
	}
	return of.Opens(at)
}

// ClosedFor returns for how long hours are closed, from an instant on, until they have been open for some time, by the
// zone data of this process; 0 for other limits. It stops at the first opening after ten days of closed time.
func (l Limit) ClosedFor(from time.Time, open time.Duration) (closed time.Duration) {
	of, err := calendar.HoursOf(l.Hours)
	if err != nil {
		return 0 // other limits have no hours
	}
	for at := from; closed < latestAsking; {
		opens := of.Opens(at)
		closes := of.Closes(opens)
		closed += opens.Sub(at)
		if closes.IsZero() || closes.Sub(opens) >= open {
			break
		}
		open -= closes.Sub(opens)
		at = closes
	}
	return closed
}

// Zone returns the name of the time zone of a quota or of hours; empty for other limits.
func (l Limit) Zone() string {
	if of, err := calendar.HoursOf(l.Hours); l.isHours() && err == nil {
		return of.Zone
	}
	return l.Calendar.Zone
}
