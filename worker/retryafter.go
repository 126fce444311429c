package worker

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// HTTPWait returns the error of AskedToWait, for the task's key of scope, if resp
// asks to wait: its status is 429 (Too Many Requests) or 503 (Service
// Unavailable). The wait is that of its Retry-After; DefaultAskedWait if there is
// none, or none that can be read, or one of no time at all. It returns nil for
// every other response, and for a nil one. A date in Retry-After is compared with
// now, the time on the local clock. The body is neither read nor closed.
func HTTPWait(scope string, resp *http.Response, now time.Time) error {
	if resp == nil || resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return nil
	}
	// Without a readable value the wait is zero, which AskedToWait replaces.
	wait, _ := RetryAfter(resp.Header.Get("Retry-After"), now)
	// The reason phrase is left out: it is any text that the upstream likes.
	return AskedToWait(scope, wait, fmt.Errorf("the upstream answered %d %s", resp.StatusCode, http.StatusText(resp.StatusCode)))
}

// RetryAfter reads the value of a Retry-After header (RFC 9110, section 10.2.3):
// a number of seconds, or a date, of which the time from now until then is
// returned. Zero seconds and a date that has passed are no wait: 0 and true. A
// wait longer than MaxAskedWait becomes that. It returns false if the value is
// neither, such as an empty, a negative or a fractional one.
func RetryAfter(value string, now time.Time) (time.Duration, bool) {
	value = strings.Trim(value, " \t")
	if isDigits(value) {
		return secondsAsked(value), true
	}
	date, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return min(max(date.Sub(now), 0), MaxAskedWait), true // Sub does not overflow
}

// secondsAsked is a number of seconds, in digits, as a wait.
func secondsAsked(digits string) time.Duration {
	seconds, err := strconv.ParseUint(digits, 10, 64)
	if errors.Is(err, strconv.ErrRange) || seconds > uint64(MaxAskedWait/time.Second) {
		return MaxAskedWait
	}
	return time.Duration(seconds) * time.Second
}

// isDigits tells whether s is one decimal digit or more and nothing else.
// strconv alone would not do: it takes signs, and looks no further than to where
// a number is too large.
func isDigits(s string) bool { return s != "" && strings.TrimLeft(s, "0123456789") == "" }
