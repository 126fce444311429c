package upstream

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// HTTPLimit is one limit of the upstream, as the headers of a response state it.
type HTTPLimit struct {
	// Dialect names the kind of headers: "openai", "azure", "groq", "anthropic",
	// "github" or "ietf". See HTTPLimits.
	Dialect string
	// Counts is what the limit counts, as the dialect names it: "requests", "tokens",
	// "input-tokens". For "ietf" it is the name of the policy, and for "github" that of
	// the resource; "requests" if they give none. A name that the upstream chooses is 1
	// to 128 printable ASCII characters.
	Counts string
	// Units is the limit, and Remaining how many of them were left; -1 if the header is
	// missing, or is no number from 0 to the largest int64.
	Units, Remaining int64
	// Reset is how long it takes, from the response on, until the limit is whole again
	// or its window begins anew; HTTPLimits says which. A longer one is cut to MaxWait, so
	// it is never later than the upstream says. 0 if it is missing, cannot be read or has
	// passed.
	Reset time.Duration
	// Window is the time that the units are for, at most 400 days as in a
	// throttle.Limit; 0 if it is missing, cannot be read or is longer. It is not cut:
	// the same units in less time would be another limit.
	Window time.Duration
}

// longestWindow is the longest that a throttle.Limit takes.
const longestWindow = 400 * 24 * time.Hour

// HTTPLimits returns the upstream's limits from the headers of resp, whatever its status.
// It returns nil if there are none, if resp is nil, or if resp comes from a cache (an Age
// above zero) and its headers are old. Values that cannot be read are left out. Of a
// repeated header the first counts, unless the header is a list. The body is neither read
// nor closed.
//
// The dialects, in the order in which their limits are returned:
//
//	openai     x-ratelimit-limit-requests and its kind; Reset: whole again
//	azure      the same of Azure OpenAI; Reset: until it resets, Azure says no more
//	groq       the same of Groq, whose requests are per day and whose tokens are per
//	           minute, which is their Window; Reset: whole again
//	anthropic  anthropic-ratelimit-requests-limit and its kind; Reset: whole again
//	github     x-ratelimit-limit and its kind; Reset: the window begins anew
//	ietf       RateLimit and RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers,
//	           or the RateLimit-Limit, -Remaining and -Reset of its older versions;
//	           Reset: the window begins anew or, as the upstream chooses, Remaining is
//	           for the time until then
//
// The first three share their headers: apim-request-id or x-ms-region means azure,
// x-groq-region means groq, and everything else is openai, which many other providers
// imitate. GitHub's headers mean other things elsewhere, and are read only beside a header
// that only GitHub sends.
//
// In each dialect a reset may be a duration (6m0s), a number of seconds, a date (RFC 3339)
// or, from 10^9 on, a Unix time. A date is compared with the response's own Date, so that
// the local clock does not matter; without a Date, with the local clock. Both have whole
// seconds, so Reset may then be a second too long or too short.
func HTTPLimits(resp *http.Response) []HTTPLimit {
	if resp == nil || isCached(resp.Header) {
		return nil
	}
	at := answeredAt(resp.Header, time.Now())
	var limits []HTTPLimit
	for _, sameHeaders := range httpDialects {
		limits = append(limits, limitsOf(sameHeaders, resp.Header, at)...)
	}
	return append(limits, ietfLimits(resp.Header, at)...)
}

// isCached reports whether the response comes from a cache (RFC 9111, section 5.1).
func isCached(header http.Header) bool {
	age := strings.Trim(header.Get("Age"), " \t")
	return isDigits(age) && strings.Trim(age, "0") != ""
}

// answeredAt is when the response was made, by its own Date; now if it has no Date.
func answeredAt(header http.Header, now time.Time) time.Time {
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		return date
	}
	return now
}

// says reports whether anything but the name of the limit is known.
func (l HTTPLimit) says() bool { return l.Units >= 0 || l.Remaining >= 0 || l.Reset > 0 }

// unitsIn reads a number of units; -1 if the value is no such number.
func unitsIn(value string) int64 {
	value = strings.Trim(value, " \t")
	if !isDigits(value) {
		return -1
	}
	units, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return -1
	}
	return units
}

// resetIn reads a reset as a wait from the time at; 0 if the value is no reset.
func resetIn(value string, at time.Time) time.Duration {
	wait, _ := RetryAfter(value, at)
	return wait
}

// windowIn reads a number of seconds as a window; 0 if the value is no such number.
func windowIn(value string) time.Duration {
	seconds := unitsIn(value)
	if seconds <= 0 || seconds > int64(longestWindow/time.Second) {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// isName reports whether a text of the upstream may be a name.
func isName(s string) bool { return s != "" && len(s) <= 128 && isPrintable(s) }

// isPrintable reports whether s is ASCII without control characters.
func isPrintable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
