package view

import (
	"fmt"
	"strings"

	"github.com/asynq-throttle/asynq-throttle/inspect"
)

// The steps of a ramp that are shown beside its use: the first ones and the last, if it has many.
const (
	mostSteps  = 12
	firstSteps = 4
)

// UseText returns a limit for people, beside its use. Of a ramp it has the units in force, and not all of many steps:
// "ramp 50 100 200 400 … 20000/day from 2026-12-01 @UTC, now 400".
func UseText(l inspect.LimitUsage) string {
	text := l.Limit.String()
	if l.Limit.Ramp == "" {
		return text
	}
	steps, rest, _ := strings.Cut(text, "/")
	if words := strings.Fields(steps); len(words) > 1+mostSteps {
		steps = strings.Join(words[:1+firstSteps], " ") + " … " + words[len(words)-1]
	}
	if l.Units == 0 {
		return steps + "/" + rest + ", not begun"
	}
	return fmt.Sprintf("%s/%s, now %d", steps, rest, l.Units)
}
