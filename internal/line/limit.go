package line

import (
	"fmt"
	"strconv"
	"strings"
)

// Limit is how many units may count together within a span.
type Limit struct {
	Units int64 // -1: unlimited
	Span
	Precision int64 // us, the length of a sub-window
}

// String is how the scripts write it: "100/w60000000/1".
func (l Limit) String() string { return fmt.Sprintf("%d/%s/%d", l.Units, l.Span, l.Precision) }

// ParseLimit reads what String writes.
func ParseLimit(text string) (Limit, error) {
	wrong := fmt.Errorf("line: %q is no limit", text)
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return Limit{}, wrong
	}
	units, badUnits := strconv.ParseInt(parts[0], 10, 64)
	span, badSpan := ParseSpan(parts[1])
	precision, badPrecision := strconv.ParseInt(parts[2], 10, 64)
	if badUnits != nil || badSpan != nil || badPrecision != nil || units < -1 || precision <= 0 {
		return Limit{}, wrong
	}
	return Limit{units, span, precision}, nil
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
