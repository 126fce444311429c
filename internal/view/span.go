package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// ParseSpan parses the length of a pause, such as 30m, 2h or 1d, up to 400 days. It returns false
// for an invalid one.
func ParseSpan(text string) (time.Duration, bool) {
	as, err := throttle.ParseLimit("1/" + text) // ParseLimit accepts days
	return as.Window, err == nil && as == throttle.Per(1, as.Window)
}

// ParseInstant parses when a setting ends: 18:00, the next one, or 2026-11-22 18:00, both in the zone of
// now, or an instant with its zone as in RFC 3339. It returns false for an invalid one; the instant may be
// past.
func ParseInstant(text string, now time.Time) (time.Time, bool) {
	if end, err := time.Parse(time.RFC3339, text); err == nil {
		return end, true
	}
	if end, err := time.ParseInLocation("2006-01-02 15:04", text, now.Location()); err == nil {
		return end, true
	}
	clock, err := time.Parse("15:04", text)
	if err != nil {
		return time.Time{}, false
	}
	end := time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), 0, 0, now.Location())
	if !end.After(now) {
		end = end.AddDate(0, 0, 1)
	}
	return end, true
}

// farthest is how far ahead an estimate is at most: a Duration holds little more.
const farthest = 200 * 365 * 24 * time.Hour

// Times returns a duration n times as long, and at most 200 years.
func Times(d time.Duration, n float64) time.Duration {
	return time.Duration(min(n*float64(d), float64(farthest)))
}

// Span returns a duration in at most two units.
func Span(d time.Duration) string {
	const day = 24 * time.Hour
	switch d = d.Abs(); {
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return strings.TrimSuffix(d.Round(time.Second).String(), "m0s") + suffix(d.Round(time.Second), "m")
	case d < day:
		d = d.Round(time.Minute)
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	d = d.Round(time.Hour)
	return fmt.Sprintf("%dd%02dh", d/day, d%day/time.Hour)
}

// suffix returns the unit that was cut off together with the seconds.
func suffix(d time.Duration, unit string) string {
	if strings.HasSuffix(d.String(), "m0s") {
		return unit
	}
	return ""
}
