package upstream_test

import (
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynq-throttle/asynq-throttle/upstream"
)

func TestHTTPWait_F64(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		status int
		header http.Header
		want   time.Duration
		asked  bool
	}{
		{"429 with seconds", 429, retryAfter("120"), 2 * time.Minute, true},
		{"429 with a date", 429, retryAfter("Wed, 04 Mar 2026 12:00:30 GMT"), 30 * time.Second, true},
		{"503 with seconds", 503, retryAfter("7"), 7 * time.Second, true},
		{"429 without", 429, nil, 0, true},
		{"503 without", 503, http.Header{}, 0, true},
		{"429 with garbage", 429, retryAfter("soon"), 0, true},
		{"429 with a negative", 429, retryAfter("-5"), 0, true},
		{"429 with zero", 429, retryAfter("0"), 0, true},
		{"429 with a date past", 429, retryAfter("Sun, 06 Nov 1994 08:49:37 GMT"), 0, true},
		{"429 with a fraction", 429, retryAfter("2.0"), 2 * time.Second, true},
		{"429 with a duration", 429, retryAfter("1m2.5s"), 62500 * time.Millisecond, true},
		{"429 with a Unix time", 429, retryAfter(strconv.FormatInt(noon.Unix()+30, 10)), 30 * time.Second, true},
		{"429 with two", 429, retryAfter("5", "600"), 10 * time.Minute, true},
		{"429 with two, the longer first", 429, retryAfter("600", "5"), 10 * time.Minute, true},
		{"429 with two, one of them garbage", 429, retryAfter("soon", "600"), 10 * time.Minute, true},
		{"429 with two, in milliseconds", 429, http.Header{"Retry-After-Ms": {"500", "2500"}, "Retry-After": {"3"}},
			2500 * time.Millisecond, true},
		{"529 with seconds", 529, retryAfter("120"), 2 * time.Minute, true},
		{"529 without", 529, nil, 0, true},
		{"200 with seconds", 200, retryAfter("120"), 0, false},
		{"301 with seconds", 301, retryAfter("120"), 0, false},
		{"404", 404, nil, 0, false},
		{"420, which is nobody's standard", 420, retryAfter("120"), 0, false},
		{"500", 500, retryAfter("120"), 0, false},
		{"502", 502, nil, 0, false},
		{"528, which is nobody's", 528, retryAfter("120"), 0, false},
	} {
		resp := &http.Response{StatusCode: row.status, Header: at(noon, row.header)}
		if wait, asked := upstream.HTTPWait(resp); wait != row.want || asked != row.asked {
			t.Errorf("%s: got %v, %t, want %v, %t", row.name, wait, asked, row.want, row.asked)
		}
	}
	if wait, asked := upstream.HTTPWait(nil); wait != 0 || asked {
		t.Errorf("no response: got %v, %t, want none", wait, asked)
	}
}

// TestHTTPWait_Milliseconds_F64: the finer header goes first, and only where it
// names a wait. OpenAI's clients read it in this order:
// https://github.com/openai/openai-python/blob/main/src/openai/_base_client.py
func TestHTTPWait_Milliseconds_F64(t *testing.T) {
	t.Parallel()
	const other = 20 * time.Second // what Retry-After says in each row
	for _, row := range []struct {
		name, value string
		want        time.Duration
	}{
		{"milliseconds", "1500", 1500 * time.Millisecond},
		{"longer than the other", "30000", 30 * time.Second},
		{"a fraction", "19870.6", 19870600 * time.Microsecond},
		{"spaces around", " 1500\t", 1500 * time.Millisecond},
		{"the longest", "86400000", upstream.MaxWait},
		{"longer", "86400001", upstream.MaxWait},
		{"more than a Duration has", "9223372036855", upstream.MaxWait},
		{"a thousand digits", strings.Repeat("9", 1000), upstream.MaxWait},
		{"zero", "0", other},
		{"zero with a fraction", "0.000000", other},
		{"less than a nanosecond", "0.0000001", other},
		{"empty", "", other},
		{"negative", "-1500", other},
		{"plus", "+1500", other},
		{"no digits behind the point", "1500.", other},
		{"no digits before the point", ".5", other},
		{"two points", "1.5.0", other},
		{"exponent", "1e3", other},
		{"hexadecimal", "0x10", other},
		{"not a number", "NaN", other},
		{"infinite", "Inf", other},
		{"a unit", "1500ms", other},
		{"a date", "Wed, 04 Mar 2026 12:00:30 GMT", other},
	} {
		header := retryAfter("20")
		header.Set("Retry-After-Ms", row.value)
		got, _ := upstream.HTTPWait(&http.Response{StatusCode: http.StatusTooManyRequests, Header: header})
		if got != row.want {
			t.Errorf("%s (%.40q): got %v, want %v", row.name, row.value, got, row.want)
		}
	}
}

// TestHTTPWait_MillisecondsAlone: Retry-After-Ms needs no Retry-After beside it, and makes no
// other status a wait.
func TestHTTPWait_MillisecondsAlone(t *testing.T) {
	t.Parallel()
	header := http.Header{"Retry-After-Ms": {"1500"}}
	refusal := &http.Response{StatusCode: http.StatusServiceUnavailable, Header: header}
	if wait, asked := upstream.HTTPWait(refusal); wait != 1500*time.Millisecond || !asked {
		t.Errorf("503: got %v, %t, want 1.5s", wait, asked)
	}
	if wait, asked := upstream.HTTPWait(&http.Response{StatusCode: http.StatusOK, Header: header}); wait != 0 || asked {
		t.Errorf("200: got %v, %t, want none", wait, asked)
	}
}

// TestHTTPWait_ByTheUpstreamsClock_F64: a date is compared with the response's own, however wrong
// the local clock is.
func TestHTTPWait_ByTheUpstreamsClock_F64(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(10 * 365 * 24 * time.Hour) // a Unix time of the bubble's first year is a number of seconds
		now := time.Now()
		for _, off := range []time.Duration{-time.Hour, -4 * time.Minute, 0, 4 * time.Minute, time.Hour} {
			theirs := now.Add(off)
			for _, row := range []struct {
				name, value string
				date        string
				want        time.Duration
			}{
				{"a date", httpTime(theirs.Add(30 * time.Second)), httpTime(theirs), 30 * time.Second},
				{"a far date", httpTime(theirs.Add(5 * time.Minute)), httpTime(theirs), 5 * time.Minute},
				{"a Unix time", strconv.FormatInt(theirs.Unix()+30, 10), httpTime(theirs), 30 * time.Second},
				{"seconds", "30", httpTime(theirs), 30 * time.Second},
				{"no Date", httpTime(now.Add(30 * time.Second)), "", 30 * time.Second},
				{"a Date that is none", httpTime(now.Add(30 * time.Second)), "today", 30 * time.Second},
			} {
				header := retryAfter(row.value)
				header.Set("Date", row.date)
				got, _ := upstream.HTTPWait(&http.Response{StatusCode: http.StatusTooManyRequests, Header: header})
				if got != row.want {
					t.Errorf("%s, their clock %s ahead: got %v, want %v", row.name, off, got, row.want)
				}
			}
		}
	})
}

func httpTime(t time.Time) string { return t.UTC().Format(http.TimeFormat) }

// at returns a header with the time of the response.
func at(date time.Time, header http.Header) http.Header {
	dated := http.Header{"Date": {httpTime(date)}}
	maps.Copy(dated, header)
	return dated
}

func retryAfter(values ...string) http.Header { return http.Header{"Retry-After": values} }
