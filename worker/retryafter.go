package worker

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// statusOverloaded is what Anthropic answers while it has too much to do for
// everybody (https://docs.anthropic.com/en/api/errors); net/http has no name for it.
const statusOverloaded = 529

// HTTPWait returns the error of AskedToWait, for the task's key of scope, if resp
// asks to wait: its status is 429 (Too Many Requests), 503 (Service Unavailable) or
// 529 (Overloaded, as Anthropic has it). The wait is that of its Retry-After-Ms, in
// milliseconds, which OpenAI and Azure OpenAI send beside the other since it is more
// precise; without a readable one, or with one of no time at all, that of its
// Retry-After; DefaultAskedWait if that is none either. It returns nil for every
// other response, and for a nil one. A date in Retry-After is compared with now, the
// time on the local clock. The body is neither read nor closed.
func HTTPWait(scope string, resp *http.Response, now time.Time) error {
	if resp == nil || !asksToWait(resp.StatusCode) {
		return nil
	}
	// The reason phrase is left out: it is any text that the upstream likes.
	cause := fmt.Errorf("the upstream answered %d %s", resp.StatusCode, statusText(resp.StatusCode))
	return AskedToWait(scope, waitIn(resp.Header, now), cause)
}

// asksToWait tells whether an answer of this status is about now, not about the request.
func asksToWait(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, statusOverloaded:
		return true
	}
	return false
}

// statusText is http.StatusText, and knows statusOverloaded.
func statusText(status int) string {
	if status == statusOverloaded {
		return "Overloaded"
	}
	return http.StatusText(status)
}

// waitIn is the wait that the headers of a refusal name; 0, which AskedToWait
// replaces, if they name none that can be read.
func waitIn(header http.Header, now time.Time) time.Duration {
	if ms := strings.Trim(header.Get("Retry-After-Ms"), " \t"); isDecimal(ms) {
		if wait := inUnit(ms, "ms"); wait > 0 {
			return wait
		}
	}
	wait, _ := RetryAfter(header.Get("Retry-After"), now)
	return wait
}

// RetryAfter reads the value of a Retry-After header (RFC 9110, section 10.2.3):
// a number of seconds, or a date, of which the time from now until then is
// returned. Zero seconds and a date that has passed are no wait: 0 and true. A
// wait longer than MaxAskedWait becomes that. It returns false if the value is
// neither, such as an empty, a negative or a fractional one.
func RetryAfter(value string, now time.Time) (time.Duration, bool) {
	value = strings.Trim(value, " \t")
	if isDigits(value) {
		return inUnit(value, "s"), true
	}
	date, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return asWait(date.Sub(now)), true // Sub does not overflow
}

// asWait is d as a wait: none if d is negative, and at most MaxAskedWait.
func asWait(d time.Duration) time.Duration { return min(max(d, 0), MaxAskedWait) }

// inUnit is a decimal number of a unit of time.ParseDuration as a wait, which is at
// most MaxAskedWait.
func inUnit(decimal, unit string) time.Duration {
	d, err := time.ParseDuration(decimal + unit)
	if err != nil {
		return MaxAskedWait // of a number and a unit, only one too large for a Duration
	}
	return min(d, MaxAskedWait)
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
