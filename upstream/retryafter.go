package upstream

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// MaxWait is the longest wait that this package returns. A longer one is cut to it: the upstream is
// asked again after MaxWait.
const MaxWait = 24 * time.Hour

// leastUnixTime is the least number that counts as a Unix time: as a number of
// seconds it would be 31 years.
const leastUnixTime = 1_000_000_000

// RetryAfter reads the value of a Retry-After header (RFC 9110, section 10.2.3): a
// number of seconds, or a date, which becomes the time from now until then. Pass the
// response's own Date as now: then the local clock does not matter. RetryAfter also reads
// other values that upstreams send: seconds with a fraction (2.0), a duration
// (1m2.5s), a date of RFC 3339 and, from 10^9 on, a Unix time. For zero, and for a date
// that has passed, it returns 0 and true. A wait longer than MaxWait becomes MaxWait.
// For any other value, such as an empty or a negative one, it returns false.
func RetryAfter(value string, now time.Time) (time.Duration, bool) {
	value = strings.Trim(value, " \t")
	if isDecimal(value) {
		whole, _, _ := strings.Cut(value, ".")
		// No sensible date needs more than 48 bits, and time.Unix takes those.
		if unix, err := strconv.ParseInt(whole, 10, 48); err == nil && unix >= leastUnixTime {
			return asWait(time.Unix(unix, 0).Sub(now)), true
		}
		return inUnit(value, "s"), true
	}
	for _, read := range []func(string) (time.Time, error){http.ParseTime, parseRFC3339} {
		if date, err := read(value); err == nil {
			return asWait(date.Sub(now)), true // Sub does not overflow
		}
	}
	if value == "" || !isDigits(value[:1]) { // ParseDuration takes signs
		return 0, false
	}
	d, err := time.ParseDuration(value)
	return asWait(d), err == nil
}

func parseRFC3339(value string) (time.Time, error) { return time.Parse(time.RFC3339, value) }

// asWait is d as a wait: none if d is negative, and at most MaxWait.
func asWait(d time.Duration) time.Duration { return min(max(d, 0), MaxWait) }

// inUnit is a decimal number of a unit of time.ParseDuration as a wait, which is at
// most MaxWait.
func inUnit(decimal, unit string) time.Duration {
	d, err := time.ParseDuration(decimal + unit)
	if err != nil {
		return MaxWait // the only error here is a number that is too large for a Duration
	}
	return min(d, MaxWait)
}

// isDecimal reports whether s is digits, or digits, a point and digits.
func isDecimal(s string) bool {
	whole, fraction, hasPoint := strings.Cut(s, ".")
	return isDigits(whole) && (!hasPoint || isDigits(fraction))
}

// isDigits reports whether s is one decimal digit or more and nothing else. strconv also takes
// signs, and stops reading where a number becomes too large.
func isDigits(s string) bool { return s != "" && strings.TrimLeft(s, "0123456789") == "" }
