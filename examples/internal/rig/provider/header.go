package provider

import (
	"net/http"
	"strconv"
	"time"
)

// The headers in which OpenAI reports what is left of its limits.
const (
	headerLimit     = "x-ratelimit-limit-"
	headerRemaining = "x-ratelimit-remaining-"
	headerReset     = "x-ratelimit-reset-"
	ofRequests      = "requests"
	ofTokens        = "tokens"
)

// tellLimits writes what is served now, what is left of it, and when all of it is available again.
func tellLimits(h http.Header, limits, used Limits, reset time.Duration) {
	tell := func(of string, limit, used int64) {
		h.Set(headerLimit+of, strconv.FormatInt(limit, 10))
		h.Set(headerRemaining+of, strconv.FormatInt(max(0, limit-used), 10))
		h.Set(headerReset+of, resetText(reset))
	}
	tell(ofRequests, limits.Requests, used.Requests)
	tell(ofTokens, limits.Tokens, used.Tokens)
}

// resetText returns a time as OpenAI writes it, such as 120ms, 8.64s or 6m0s; rounded up.
func resetText(d time.Duration) string { return roundUp(d, time.Millisecond).String() }

// retryAfter returns a time in whole seconds, rounded up; at least one.
func retryAfter(d time.Duration) string {
	return strconv.FormatInt(int64(max(time.Second, roundUp(d, time.Second))/time.Second), 10)
}

func roundUp(d, to time.Duration) time.Duration {
	if rest := d % to; rest > 0 {
		d += to - rest
	}
	return d
}
