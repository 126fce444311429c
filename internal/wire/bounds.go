package wire

import "time"

const (
	// MaxUnits is the largest number of units: the largest integer up to which Redis' Lua counts
	// without losing a unit.
	MaxUnits int64 = 1 << 53
	// MaxWindow is the longest window, and the longest distance of any instant from now.
	MaxWindow = 400 * 24 * time.Hour
	// Thousandths is the unit in which the scripts count a served share.
	Thousandths = 1000
	// Modes are the letters of the modes, from the strictest to the weakest.
	Modes = "eso"
)

// The origins of limits, as the scripts write them.
const (
	Configured  = 'c'
	SetForScope = 's' // at run time, for all keys of the scope
	SetForKey   = 'k' // at run time, for the key
)

// never is the least instant, in microseconds, that means never: the scripts write 2^53 for never, or somewhat
// less after they have subtracted a time.
const never = MaxUnits - 2*int64(MaxWindow/time.Microsecond)

// Instant returns the time of a number of microseconds; the zero time for 0 and for never.
func Instant(micros int64) time.Time {
	if micros == 0 || micros >= never {
		return time.Time{}
	}
	return time.UnixMicro(micros)
}
