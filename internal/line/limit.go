package line

import (
	"fmt"
	"strconv"
	"strings"
)

// Limit is how many units may count together within a span.
type Limit struct {
	Units int64 // -1: unlimited; of a ramp those of its last step
	Span
	Precision int64  // us, the length of a sub-window
	Ramp      string // how the units of a quota grow, as RampText writes it; empty if they do not
}

// String is how the scripts write it: "100/w60000000/1", "50&100:739938:1:0/z86400000000day@UTC/1".
func (l Limit) String() string {
	units := l.Ramp
	if units == "" {
		units = strconv.FormatInt(l.Units, 10)
	}
	return fmt.Sprintf("%s/%s/%d", units, l.Span, l.Precision)
}

// ParseLimit reads what String writes.
func ParseLimit(text string) (Limit, error) {
	wrong := fmt.Errorf("line: %q is no limit", text)
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return Limit{}, wrong
	}
	l, badUnits := parseUnits(parts[0])
	span, badSpan := ParseSpan(parts[1])
	precision, badPrecision := strconv.ParseInt(parts[2], 10, 64)
	if badUnits != nil || badSpan != nil || badPrecision != nil || l.Units < -1 || precision <= 0 ||
		l.Ramp != "" && !span.Kind.steps() {
		return Limit{}, wrong
	}
	l.Span, l.Precision = span, precision
	return l, nil
}

func parseUnits(text string) (l Limit, err error) {
	if !strings.Contains(text, ":") {
		l.Units, err = strconv.ParseInt(text, 10, 64)
		return l, err
	}
	steps, err := StepsOf(text)
	if err != nil {
		return l, err
	}
	return Limit{Units: steps.Last(), Ramp: text}, nil
}

// LimitsText is how the scripts write the limits of a scope.
func LimitsText(limits []Limit) string {
	texts := make([]string, len(limits))
	for i, l := range limits {
		texts[i] = l.String()
	}
	return strings.Join(texts, ",")
}

// ParseLimits reads what LimitsText writes; nil for an empty text.
func ParseLimits(text string) (limits []Limit, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		limit, err := ParseLimit(part)
		if err != nil {
			return nil, err
		}
		limits = append(limits, limit)
	}
	return limits, nil
}
