package upstream

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// MaxWait is the longest wait that is returned. An upstream that asks for more is asked again
// after this.
const MaxWait = 24 * time.Hour

// leastUnixTime is the least number that is taken for a Unix time: as a number of
// seconds it would be 31 years.
const leastUnixTime = 1_000_000_000

// RetryAfter reads the value of a Retry-After header (RFC 9110, section 10.2.3): a
// number of seconds, or a date, of which the time from now until then is returned. now
// is best the response's own Date: then the local clock does not matter. What
// upstreams send besides is read too: seconds with a fraction (2.0), a duration
// (1m2.5s), a date of RFC 3339 and, from 10^9 on, a Unix time. No time at all and a
// date that has passed are no wait: 0 and true. A wait longer than MaxWait
// becomes that. It returns false if the value is none of these, such as an empty or a
// negative one.
func RetryAfter(value string, now time.Time) (time.Duration, bool) {
	value = strings.Trim(value, " \t")
	if isDecimal(value) {
		whole, _, _ := strings.Cut(value, ".")
		// No date that is meant needs more than 48 bits, and time.Unix has room for those.
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
		return MaxWait // of a number and a unit, only one too large for a Duration
	}
	return min(d, MaxWait)
}

// isDecimal tells whether s is digits, or digits, a point and digits.
func isDecimal(s string) bool {
	whole, fraction, hasPoint := strings.Cut(s, ".")
	return isDigits(whole) && (!hasPoint || isDigits(fraction))
}

// isDigits tells whether s is one decimal digit or more and nothing else.
// strconv alone would not do: it takes signs, and looks no further than to where
// a number is too large.
func isDigits(s string) bool { return s != "" && strings.TrimLeft(s, "0123456789") == "" }
