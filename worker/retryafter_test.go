package worker_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/worker"
)

// noon is the local time at which the rows are read.
var noon = time.Date(2026, time.March, 4, 12, 0, 0, 0, time.UTC)

func TestRetryAfter_F64(t *testing.T) {
	t.Parallel()
	const most = worker.MaxAskedWait
	for _, row := range []struct {
		name, value string
		want        time.Duration
		ok          bool
	}{
		{"no wait", "0", 0, true},
		{"seconds", "120", 2 * time.Minute, true},
		{"leading zeros", "000120", 2 * time.Minute, true},
		{"spaces around", " \t120 ", 2 * time.Minute, true},
		{"the longest", "86400", most, true},
		{"longer", "86401", most, true},
		{"10^9", "1000000000", most, true},
		{"more seconds than a Duration has", "9223372037", most, true},
		{"wraps to 1 s as nanoseconds", "18446744074", most, true},
		{"largest int64", "9223372036854775807", most, true},
		{"beyond int64", "9223372036854775808", most, true},
		{"beyond uint64", "18446744073709551616", most, true},
		{"a thousand digits", strings.Repeat("9", 1000), most, true},
		{"beyond uint64, then garbage", "18446744073709551616x", 0, false},

		{"date ahead", "Wed, 04 Mar 2026 12:00:30 GMT", 30 * time.Second, true},
		{"date ahead, RFC 850", "Wednesday, 04-Mar-26 12:00:30 GMT", 30 * time.Second, true},
		{"date ahead, asctime", "Wed Mar  4 12:00:30 2026", 30 * time.Second, true},
		{"spaces around a date", "  Wed, 04 Mar 2026 12:00:30 GMT\t", 30 * time.Second, true},
		{"date now", "Wed, 04 Mar 2026 12:00:00 GMT", 0, true},
		{"date past", "Wed, 04 Mar 2026 11:59:59 GMT", 0, true},
		{"date long past", "Sun, 06 Nov 1994 08:49:37 GMT", 0, true},
		{"year 0", "Sat, 01 Jan 0000 00:00:00 GMT", 0, true},
		{"date in two days", "Fri, 06 Mar 2026 12:00:00 GMT", most, true},
		{"date in 7,973 years", "Fri, 31 Dec 9999 23:59:59 GMT", most, true},

		{"missing", "", 0, false},
		{"spaces only", " \t ", 0, false},
		{"negative", "-1", 0, false},
		{"negative zero", "-0", 0, false},
		{"plus", "+120", 0, false},
		{"fraction", "1.5", 0, false},
		{"exponent", "1e3", 0, false},
		{"hexadecimal", "0x10", 0, false},
		{"underscore", "1_000", 0, false},
		{"two numbers", "12 0", 0, false},
		{"a list", "120, 240", 0, false},
		{"a unit", "120s", 0, false},
		{"other digits", "١٢٠", 0, false},
		{"a NUL", "120\x00", 0, false},
		{"words", "soon", 0, false},
		{"no such day", "Wed, 31 Feb 2026 12:00:00 GMT", 0, false},
		{"date of another form", "2026-03-04T12:00:30Z", 0, false},
		{"date, then garbage", "Wed, 04 Mar 2026 12:00:30 GMT x", 0, false},
	} {
		if got, ok := worker.RetryAfter(row.value, noon); got != row.want || ok != row.ok {
			t.Errorf("%s (%.40q): got %v, %t, want %v, %t", row.name, row.value, got, ok, row.want, row.ok)
		}
	}
}

// TestRetryAfter_StrangeClock_F64: a clock at the ends of time overflows nothing.
func TestRetryAfter_StrangeClock_F64(t *testing.T) {
	t.Parallel()
	const date = "Wed, 04 Mar 2026 12:00:30 GMT"
	if got, ok := worker.RetryAfter(date, time.Time{}); got != worker.MaxAskedWait || !ok {
		t.Errorf("zero time: got %v, %t, want the longest wait", got, ok)
	}
	if got, ok := worker.RetryAfter(date, time.Unix(1<<60, 0)); got != 0 || !ok {
		t.Errorf("time in 36 billion years: got %v, %t, want 0, true", got, ok)
	}
}

func TestHTTPWait_F64(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		status int
		header http.Header
		want   time.Duration // 0: no wait
	}{
		{"429 with seconds", 429, retryAfter("120"), 2 * time.Minute},
		{"429 with a date", 429, retryAfter("Wed, 04 Mar 2026 12:00:30 GMT"), 30 * time.Second},
		{"503 with seconds", 503, retryAfter("7"), 7 * time.Second},
		{"429 without", 429, nil, worker.DefaultAskedWait},
		{"503 without", 503, http.Header{}, worker.DefaultAskedWait},
		{"429 with garbage", 429, retryAfter("soon"), worker.DefaultAskedWait},
		{"429 with a negative", 429, retryAfter("-5"), worker.DefaultAskedWait},
		{"429 with zero", 429, retryAfter("0"), worker.DefaultAskedWait},
		{"429 with a date past", 429, retryAfter("Sun, 06 Nov 1994 08:49:37 GMT"), worker.DefaultAskedWait},
		{"429 with 10^9", 429, retryAfter("1000000000"), worker.MaxAskedWait},
		{"429 with two", 429, retryAfter("5", "600"), 5 * time.Second},
		{"529 with seconds", 529, retryAfter("120"), 2 * time.Minute},
		{"529 without", 529, nil, worker.DefaultAskedWait},
		{"200 with seconds", 200, retryAfter("120"), 0},
		{"301 with seconds", 301, retryAfter("120"), 0},
		{"404", 404, nil, 0},
		{"420, which is nobody's standard", 420, retryAfter("120"), 0},
		{"500", 500, retryAfter("120"), 0},
		{"502", 502, nil, 0},
		{"528, which is nobody's", 528, retryAfter("120"), 0},
	} {
		err := worker.HTTPWait("host", &http.Response{StatusCode: row.status, Header: row.header}, noon)
		if row.want == 0 {
			if err != nil {
				t.Errorf("%s: got %v, want nil", row.name, err)
			}
			continue
		}
		if wait := waitOf(t, err); wait.Delay != row.want || wait.Scope != "host" {
			t.Errorf("%s: got %v for scope %q, want %v for host", row.name, wait.Delay, wait.Scope, row.want)
		}
	}
	if err := worker.HTTPWait("host", nil, noon); err != nil {
		t.Errorf("no response: got %v, want nil", err)
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
		{"the longest", "86400000", worker.MaxAskedWait},
		{"longer", "86400001", worker.MaxAskedWait},
		{"more than a Duration has", "9223372036855", worker.MaxAskedWait},
		{"a thousand digits", strings.Repeat("9", 1000), worker.MaxAskedWait},
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
		err := worker.HTTPWait("host", &http.Response{StatusCode: http.StatusTooManyRequests, Header: header}, noon)
		if got := waitOf(t, err).Delay; got != row.want {
			t.Errorf("%s (%.40q): got %v, want %v", row.name, row.value, got, row.want)
		}
	}
}

// TestHTTPWait_MillisecondsAlone: they need no Retry-After beside them, and make no
// other status a wait.
func TestHTTPWait_MillisecondsAlone(t *testing.T) {
	t.Parallel()
	header := http.Header{"Retry-After-Ms": {"1500"}}
	err := worker.HTTPWait("host", &http.Response{StatusCode: http.StatusServiceUnavailable, Header: header}, noon)
	if got := waitOf(t, err).Delay; got != 1500*time.Millisecond {
		t.Errorf("503: got %v, want 1.5s", got)
	}
	if err := worker.HTTPWait("host", &http.Response{StatusCode: http.StatusOK, Header: header}, noon); err != nil {
		t.Errorf("200: got %v, want nil", err)
	}
}

// TestHTTPWait_CauseIsOurs: the reason phrase is any text that the upstream likes.
func TestHTTPWait_CauseIsOurs(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{
		429: "the upstream answered 429 Too Many Requests",
		529: "the upstream answered 529 Overloaded",
	} {
		err := worker.HTTPWait("host", &http.Response{StatusCode: status, Status: "429 <script>"}, noon)
		if got := waitOf(t, err).Err.Error(); got != want {
			t.Errorf("got cause %q, want %q", got, want)
		}
	}
}

func retryAfter(values ...string) http.Header { return http.Header{"Retry-After": values} }

// FuzzRetryAfter: any value, read at any time, is a wait within the bounds or none,
// and the same each time.
func FuzzRetryAfter(f *testing.F) {
	for _, value := range []string{"0", "120", "1000000000", "18446744073709551616x", "-1", "", " 5 ",
		"Wed, 04 Mar 2026 12:00:30 GMT", "Wednesday, 04-Mar-26 12:00:30 GMT", "Wed Mar  4 12:00:30 2026"} {
		f.Add(value, noon.Unix())
	}
	f.Fuzz(func(t *testing.T, value string, unix int64) {
		now := time.Unix(unix, 0)
		wait, ok := worker.RetryAfter(value, now)
		if wait < 0 || wait > worker.MaxAskedWait || !ok && wait != 0 {
			t.Errorf("got %v, %t, want within 0 and %v, and 0 if false", wait, ok, worker.MaxAskedWait)
		}
		if again, okAgain := worker.RetryAfter(value, now); again != wait || okAgain != ok {
			t.Errorf("got %v, %t, then %v, %t", wait, ok, again, okAgain)
		}
		// The header alone does not make an answer a wait, and no header unmakes one.
		resp := &http.Response{StatusCode: http.StatusTooManyRequests, Header: retryAfter(value)}
		err := worker.HTTPWait("host", resp, now)
		if err == nil {
			t.Error("a 429 is no wait")
		}
		checkWait(t, err)
		resp.Header.Set("Retry-After-Ms", value)
		checkWait(t, worker.HTTPWait("host", resp, now))
	})
}
