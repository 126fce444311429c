package line

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/asynq-throttle/asynq-throttle/internal/calendar"
)

// RampText is how the scripts write the steps of a ramp, where another limit has its units:
// "50&100&200:739938:1:0", the units of each step, the first period, how many periods a step lasts, and the period in
// which it is held, 0 for none.
func RampText(s calendar.Steps) string {
	units := make([]string, len(s.Units))
	for i, n := range s.Units {
		units[i] = strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("%s:%d:%d:%d", strings.Join(units, "&"), s.First, s.Every, s.Held)
}

var knownSteps calendar.Memory[calendar.Steps]

// StepsOf reads what RampText writes, with a memory.
func StepsOf(text string) (*calendar.Steps, error) { return knownSteps.Read(text, parseSteps) }

func parseSteps(text string) (*calendar.Steps, error) {
	wrong := fmt.Errorf("line: %q are no steps", text)
	parts := strings.Split(text, ":")
	if len(parts) != 4 {
		return nil, wrong
	}
	var s calendar.Steps
	for i, to := range []*int64{&s.First, &s.Every, &s.Held} {
		n, err := strconv.ParseUint(parts[i+1], 10, 53)
		if err != nil {
			return nil, wrong
		}
		*to = int64(n)
	}
	for word := range strings.SplitSeq(parts[0], "&") {
		n, err := strconv.ParseUint(word, 10, 54)
		if err != nil || int64(n) > Never || n == 0 || len(s.Units) > 0 && int64(n) <= s.Last() {
			return nil, wrong
		}
		s.Units = append(s.Units, int64(n))
	}
	if s.First == 0 || s.Every == 0 || RampText(s) != text {
		return nil, wrong
	}
	return &s, nil
}

// mustSteps returns the steps of a limit, which ParseLimit or RampText made.
func mustSteps(text string) *calendar.Steps {
	s, err := StepsOf(text)
	if err != nil {
		panic(err.Error())
	}
	return s
}

// quota returns the quota that a ramp is at an instant; before it begins, that of its first step. Another limit is
// returned as it is.
func (k *key) quota(limit *Limit, at int64) *Limit {
	if limit == nil || limit.Ramp == "" {
		return limit
	}
	return &Limit{Units: max(k.unitsAt(limit, at), mustSteps(limit.Ramp).Units[0]), Span: limit.Span,
		Precision: limit.Precision}
}
