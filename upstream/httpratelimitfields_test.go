package upstream_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/upstream"
)

// TestHTTPLimits_IETF: the first rows are examples of the draft, of version 11 unless a row
// names another version: https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11
func TestHTTPLimits_IETF(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, head string
		want       []upstream.HTTPLimit
	}{
		{"two policies", `RateLimit-Policy: "permin";q=50;w=60,"perhr";q=1000;w=3600`, []upstream.HTTPLimit{
			{"ietf", "permin", 50, -1, 0, time.Minute},
			{"ietf", "perhr", 1000, -1, 0, time.Hour}}},
		{"a policy with a unit and a partition",
			`RateLimit-Policy: "peruser";q=65535;qu="content-bytes";w=10;pk=:sdfjLJUOUH==:`, []upstream.HTTPLimit{
				{"ietf", "peruser", 65535, -1, 0, 10 * time.Second}}},
		{"a limit with a partition", `RateLimit: "default";r=999;pk=:dHJpYWwxMjEzMjM=:`, []upstream.HTTPLimit{
			{"ietf", "default", -1, 999, 0, 0}}},
		{"version 07", "RateLimit: limit=100, remaining=50, reset=50\nRateLimit-Policy: 100;w=3600", []upstream.HTTPLimit{
			{"ietf", "requests", 100, 50, 50 * time.Second, time.Hour}}},
		{"version 06", "RateLimit-Limit: 10\nRateLimit-Remaining: 9\nRateLimit-Reset: 4\nRateLimit-Policy: 10;w=5",
			[]upstream.HTTPLimit{
				{"ietf", "requests", 10, 9, 4 * time.Second, 5 * time.Second}}},
		{"version 03", "RateLimit-Limit: 10, 10;w=1, 50;w=60\nRateLimit-Remaining: 9\nRateLimit-Reset: 1",
			[]upstream.HTTPLimit{
				{"ietf", "requests", 10, 9, time.Second, time.Second},
				{"ietf", "requests", 50, -1, 0, time.Minute}}},

		{"joined by units", "RateLimit: limit=50, remaining=9, reset=1\nRateLimit-Policy: 10;w=1, 50;w=60",
			[]upstream.HTTPLimit{
				{"ietf", "requests", 50, 9, time.Second, time.Minute},
				{"ietf", "requests", 10, -1, 0, time.Second}}},
		{"joined with the first", "RateLimit: limit=50, remaining=9\nRateLimit-Policy: 50;w=1, 50;w=60", []upstream.HTTPLimit{
			{"ietf", "requests", 50, 9, 0, time.Second},
			{"ietf", "requests", 50, -1, 0, time.Minute}}},
		{"joined by name", "RateLimit-Policy: \"a\";q=1;w=2, \"b\";q=3\nRateLimit: \"b\";r=0;t=5, \"a\";r=1",
			[]upstream.HTTPLimit{
				{"ietf", "b", 3, 0, 5 * time.Second, 0},
				{"ietf", "a", 1, 1, 0, 2 * time.Second}}},
		{"two partitions of a policy",
			"RateLimit-Policy: \"a\";q=9;w=2\nRateLimit: \"a\";r=1;pk=:eA==:, \"a\";r=2;pk=:eQ==:", []upstream.HTTPLimit{
				{"ietf", "a", 9, 1, 0, 2 * time.Second},
				{"ietf", "a", 9, 2, 0, 2 * time.Second}}},
		{"several lines", "RateLimit: \"a\";r=1\nRateLimit: \"b\";r=2", []upstream.HTTPLimit{
			{"ietf", "a", -1, 1, 0, 0},
			{"ietf", "b", -1, 2, 0, 0}}},
		{"a name with separators", `RateLimit: "a, \"b\";r=\\5";r=1`, []upstream.HTTPLimit{
			{"ietf", `a, "b";r=\5`, -1, 1, 0, 0}}},
		{"spaces", "RateLimit: \"a\"; r=1;  t=2 ,\t\"b\"; r=3", []upstream.HTTPLimit{
			{"ietf", "a", -1, 1, 2 * time.Second, 0},
			{"ietf", "b", -1, 3, 0, 0}}},
		{"a parameter twice", `RateLimit: "a";r=1;r=2`, []upstream.HTTPLimit{{"ietf", "a", -1, 2, 0, 0}}},
		{"a parameter without a value", `RateLimit: "a";x;r=2`, []upstream.HTTPLimit{{"ietf", "a", -1, 2, 0, 0}}},
		{"the newer form goes first", "RateLimit: \"a\";r=1\nRateLimit-Limit: 5, 5;w=1\nRateLimit-Remaining: 4",
			[]upstream.HTTPLimit{
				{"ietf", "a", -1, 1, 0, 0}}},
		{"a newer form of garbage does not", "RateLimit: soon\nRateLimit-Limit: 5\nRateLimit-Remaining: 4",
			[]upstream.HTTPLimit{
				{"ietf", "requests", 5, 4, 0, 0}}},
		{"of the window 400 days", `RateLimit-Policy: "a";q=1;w=34560000`,
			[]upstream.HTTPLimit{{"ietf", "a", 1, -1, 0, 400 * 24 * time.Hour}}},
		{"of a longer one nothing", `RateLimit-Policy: "a";q=1;w=34560001`, []upstream.HTTPLimit{{"ietf", "a", 1, -1, 0, 0}}},
		{"of no window", `RateLimit-Policy: "a";q=1;w=0`, []upstream.HTTPLimit{{"ietf", "a", 1, -1, 0, 0}}},
		{"of a reset of no integer", `RateLimit: "a";r=1;t=soon`, []upstream.HTTPLimit{{"ietf", "a", -1, 1, 0, 0}}},
		{"a reset that is long", `RateLimit: "a";r=1;t=99999999999999999999`,
			[]upstream.HTTPLimit{{"ietf", "a", -1, 1, upstream.MaxWait, 0}}},
		{"a name of 128", `RateLimit: "` + strings.Repeat("x", 128) + `";r=1`,
			[]upstream.HTTPLimit{{"ietf", strings.Repeat("x", 128), -1, 1, 0, 0}}},
	} {
		checkLimits(t, row.name, upstream.HTTPLimits(&http.Response{Header: headerOf(row.head)}), row.want)
	}
}

// TestHTTPLimits_IETFMalformed: a malformed member is skipped. The members after it are read, if
// it is clear where they begin.
func TestHTTPLimits_IETFMalformed(t *testing.T) {
	t.Parallel()
	for _, malformed := range []string{
		``, `;`, `;;;`, `a`, `"a"`, `"a";r`, `"a";r=`, `"a";r=-1`, `"a";r="1"`, `"a";r=1.5`, `"a";r=1e3`, `"a";r=NaN`,
		`"a";r=9223372036854775808`, `"a";r=1;t=`, `"a";=1`, `"a";r=1;T=2`, `"a";1=2;r=1`, `"a";é=2;r=1`, `"";r=1`,
		`a;r=1`, `5;r=1`,
		`?1;r=1`, `:YQ==:;r=1`, `("a");r=1`, `"a"b"c";r=1`, `"a\b";r=1`, `"é";r=1`, "\"a\tb\";r=1",
		`"` + strings.Repeat("x", 129) + `";r=1`,
		`"a" ;r=1`, `a="b";r=1`, `limit=-1`, `remaining`, `reset=0`,
	} {
		field := "RateLimit: " + malformed
		checkLimits(t, field, upstream.HTTPLimits(&http.Response{Header: headerOf(field)}), nil)
		field += `, "z";r=7`
		want := []upstream.HTTPLimit{{"ietf", "z", -1, 7, 0, 0}}
		checkLimits(t, field, upstream.HTTPLimits(&http.Response{Header: headerOf(field)}), want)
	}
	for _, unended := range []string{`"a;r=1, "z";r=7`, `"a"b";r=1, "z";r=7`, `"a\";r=1`, `"a\`, `"`} {
		checkLimits(t, unended, upstream.HTTPLimits(&http.Response{Header: http.Header{"Ratelimit": {unended}}}), nil)
	}
	for _, malformed := range []string{`"a"`, `"a";w=60`, `"a";q=-1;w=60`, `"a";q=x`, `100`, `100;w=0`, `100;w=-1`,
		`-1;w=60`, `x;w=60`, `x=5;w=60`} {
		field := "RateLimit-Policy: " + malformed
		checkLimits(t, field, upstream.HTTPLimits(&http.Response{Header: headerOf(field)}), nil)
	}
}

// TestHTTPLimits_IETFEndless: a very long field is read up to a bound.
func TestHTTPLimits_IETFEndless(t *testing.T) {
	t.Parallel()
	field := strings.Repeat(`"a";r=1,`, 100_000)
	if got := upstream.HTTPLimits(&http.Response{Header: http.Header{"Ratelimit": {field, field}}}); len(got) != 32 {
		t.Errorf("got %d limits, want 32", len(got))
	}
}

// TestHTTPLimits_IETFNames: a name that is written as a string is read as that name,
// and joined with its policy, in whatever order the policies stand. For printable
// ASCII, Go quotes a string as a structured field does.
func TestHTTPLimits_IETFNames(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[ -~]{1,9}`), 1, 9, rapid.ID).Draw(t, "names")
		header := make(http.Header)
		var want []upstream.HTTPLimit
		for i, name := range names {
			header.Add("RateLimit", fmt.Sprintf("%q;r=%d;t=%d", name, i, i+1))
			want = append(want, upstream.HTTPLimit{
				Dialect: "ietf", Counts: name, Units: int64(i + 10), Remaining: int64(i),
				Reset: time.Duration(i+1) * time.Second, Window: time.Duration(i+60) * time.Second,
			})
		}
		var policies []string
		for _, i := range rapid.Permutation(indexes(len(names))).Draw(t, "order") {
			policies = append(policies, fmt.Sprintf("%q;q=%d;w=%d", names[i], i+10, i+60))
		}
		header.Set("RateLimit-Policy", strings.Join(policies, ", "))
		if got := upstream.HTTPLimits(&http.Response{Header: header}); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	})
}

// indexes returns the numbers 0 to n-1.
func indexes(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
