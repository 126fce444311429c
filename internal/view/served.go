package view

import (
	"math"
	"strconv"
)

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
