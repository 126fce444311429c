package upstream

import (
	"net/http"
	"strings"
	"time"
)

// statusOverloaded is what Anthropic answers while it has too much to do for
// everybody (https://docs.anthropic.com/en/api/errors); net/http has no name for it.
const statusOverloaded = 529

// HTTPWait tells whether resp asks to wait, and for how long: its status is 429 (Too Many
// Requests), 503 (Service Unavailable) or 529 (Overloaded, as Anthropic has it). The wait is
// that of its Retry-After-Ms, in milliseconds, which OpenAI and Azure OpenAI send beside the
// other since it is more precise; without a readable one, or with one of no time at all, that
// of its Retry-After, read as by RetryAfter. Of a header that is repeated the longest wait
// counts. 0 and true: it asks to wait, and does not say how long, or says "not at all".
//
// A date in Retry-After is compared with the response's own Date, so that the local clock does
// not matter; without one, with the local clock. It returns false for every other response, and
// for a nil one. The body is neither read nor closed.
func HTTPWait(resp *http.Response) (wait time.Duration, asked bool) {
	if resp == nil || !asksToWait(resp.StatusCode) {
		return 0, false
	}
	return waitIn(resp.Header, answeredAt(resp.Header, time.Now())), true
}

// asksToWait tells whether an answer of this status is about now, not about the request.
func asksToWait(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, statusOverloaded:
		return true
	}
	return false
}

// waitIn is the wait that the headers of a refusal name; 0 if they name none that can be read.
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
