package wire

import "time"

const (
	// MaxUnits is the largest number of units: the largest integer up to which Redis' Lua counts
	// without losing a unit.
	MaxUnits int64 = 1 << 53
	// MaxWindow is the longest window, and the farthest that anything is away.
	MaxWindow = 400 * 24 * time.Hour
	// Thousandths are how the scripts count a served share.
	Thousandths = 1000
	// Modes are the letters of the modes, from the strictest to the weakest.
	Modes = "eso"
)

// Where limits come from, as the scripts write it.
const (
	Configured  = 'c'
	SetForScope = 's' // at run time, for all keys of the scope
	SetForKey   = 'k' // at run time, for the key
)

// never is the instant, in microseconds, from which on an answer means that nothing ever comes:
// the scripts write 2^53 for never, or somewhat less where they subtract a time from it.
const never = MaxUnits - 2*int64(MaxWindow/time.Microsecond)

// Instant is the time of so many microseconds; the zero time for 0 and for never.
func Instant(micros int64) time.Time {
	if micros == 0 || micros >= never {
		return time.Time{}
	}
	return time.UnixMicro(micros)
}
