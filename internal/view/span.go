package view

import (
	"fmt"
	"strings"
	"time"
)

// Span is a duration in two units at most.
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

// suffix gives back the unit that was cut with the seconds.
func suffix(d time.Duration, unit string) string {
	if strings.HasSuffix(d.String(), "m0s") {
		return unit
	}
	return ""
}
