package upstream

import (
	"net/http"
	"strings"
	"time"
)

// statusOverloaded is Anthropic's status while it is overloaded for all clients
// (https://docs.anthropic.com/en/api/errors); net/http has no name for it.
const statusOverloaded = 529

// HTTPWait reports whether resp asks to wait, and for how long. A response asks if its status is
// 429 (Too Many Requests), 503 (Service Unavailable) or 529 (Anthropic's Overloaded); for any
// other, and for nil, HTTPWait returns false. The wait is Retry-After-Ms, in milliseconds, which
// OpenAI and Azure OpenAI send since it is more precise than Retry-After. If it is missing,
// unreadable or zero, the wait is Retry-After, read as by RetryAfter. Of a repeated header the
// longest wait counts. 0 and true means that the response does not say how long, or says "not
// at all".
//
// A date in Retry-After is compared with the response's own Date, so that the local clock does
// not matter; without a Date, with the local clock. The body is neither read nor closed.
func HTTPWait(resp *http.Response) (wait time.Duration, asked bool) {
	if resp == nil || !asksToWait(resp.StatusCode) {
		return 0, false
	}
	return waitIn(resp.Header, answeredAt(resp.Header, time.Now())), true
}

// asksToWait reports whether the status is about the moment, not about the request.
func asksToWait(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, statusOverloaded:
		return true
	}
	return false
}

// waitIn is the wait in the headers of a refusal; 0 if none can be read.
func waitIn(header http.Header, at time.Time) time.Duration {
	var precise, wait time.Duration
	for _, value := range header.Values("Retry-After-Ms") {
		if ms := strings.Trim(value, " \t"); isDecimal(ms) {
			precise = max(precise, inUnit(ms, "ms"))
		}
	}
	if precise > 0 {
		return precise
	}
	for _, value := range header.Values("Retry-After") {
		asked, _ := RetryAfter(value, at)
		wait = max(wait, asked)
	}
	return wait
}
