package upstream_test

import (
	"bufio"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/upstream"
)

// recorded are the limits in the responses in testdata/httplimits.
var recorded = []struct {
	file string
	now  string // the local time, RFC 3339; "": any
	want []upstream.HTTPLimit
}{
	{"openai-chat", "", []upstream.HTTPLimit{
		{"openai", "requests", 10_000, 9_999, 6 * time.Millisecond, 0},
		{"openai", "tokens", 30_000_000, 29_999_985, 0, 0},
	}},
	{"openai-usage-based", "", []upstream.HTTPLimit{
		{"openai", "requests", 5_000, 4_999, 12 * time.Millisecond, 0},
		{"openai", "tokens", 160_000, 159_976, 9 * time.Millisecond, 0},
		{"openai", "tokens_usage_based", 160_000, 159_976, 9 * time.Millisecond, 0},
	}},
	{"openai-documented", "", []upstream.HTTPLimit{
		{"openai", "requests", 60, 59, time.Second, 0},
		{"openai", "tokens", 150_000, 149_984, 6 * time.Minute, 0},
	}},
	{"azure-chat", "", []upstream.HTTPLimit{
		{"azure", "requests", 100, 99, 0, 0},
		{"azure", "tokens", 100_000, 99_994, 0, 0},
	}},
	{"azure-remaining", "", []upstream.HTTPLimit{
		{"azure", "requests", -1, 79, 0, 0},
		{"azure", "tokens", -1, 61_353, 0, 0},
	}},
	{"azure-none", "", nil},
	{"groq-refusal", "", []upstream.HTTPLimit{
		{"groq", "requests", 14_400, 14_399, 6 * time.Second, 24 * time.Hour},
		{"groq", "tokens", 6_000, 5_719, 2810 * time.Millisecond, time.Minute},
	}},
	{"groq-documented", "", []upstream.HTTPLimit{
		{"groq", "requests", 14_400, 14_370, 2*time.Minute + 59560*time.Millisecond, 24 * time.Hour},
		{"groq", "tokens", 18_000, 17_997, 7660 * time.Millisecond, time.Minute},
	}},
	{"groq-unmarked", "", []upstream.HTTPLimit{ // nothing tells it from OpenAI
		{"openai", "requests", 14_400, 14_398, 10332999999, 0},
		{"openai", "tokens", 30_000, 29_987, 26 * time.Millisecond, 0},
	}},
	{"anthropic-message", "2026-04-03T18:20:00Z", []upstream.HTTPLimit{ // the clock is nearly five minutes slow
		{"anthropic", "requests", 20_000, 19_998, 0, 0}, // two seconds before the response
		{"anthropic", "tokens", 24_000_000, 24_000_000, 0, 0},
		{"anthropic", "input-tokens", 20_000_000, 20_000_000, 0, 0},
		{"anthropic", "output-tokens", 4_000_000, 4_000_000, 0, 0},
	}},
	{"anthropic-hello", "2024-06-04T00:00:00Z", []upstream.HTTPLimit{ // the clock is hours fast
		{"anthropic", "requests", 5, 4, 47 * time.Second, 0},
		{"anthropic", "tokens", 10_000, 10_000, 47 * time.Second, 0},
	}},
	{"anthropic-refusal", "", []upstream.HTTPLimit{
		{"anthropic", "requests", 5, 0, time.Second, 0},
		{"anthropic", "tokens", 25_000, 16_000, time.Second, 0},
	}},
	{"anthropic-refusal-undated", "2025-06-02T15:14:45Z", []upstream.HTTPLimit{
		{"anthropic", "requests", 4_000, 4_000, 0, 0},
		{"anthropic", "tokens", 280_000, 80_000, 0, 0},
		{"anthropic", "input-tokens", 200_000, 0, 63 * time.Second, 0},
		{"anthropic", "output-tokens", 80_000, 80_000, 0, 0},
	}},
	{"anthropic-priority-documented", "2025-01-12T23:11:59Z", []upstream.HTTPLimit{
		{"anthropic", "priority-input-tokens", 10_000, 9_618, 0, 0},
		{"anthropic", "priority-output-tokens", 10_000, 6_000, 22 * time.Second, 0},
	}},
	{"github-core", "", []upstream.HTTPLimit{
		{"github", "requests", 60, 0, 26*time.Minute + 24*time.Second, 0},
	}},
	{"github-search", "", []upstream.HTTPLimit{
		{"github", "search", 30, 14, 31 * time.Second, 0},
	}},
	{"ietf-cloudflare", "", []upstream.HTTPLimit{
		{"ietf", "default", 1_200, 1_199, time.Second, 5 * time.Minute},
	}},
	{"ietf-cloudflare-documented", "", []upstream.HTTPLimit{
		{"ietf", "default", -1, 50, 30 * time.Second, 0},
		{"ietf", "burst", 100, -1, 0, time.Minute},
	}},
	{"ietf-unity-documented", "", []upstream.HTTPLimit{
		{"ietf", "requests", 20, 19, time.Second, time.Second},
		{"ietf", "requests", 4_000, -1, 0, 30 * time.Minute},
	}},
	{"ietf-persona", "", []upstream.HTTPLimit{
		{"ietf", "requests", 300, 280, 53 * time.Second, 0},
	}},
	{"ietf-docker-hub", "", []upstream.HTTPLimit{
		{"ietf", "requests", 100, 0, 0, 6 * time.Hour},
	}},
	{"ietf-gitlab-documented", "2019-07-17T00:58:00Z", []upstream.HTTPLimit{
		{"ietf", "requests", 600, 594, 57 * time.Second, 0},
	}},
}

func TestHTTPLimits_Recorded(t *testing.T) {
	t.Parallel()
	for _, row := range recorded {
		t.Run(row.file, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				if row.now != "" {
					now, err := time.Parse(time.RFC3339, row.now)
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Until(now)) // moves the clock of the bubble there
				}
				checkLimits(t, row.file, recordedLimits(t, row.file), row.want)
			})
		})
	}
}

// TestHTTPLimits_Sources: every recorded response is tested, and names its source.
func TestHTTPLimits_Sources(t *testing.T) {
	t.Parallel()
	sources, err := os.ReadFile("testdata/httplimits/sources.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/httplimits/*.http")
	if err != nil || len(files) != len(recorded) {
		t.Errorf("got %d files (%v), want the %d that are looked at", len(files), err, len(recorded))
	}
	for _, row := range recorded {
		_, source, _ := strings.Cut(string(sources), "\n| "+row.file+".http |")
		if source, _, _ = strings.Cut(source, "\n"); !strings.Contains(source, "https://") {
			t.Errorf("%s: got source %q, want an address", row.file, source)
		}
	}
}

// TestHTTPLimits_Hostile tries hostile texts in the three values of a limit.
func TestHTTPLimits_Hostile(t *testing.T) {
	t.Parallel()
	const most = upstream.MaxWait
	for _, row := range []struct {
		name, value string
		units       int64
		reset       time.Duration
	}{
		{"zero", "0", 0, 0},
		{"number", "120", 120, 2 * time.Minute},
		{"spaces around", " \t120 ", 120, 2 * time.Minute},
		{"leading zeros", "00120", 120, 2 * time.Minute},
		{"the most seconds", "86400", 86_400, most},
		{"more seconds", "86401", 86_401, most},
		{"the last that is seconds", "999999999", 999_999_999, most},
		{"the first that is a date, in 2001", "1000000000", 1_000_000_000, 0},
		{"the date of the response", "1772625600", 1_772_625_600, 0},
		{"30 s after it", "1772625630", 1_772_625_630, 30 * time.Second},
		{"two days after it", "1772798400", 1_772_798_400, most},
		{"a date in milliseconds", "1772625630000", 1_772_625_630_000, most},
		{"10^18", "1000000000000000000", 1_000_000_000_000_000_000, most},
		{"largest int64", "9223372036854775807", 9_223_372_036_854_775_807, most},
		{"beyond int64", "9223372036854775808", -1, most},
		{"beyond uint64", "18446744073709551616", -1, most},
		{"a thousand digits", strings.Repeat("9", 1000), -1, most},
		{"fraction", "17.5", -1, 17500 * time.Millisecond},
		{"a thousand digits behind the point", "1." + strings.Repeat("9", 1000), -1, 2 * time.Second},

		{"minutes", "6m0s", -1, 6 * time.Minute},
		{"a millisecond", "1ms", -1, time.Millisecond},
		{"milliseconds", "120ms", -1, 120 * time.Millisecond},
		{"seconds with a fraction", "17.5s", -1, 17500 * time.Millisecond},
		{"milliseconds with a fraction", "172.799999ms", -1, 172799999},
		{"hours", "1h32m15s", -1, time.Hour + 32*time.Minute + 15*time.Second},
		{"two days in hours", "48h", -1, most},
		{"more than a Duration has", "9223372036855s", -1, 0},
		{"RFC 3339", "2026-03-04T12:00:30Z", -1, 30 * time.Second},
		{"RFC 3339 with a fraction and a zone", "2026-03-04T13:00:30.5+01:00", -1, 30500 * time.Millisecond},
		{"RFC 3339, past", "2026-03-04T11:59:59Z", -1, 0},
		{"RFC 3339, year 0", "0000-01-01T00:00:00Z", -1, 0},
		{"RFC 3339, year 9999", "9999-12-31T23:59:59Z", -1, most},

		{"empty", "", -1, 0},
		{"negative", "-1", -1, 0},
		{"a negative that is large", "-9223372036854775808", -1, 0},
		{"negative duration", "-6m0s", -1, 0},
		{"plus", "+5", -1, 0},
		{"not a number", "NaN", -1, 0},
		{"infinite", "Inf", -1, 0},
		{"exponent", "1e3", -1, 0},
		{"hexadecimal", "0x10", -1, 0},
		{"underscore", "1_000", -1, 0},
		{"thousands", "1,000", -1, 0},
		{"days", "1d", -1, 0},
		{"no such day", "2026-02-31T12:00:00Z", -1, 0},
		{"other digits", "١٢٠", -1, 0},
		{"a NUL", "120\x00", -1, 0},
		{"words", "soon", -1, 0},
	} {
		header := http.Header{
			"Date":                           {"Wed, 04 Mar 2026 12:00:00 GMT"},
			"X-Ratelimit-Limit-Requests":     {row.value},
			"X-Ratelimit-Remaining-Requests": {row.value},
			"X-Ratelimit-Reset-Requests":     {row.value},
		}
		var want []upstream.HTTPLimit
		if row.units >= 0 || row.reset > 0 {
			want = []upstream.HTTPLimit{{"openai", "requests", row.units, row.units, row.reset, 0}}
		}
		checkLimits(t, row.name, upstream.HTTPLimits(&http.Response{Header: header}), want)
	}
}

// TestHTTPLimits_Headers: which headers are read, and as which dialect.
func TestHTTPLimits_Headers(t *testing.T) {
	t.Parallel()
	openAI := upstream.HTTPLimit{Dialect: "openai", Counts: "requests", Units: 60, Remaining: 59}
	for _, row := range []struct {
		name, head string
		want       []upstream.HTTPLimit
	}{
		{"none", "", nil},
		{"others", "Retry-After: 120\nX-RateLimit-Foo: 5", nil},
		{"GitHub's names without a mark", "X-RateLimit-Limit: 60\nX-RateLimit-Remaining: 5\nX-RateLimit-Reset: 30", nil},
		{"a mark alone", "X-GitHub-Request-Id: 1", nil},
		{"a mark without a value",
			"x-groq-region:\nx-ratelimit-limit-requests: 60\nx-ratelimit-remaining-requests: 59", []upstream.HTTPLimit{openAI}},
		{"repeated",
			"x-ratelimit-limit-requests: 60\nx-ratelimit-limit-requests: 5\nx-ratelimit-remaining-requests: 59",
			[]upstream.HTTPLimit{openAI}},
		{"repeated, the first is garbage", "x-ratelimit-limit-requests: soon\nx-ratelimit-limit-requests: 5", nil},
		{"not from a cache", "Age: 0\nx-ratelimit-limit-requests: 60\nx-ratelimit-remaining-requests: 59",
			[]upstream.HTTPLimit{openAI}},
		{"from a cache", "Age: 1\nx-ratelimit-limit-requests: 60\nx-ratelimit-remaining-requests: 59", nil},
		{"from a cache long ago", "Age: 99999999999999999999\nx-ratelimit-limit-requests: 60", nil},
		{"project", "x-ratelimit-limit-project-tokens: 60", []upstream.HTTPLimit{{"openai", "project-tokens", 60, -1, 0, 0}}},
		{"Azure by its region", "x-ms-region: East US\nx-ratelimit-reset-tokens: 55", []upstream.HTTPLimit{
			{"azure", "tokens", -1, -1, 55 * time.Second, 0}}},
		{"GitHub by its resource", "X-RateLimit-Resource: core\nX-RateLimit-Limit: 60",
			[]upstream.HTTPLimit{{"github", "core", 60, -1, 0, 0}}},
		{"GitHub with a resource too long",
			"X-GitHub-Request-Id: 1\nX-RateLimit-Limit: 60\nX-RateLimit-Resource: " + strings.Repeat("x", 129),
			[]upstream.HTTPLimit{{"github", "requests", 60, -1, 0, 0}}},
		{"all at once",
			"RateLimit: \"a\";r=1\nX-RateLimit-Resource: core\nX-RateLimit-Limit: 2\nanthropic-ratelimit-tokens-limit: 3\n" +
				"x-ratelimit-limit-tokens: 4\nx-ratelimit-limit-requests: 5\nx-groq-region: bom\napim-request-id: 1",
			[]upstream.HTTPLimit{
				{"azure", "requests", 5, -1, 0, 0},
				{"azure", "tokens", 4, -1, 0, 0},
				{"anthropic", "tokens", 3, -1, 0, 0},
				{"github", "core", 2, -1, 0, 0},
				{"ietf", "a", -1, 1, 0, 0},
			}},
	} {
		checkLimits(t, row.name, upstream.HTTPLimits(&http.Response{Header: headerOf(row.head)}), row.want)
	}
	if got := upstream.HTTPLimits(nil); got != nil {
		t.Errorf("no response: got %v, want nil", got)
	}
	if got := upstream.HTTPLimits(&http.Response{}); got != nil {
		t.Errorf("no headers: got %v, want nil", got)
	}
}

// TestHTTPLimits_Reset: a written duration is read as the same duration.
func TestHTTPLimits_Reset(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		reset := time.Duration(rapid.Int64Range(1, int64(2*upstream.MaxWait)).Draw(t, "reset"))
		want := min(reset, upstream.MaxWait)
		date := noon.Add(rapid.SampledFrom([]time.Duration{-9e18, -1e15, 0, 1e15}).Draw(t, "skew")).Truncate(time.Second)
		for name, value := range map[string]string{
			"X-Ratelimit-Reset-Tokens":         reset.String(),
			"Anthropic-Ratelimit-Tokens-Reset": date.Add(reset).Format(time.RFC3339Nano),
		} {
			header := http.Header{"Date": {date.Format(http.TimeFormat)}, name: {value}}
			got := upstream.HTTPLimits(&http.Response{Header: header})
			if len(got) != 1 || got[0].Reset != want {
				t.Errorf("%s: %s at %v: got %v, want reset %v", name, value, date, got, want)
			}
		}
	})
}

// FuzzHTTPLimits: for any headers, the returned limits are within the bounds, say something and
// are the same each time.
func FuzzHTTPLimits(f *testing.F) {
	for _, row := range recorded {
		head, err := os.ReadFile("testdata/httplimits/" + row.file + ".http")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(head))
	}
	f.Add(
		"x-ratelimit-limit-requests: -1\nx-ratelimit-remaining-requests: NaN\nx-ratelimit-reset-requests: " +
			"9223372036854775807ns")
	f.Add(
		"RateLimit: \"a;r=1, \"b\\\";r=2;t=99999999999999999999, ;;;, \"\";r=1\nRateLimit-Policy: " +
			"\"a\";q=-1;w=0,9;w=1e9\nAge: x")
	dialects := []string{"openai", "azure", "groq", "anthropic", "github", "ietf"}
	f.Fuzz(func(t *testing.T, head string) {
		resp := &http.Response{Header: headerOf(head)}
		resp.Header.Add("Date", noon.Format(http.TimeFormat)) // else the local clock is read
		limits := upstream.HTTPLimits(resp)
		for _, l := range limits {
			switch {
			case !slices.Contains(dialects, l.Dialect), l.Counts == "", len(l.Counts) > 128,
				l.Units < -1, l.Remaining < -1, l.Units == -1 && l.Remaining == -1 && l.Reset == 0,
				l.Reset < 0, l.Reset > upstream.MaxWait, l.Window < 0, l.Window > 400*24*time.Hour:
				t.Errorf("got %+v", l)
			}
		}
		if resp.Header.Get("Date") == noon.Format(http.TimeFormat) && !slices.Equal(upstream.HTTPLimits(resp), limits) {
			t.Errorf("got %v, then %v", limits, upstream.HTTPLimits(resp))
		}
	})
}

// recordedLimits returns the limits in a response in testdata/httplimits.
func recordedLimits(t *testing.T, file string) []upstream.HTTPLimit {
	t.Helper()
	f, err := os.Open("testdata/httplimits/" + file + ".http")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	resp, err := http.ReadResponse(bufio.NewReader(f), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return upstream.HTTPLimits(resp)
}

// headerOf returns the headers of a head, one a line. A line without a colon is left out.
func headerOf(head string) http.Header {
	header := make(http.Header)
	for line := range strings.SplitSeq(head, "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			header.Add(name, strings.Trim(value, " \t\r"))
		}
	}
	return header
}

func checkLimits(t *testing.T, name string, got, want []upstream.HTTPLimit) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%.60s:\ngot  %+v\nwant %+v", name, got, want)
	}
}
