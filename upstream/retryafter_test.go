package upstream_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/upstream"
)

// noon is the local time at which the rows are read.
var noon = time.Date(2026, time.March, 4, 12, 0, 0, 0, time.UTC)

func TestRetryAfter_F64(t *testing.T) {
	t.Parallel()
	const most = upstream.MaxWait
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
		{"a fraction", "1.5", 1500 * time.Millisecond, true},
		{"a fraction of nothing", "2.0", 2 * time.Second, true},
		{"the most seconds", "999999999", most, true},
		{"a Unix time ahead", strconv.FormatInt(noon.Unix()+30, 10), 30 * time.Second, true},
		{"a Unix time ahead, with a fraction", strconv.FormatInt(noon.Unix()+30, 10) + ".25", 30 * time.Second, true},
		{"a Unix time past", strconv.FormatInt(noon.Unix()-1, 10), 0, true},
		{"10^9, a Unix time long past", "1000000000", 0, true},
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
		{"date of RFC 3339", "2026-03-04T12:00:30Z", 30 * time.Second, true},
		{"date of RFC 3339, elsewhere", "2026-03-04T13:00:30+01:00", 30 * time.Second, true},
		{"date of RFC 3339 past", "2026-03-04T11:00:30Z", 0, true},
		{"date in 7,973 years", "Fri, 31 Dec 9999 23:59:59 GMT", most, true},

		{"a duration", "1m2.5s", 62500 * time.Millisecond, true},
		{"a duration of one unit", "120s", 2 * time.Minute, true},
		{"a long duration", "2540400h", most, true},
		{"beyond a duration", "2562048h", 0, false},
		{"a negative duration", "-5s", 0, false},
		{"a duration with a plus", "+5s", 0, false},

		{"missing", "", 0, false},
		{"spaces only", " \t ", 0, false},
		{"negative", "-1", 0, false},
		{"negative zero", "-0", 0, false},
		{"plus", "+120", 0, false},
		{"no digits behind the point", "1500.", 0, false},
		{"no digits before the point", ".5", 0, false},
		{"two points", "1.5.0", 0, false},
		{"exponent", "1e3", 0, false},
		{"hexadecimal", "0x10", 0, false},
		{"underscore", "1_000", 0, false},
		{"two numbers", "12 0", 0, false},
		{"a list", "120, 240", 0, false},
		{"other digits", "١٢٠", 0, false},
		{"a NUL", "120\x00", 0, false},
		{"words", "soon", 0, false},
		{"no such day", "Wed, 31 Feb 2026 12:00:00 GMT", 0, false},
		{"date of another form", "2026-03-04 12:00:30", 0, false},
		{"date, then garbage", "Wed, 04 Mar 2026 12:00:30 GMT x", 0, false},
	} {
		if got, ok := upstream.RetryAfter(row.value, noon); got != row.want || ok != row.ok {
			t.Errorf("%s (%.40q): got %v, %t, want %v, %t", row.name, row.value, got, ok, row.want, row.ok)
		}
	}
}

// TestRetryAfter_StrangeClock_F64: a clock at the ends of time overflows nothing.
func TestRetryAfter_StrangeClock_F64(t *testing.T) {
	t.Parallel()
	const date = "Wed, 04 Mar 2026 12:00:30 GMT"
	if got, ok := upstream.RetryAfter(date, time.Time{}); got != upstream.MaxWait || !ok {
		t.Errorf("zero time: got %v, %t, want the longest wait", got, ok)
	}
	if got, ok := upstream.RetryAfter(date, time.Unix(1<<60, 0)); got != 0 || !ok {
		t.Errorf("time in 36 billion years: got %v, %t, want 0, true", got, ok)
	}
}

// FuzzRetryAfter: any value, read at any time, is a wait within the bounds or no wait, and the
// same each time.
func FuzzRetryAfter(f *testing.F) {
	for _, value := range []string{"0", "120", "1000000000", "18446744073709551616x", "-1", "", " 5 ",
		"Wed, 04 Mar 2026 12:00:30 GMT", "Wednesday, 04-Mar-26 12:00:30 GMT", "Wed Mar  4 12:00:30 2026", "2.0", "1m2.5s",
		"1772625630", "1772625630.5", "2026-03-04T12:00:30Z"} {
		f.Add(value, noon.Unix())
	}
	f.Fuzz(func(t *testing.T, value string, unix int64) {
		now := time.Unix(unix, 0)
		wait, ok := upstream.RetryAfter(value, now)
		if wait < 0 || wait > upstream.MaxWait || !ok && wait != 0 {
			t.Errorf("got %v, %t, want within 0 and %v, and 0 if false", wait, ok, upstream.MaxWait)
		}
		if again, okAgain := upstream.RetryAfter(value, now); again != wait || okAgain != ok {
			t.Errorf("got %v, %t, then %v, %t", wait, ok, again, okAgain)
		}
		// The header alone does not make an answer a wait, and no header unmakes one.
		header := retryAfter(value)
		checkWait(t, header)
		header.Set("Retry-After-Ms", value)
		checkWait(t, header)
	})
}

// checkWait fails unless a refusal with these headers asks to wait, within the bounds.
func checkWait(t *testing.T, header http.Header) {
	t.Helper()
	wait, asked := upstream.HTTPWait(&http.Response{StatusCode: http.StatusTooManyRequests, Header: header})
	if !asked || wait < 0 || wait > upstream.MaxWait {
		t.Errorf("%v: got %v, %t, want a wait from 0 to %v", header, wait, asked, upstream.MaxWait)
	}
}
