package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// ScopeKey formats a scope key for people.
func ScopeKey(scope, key string) string {
	if key == "" {
		return scope
	}
	return scope + " " + Name(key)
}

// Many returns a count with its noun, given in the singular.
func Many[N int | int64](n N, what string) string { return fmt.Sprintf("%d %s", n, Plural(n, what)) }

// Plural returns the noun for a count.
func Plural[N int | int64](n N, what string) string {
	switch {
	case n == 1:
		return what
	case strings.HasSuffix(what, "s"):
		what += "e"
	}
	return what + "s"
}

// Far describes how far an instant is from now.
func Far(at, now time.Time) string {
	switch d := at.Sub(now); {
	case d.Abs() < 100*time.Millisecond:
		return "now"
	case d < 0:
		return Span(-d) + " ago"
	default:
		return "in " + Span(d)
	}
}

// SetText returns where a limit was set at run time, and until when; empty if the limit is
// configured. The function until formats an instant.
func SetText(setFor string, ends time.Time, until func(time.Time) string) string {
	switch {
	case setFor == "":
		return ""
	case ends.IsZero():
		return "set for the " + setFor
	}
	return "set for the " + setFor + " until " + until(ends)
}

// WithReason adds the reason of a setting to its text, if it has a reason.
func WithReason(text, why string) string {
	if why == "" {
		return text
	}
	return text + ", why: " + Printable(why)
}

// DelaysNothing says of limits that are in shadow or off that they delay nothing; empty if they are enforced.
func DelaysNothing(mode throttle.Mode) string {
	if mode == throttle.Enforce {
		return ""
	}
	return mode.String() + ": nothing is delayed"
}

// Clock formats an instant to the second, in UTC.
func Clock(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05 MST") }

// LimitTexts writes limits as throttle.ParseLimits reads them; empty if there are none.
func LimitTexts(limits []throttle.Limit) string {
	texts := make([]string, len(limits))
	for i, l := range limits {
		texts[i] = l.String()
	}
	return strings.Join(texts, ", ")
}
