package view

import (
	"math"
	"strconv"
	"strings"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// LimitText is a limit for people, who take it for exact: that it is, is left out.
func LimitText(l throttle.Limit) string {
	if l.Precision == throttle.Exact {
		l.Precision = 0
	}
	return l.String()
}

// ServedText says what part of a limit the upstream serves; empty for 0 and 1, which are all.
func ServedText(part float64) string {
	if part == 0 || part == 1 {
		return ""
	}
	return "the upstream serves " + PartText(part)
}

// PartText is a part of a limit, to the thousandth that counts.
func PartText(part float64) string {
	return strconv.FormatFloat(math.Round(part*1000)/10, 'f', -1, 64) + " %"
}

// Capital begins a sentence with a capital, but not one that begins with a name.
func Capital(text string) string {
	for _, word := range []string{"it ", "its ", "the ", "a ", "asynq "} {
		if strings.HasPrefix(text, word) {
			return strings.ToUpper(text[:1]) + text[1:]
		}
	}
	return text
}
