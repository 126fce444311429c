package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// dawn is when the stories of these tests begin: the edge of every sub-window in
// use.
var dawn = time.UnixMicro(1_800_000_000_000_000)

// nearly is a throttle with a calendar of a second, told the time.
func nearly(t testing.TB, client *redis.Client, scopes []throttle.Scope, options throttle.Options) *scripted {
	t.Helper()
	options.Lookahead = time.Second
	return newScripted(newThrottle(t, client, scopes, &options))
}

// comes asks for a job, which must become of it what is expected.
func comes(t testing.TB, s *scripted, at time.Duration, job throttle.Job, want throttle.Outcome) throttle.Reservation {
	t.Helper()
	job.Weight = max(1, job.Weight)
	r, err := s.Reserve(dawn.Add(at), job)
	if err != nil || r.Outcome != want {
		t.Fatalf("%.60q is %s, %v; want %s", job.ID, r.Outcome, err, want)
	}
	return r
}

// allLines reads all pages, each of at most most lines.
func allLines(t testing.TB, s *scripted, at time.Duration, most int) map[string]throttle.Line {
	t.Helper()
	lines := make(map[string]throttle.Line)
	for from := ""; ; {
		page, err := s.Lines(dawn.Add(at), from)
		if err != nil || len(page.Lines) > most || !page.Now.Equal(dawn.Add(at)) {
			t.Fatalf("a page of %d lines, at %s: %v", len(page.Lines), page.Now, err)
		}
		for _, line := range page.Lines {
			if _, twice := lines[line.Key]; twice {
				t.Fatalf("line %.60q is told twice", line.Key)
			}
			if line.End.Before(page.Now) || line.End.After(page.Now.Add(throttle.MaxWindow)) {
				t.Fatalf("line %.60q ends at %s; it is %s", line.Key, line.End, page.Now)
			}
			lines[line.Key] = line
		}
		if from = page.Next; from == "" {
			return lines
		}
	}
}

var butEnd = cmpopts.IgnoreFields(throttle.Line{}, "End")

// TestLinesPages: of very many fair keys each is told once where nothing changes
// meanwhile, in pages of a bounded size. Miniredis tells all in one page, and is
// slow.
func TestLinesPages(t *testing.T) {
	t.Parallel()
	pages := func(t *testing.T, client *redis.Client, keys, most int) {
		s := nearly(t, client, tenantAndGlobal(throttle.Per(100, 10*time.Second), throttle.Per(3, 10*time.Second)), throttle.Options{})
		comes(t, s, 0, throttle.Job{ID: "first", Weight: 3, Keys: of("k0")}, throttle.Granted)
		comes(t, s, 9500*time.Millisecond, throttle.Job{ID: "booked", Weight: 3, Keys: of("k0")}, throttle.Booked)
		want := make(map[string]throttle.Line)
		for i := range keys {
			line := throttle.Line{Key: fmt.Sprintf("k%d", i), Share: 1}
			for range 1 + i%2 {
				job := throttle.Job{ID: fmt.Sprintf("%s-%d", line.Key, line.Jobs), Weight: int64(1 + i%3), Keys: of(line.Key)}
				comes(t, s, 9500*time.Millisecond, job, throttle.Waiting)
				line.Jobs, line.Units = line.Jobs+1, line.Units+job.Weight
			}
			want[line.Key] = line
		}
		first := want["k0"]
		first.Booked = 3
		want["k0"] = first
		if diff := cmp.Diff(want, allLines(t, s, 9500*time.Millisecond, most), butEnd); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		pages(t, miniClient(t), 200, 200)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		pages(t, redistest.Shared(t).Client(t), 2000, 600) // looks at 500 and what shares the last one's bucket
	})
}

// TestLinesOfVeryMany: 10^5 fair keys with 10^6 jobs in line are told in pages that are
// bounded, each key once. The line's hash is written as docs/redis-state.md has it: what
// a page costs is by its fields, however they came there.
func TestLinesOfVeryMany(t *testing.T) {
	t.Parallel()
	const most, each = 600, 10 // looks at 500 and what shares the last one's bucket
	keys := longtest.Of(10_000, 100_000)
	if raced {
		keys = 10_000
	}
	client := redistest.Shared(t).Client(t)
	s := nearly(t, client, tenantAndGlobal(throttle.Per(3, 10*time.Second), throttle.Per(1000, 10*time.Second)), throttle.Options{})
	if err := s.SetLimits(dawn, "tenant", "tenant-7", []throttle.Limit{throttle.PerHour(1)}); err != nil {
		t.Fatal(err)
	}
	hash := "thr:{" + s.throttle.Name() + "}:3:line"
	t.Cleanup(func() { client.Unlink(context.WithoutCancel(t.Context()), hash) })
	pipe := client.Pipeline()
	for i := range keys {
		fair := fmt.Sprint("tenant-", i)
		pipe.HSet(t.Context(), hash, "@"+fair, fmt.Sprintf("%d %d %s|", each, each, fair), "/"+fair+"|", fmt.Sprintf("%d %d", each, each), "#"+fair, "3")
		if i%5000 == 4999 {
			if _, err := pipe.Exec(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	told, jobs, pages, largest, longest := make(map[string]bool), int64(0), 0, 0, time.Duration(0)
	began := time.Now()
	for from := ""; ; {
		at := time.Now()
		page, err := s.Lines(dawn, from)
		if err != nil {
			t.Fatal(err)
		}
		pages, largest, longest = pages+1, max(largest, len(page.Lines)), max(longest, time.Since(at))
		for _, line := range page.Lines {
			told[line.Key] = true
			jobs += line.Jobs
			want := dawn.Add(43333333 * time.Microsecond) // 13 units, 3 in 10 s
			if line.Key == "tenant-7" {
				want = dawn.Add(13 * time.Hour)
			}
			if !line.End.Equal(want) {
				t.Fatalf("line %s ends at %s, want %s", line.Key, line.End, want)
			}
		}
		if from = page.Next; from == "" {
			break
		}
	}
	t.Logf("%d lines in %d pages of at most %d in %s, the longest took %s", len(told), pages, largest, time.Since(began).Round(time.Millisecond), longest)
	if len(told) != keys || jobs != int64(keys)*each || largest > most {
		t.Errorf("%d keys with %d jobs, in pages of at most %d; want %d, %d, %d", len(told), jobs, largest, keys, keys*each, most)
	}
}

// TestLinesKeys: whatever bytes a fair key has, its line is told by it, or by its
// hash where only that is left. Its lane is pulled and its jobs are cancelled.
func TestLinesKeys(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := nearly(t, client, tenantAndGlobal(throttle.Per(100, 10*time.Second), throttle.Per(200, 10*time.Second)), throttle.Options{})
		comes(t, s, 0, throttle.Job{ID: "first", Weight: 100, Keys: of("x")}, throttle.Granted)
		comes(t, s, 0, throttle.Job{ID: "second", Weight: 100, Keys: of("y")}, throttle.Granted)
		want := make(map[string]throttle.Line)
		for i, key := range hostile {
			if key == "" {
				continue // no key at all
			}
			r := comes(t, s, time.Second, throttle.Job{ID: fmt.Sprint(i), Keys: of(key)}, throttle.Waiting)
			if encoded := throttle.Encode(key); strings.HasPrefix(encoded, "~") {
				key = encoded
			}
			want[key] = throttle.Line{Key: key, Share: 1, Jobs: 1, Units: 1}
			if i == 0 && r.Next == "" {
				t.Error("the first in line is not to be pulled")
			}
		}
		if diff := cmp.Diff(want, allLines(t, s, time.Second, len(hostile)), butEnd); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		booked := drain(t, s, dawn.Add(10*time.Second))
		if len(booked) != len(want) {
			t.Errorf("%d of %d jobs are booked when there is room", len(booked), len(want))
		}
		for _, r := range booked {
			if done, err := s.Cancel(dawn.Add(10*time.Second), r.Job); err != nil || !done {
				t.Errorf("Cancel %.60q: %t, %v", r.Job.Lane, done, err)
			}
		}
	})
}

// TestLinesWithoutFairScope: there is one line then, for no key.
func TestLinesWithoutFairScope(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		for name, options := range map[string]throttle.Options{"no scope": {FairScope: throttle.Global}, "as if by its default": {}} {
			scopes := tenantAndGlobal(throttle.Per(100, 10*time.Second), throttle.Per(2, 10*time.Second))
			if options.FairScope == "" {
				scopes[0].Name = "customer"
			}
			s := nearly(t, client, scopes, options)
			keys := func(value string) map[string]string { return map[string]string{scopes[0].Name: value} }
			comes(t, s, 0, throttle.Job{ID: "first", Weight: 2, Keys: keys("a")}, throttle.Granted)
			comes(t, s, time.Second, throttle.Job{ID: "a", Weight: 2, Keys: keys("a")}, throttle.Waiting)
			comes(t, s, time.Second, throttle.Job{ID: "b", Keys: keys("b")}, throttle.Waiting)
			// 3 units wait for 2 in 10 s, with nobody to share with.
			want := map[string]throttle.Line{"": {Share: 1, Jobs: 2, Units: 3, End: dawn.Add(time.Second + 15*time.Second)}}
			if diff := cmp.Diff(want, allLines(t, s, time.Second, 1)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	})
}

// TestLinesFromNowhere: a page that no answer has named is refused.
func TestLinesFromNowhere(t *testing.T) {
	t.Parallel()
	s := nearly(t, miniClient(t), globalScope(throttle.PerSecond(1)), throttle.Options{})
	for _, from := range []string{"x", "-1", "+1", "1.5", " 1", "1 ", "0x1", "1_0", "18446744073709551616"} {
		page, err := s.Lines(dawn, from)
		var wrong *throttle.InvalidJobError
		if !errors.As(err, &wrong) || wrong.Field != "from" || wrong.Reason == "" {
			t.Errorf("from %q: got %v, %v", from, page, err)
		}
	}
	page, err := s.Lines(dawn, "")
	if diff := cmp.Diff(throttle.LinesPage{Now: dawn}, page); diff != "" || err != nil {
		t.Errorf("nobody waits: %v (-want +got):\n%s", err, diff)
	}
}

// TestLineShare: what Options.Shares says of a key goes before what Options.Share
// says, which is brought into the range of shares; a line's end is by its share.
func TestLineShare(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long", 100)
	options := throttle.Options{
		Shares: map[string]int{"a": 3, "é|,=": 2},
		Share: func(key string) int {
			return map[string]int{"a": 9, "b": 0, "c": -7, "d": throttle.MaxShare + 1, "e": 7, long: 9}[key]
		},
	}
	// Of 2 units in 10 s each takes its share; the 6 others count with 1 each.
	want := map[string]throttle.Line{
		"a":                   {Share: 3, End: dawn.Add(15 * time.Second)},                     // 1 x (3+6)/3 / 2 x 10s
		"é|,=":                {Share: 2, End: dawn.Add(20 * time.Second)},                     // 1 x (2+6)/2 / 2 x 10s
		"b":                   {Share: 1, End: dawn.Add(35 * time.Second)},                     // 1 x (1+6)/1 / 2 x 10s
		"c":                   {Share: 1, End: dawn.Add(35 * time.Second)},                     // the same
		"d":                   {Share: 1_000_000, End: dawn.Add(5_000_030 * time.Microsecond)}, // 1 x 1000006/1000000 / 2 x 10s
		"e":                   {Share: 7, End: dawn.Add(9_285_714 * time.Microsecond)},         // 1 x 13/7 / 2 x 10s
		throttle.Encode(long): {Share: 1, End: dawn.Add(35 * time.Second)},
	}
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := nearly(t, client, tenantAndGlobal(throttle.Per(100, 10*time.Second), throttle.Per(2, 10*time.Second)), options)
		comes(t, s, 0, throttle.Job{ID: "first", Weight: 2, Keys: of("a")}, throttle.Granted)
		for _, key := range []string{"a", "é|,=", "b", "c", "d", "e", long} {
			comes(t, s, 0, throttle.Job{ID: key, Keys: of(key)}, throttle.Waiting)
			encoded := key
			if key == long {
				encoded = throttle.Encode(long)
			}
			line := want[encoded]
			line.Key, line.Jobs, line.Units = encoded, 1, 1
			want[encoded] = line
		}
		if diff := cmp.Diff(want, allLines(t, s, 0, len(want))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestLinesEnd: a line's end is by what is in force on its fair key and on all,
// whoever has set it, and after the pauses.
func TestLinesEnd(t *testing.T) {
	t.Parallel()
	// Each of two keys has 4 jobs in line, under 1 in 10 s for itself and 100 for all.
	const configured = 40 * time.Second
	type change func(*scripted) error
	global := func(limits ...throttle.Limit) change {
		return func(s *scripted) error { return s.SetLimits(dawn, throttle.Global, "", limits) }
	}
	tenant := func(key string, limits ...throttle.Limit) change {
		return func(s *scripted) error { return s.SetLimits(dawn, "tenant", key, limits) }
	}
	pause := func(scope, key string, length time.Duration) change {
		return func(s *scripted) error { _, err := s.Pause(dawn, scope, key, dawn.Add(length)); return err }
	}
	mode := func(scope string, mode throttle.Mode) change {
		return func(s *scripted) error { return s.SetMode(dawn, scope, mode) }
	}
	rows := map[string]struct {
		set  []change
		a, b time.Duration
	}{
		"as configured": {nil, configured, configured},
		"of a key":      {[]change{tenant("a", throttle.PerHour(1))}, 4 * time.Hour, configured},
		"of all keys":   {[]change{tenant("", throttle.PerHour(2))}, 2 * time.Hour, 2 * time.Hour},
		"of all and one": {
			[]change{tenant("", throttle.PerHour(2)), tenant("b", throttle.Per(4, time.Minute), throttle.PerDay(8))},
			2 * time.Hour, 12 * time.Hour,
		},
		"shared":        {[]change{global(throttle.PerHour(4))}, 2 * time.Hour, 2 * time.Hour}, // half for each
		"lifted":        {[]change{tenant("a", throttle.Per(throttle.Unlimited, time.Second))}, 800 * time.Millisecond, configured},
		"blocked":       {[]change{tenant("a", throttle.Per(0, time.Second))}, throttle.MaxWindow, configured},
		"paused":        {[]change{pause("tenant", "b", time.Hour)}, configured, time.Hour + configured},
		"all paused":    {[]change{pause(throttle.Global, "", time.Hour), pause("tenant", "a", time.Minute)}, time.Hour + configured, time.Hour + configured},
		"pause is over": {[]change{pause("tenant", "b", -time.Hour)}, configured, configured},
		"in shadow":     {[]change{pause("tenant", "b", time.Hour), mode("tenant", throttle.Shadow)}, 800 * time.Millisecond, 800 * time.Millisecond},
		"off":           {[]change{pause(throttle.Global, "", time.Hour), mode("", throttle.Off)}, 0, 0},
		"set and off":   {[]change{tenant("a", throttle.PerHour(1)), mode("", throttle.Enforce), mode(throttle.Global, throttle.Off)}, 4 * time.Hour, configured},
	}
	onServers(t, func(t *testing.T, client *redis.Client) {
		for name, row := range rows {
			scopes := tenantAndGlobal(throttle.Per(1, 10*time.Second), throttle.Per(100, 10*time.Second))
			setter := nearly(t, client, scopes, throttle.Options{})
			th := newScripted(sameAs(t, client, setter.throttle, scopes, throttle.Options{Lookahead: time.Second}))
			for _, key := range []string{"a", "b"} {
				comes(t, th, 0, throttle.Job{ID: key + "first", Keys: of(key)}, throttle.Granted)
				for i := range 4 {
					comes(t, th, 0, throttle.Job{ID: fmt.Sprint(key, i), Keys: of(key)}, throttle.Waiting)
				}
			}
			for _, set := range row.set {
				if err := set(setter); err != nil { // which th is not told of
					t.Fatal(err)
				}
			}
			lines := allLines(t, th, 0, 2)
			got := [2]time.Duration{lines["a"].End.Sub(dawn), lines["b"].End.Sub(dawn)}
			if want := [2]time.Duration{row.a, row.b}; got != want {
				t.Errorf("%s: the lines end after %s, want %s", name, got, want)
			}
		}
	})
}
