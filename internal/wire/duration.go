package wire

import (
	"strings"
	"time"
)

// Micros returns a duration in microseconds, rounded up.
func Micros(d time.Duration) int64 { return (d + time.Microsecond - 1).Microseconds() }

// Duration prints 1m and 24h where time.Duration prints 1m0s and 24h0m0s.
func Duration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
