package view

import (
	"cmp"
	"math"
	"strconv"
	"strings"

	"github.com/asynq-throttle/asynq-throttle/inspect"
)

// ServedShare returns the served share of a scope key's limits, 1 where it is not known.
func ServedShare(u inspect.Usage) float64 { return cmp.Or(u.Served, 1) }

// ServedText describes the served share of a limit; empty for 0 and 1, which both mean all.
func ServedText(part float64) string {
	if part == 0 || part == 1 {
		return ""
	}
	return "the upstream serves " + ShareText(part)
}

// ShareText returns a part of a limit as text, to a thousandth.
func ShareText(part float64) string {
	return strconv.FormatFloat(math.Round(part*1000)/10, 'f', -1, 64) + " %"
}

// Percent returns a part of a limit as text, in whole hundredths; a dash for the part of an unlimited one.
func Percent(part float64) string {
	if part < 0 {
		return "–"
	}
	return strconv.FormatFloat(part*100, 'f', 0, 64) + " %"
}

// Capital makes the first letter of a sentence a capital, unless the sentence begins with a name.
func Capital(text string) string {
	for _, word := range []string{"it ", "its ", "the ", "a ", "no ", "asynq "} {
		if strings.HasPrefix(text, word) {
			return strings.ToUpper(text[:1]) + text[1:]
		}
	}
	return text
}
