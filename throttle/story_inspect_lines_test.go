package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// dawn is when the stories of these tests begin: the edge of every sub-window in
// use.
var dawn = time.UnixMicro(1_800_000_000_000_000)

// nearly returns a throttle with a lookahead of a second, whose time the test sets.
func nearly(t testing.TB, client *redis.Client, scopes []throttle.Scope, options throttle.Options) *scripted {
	t.Helper()
	options.Lookahead = time.Second
	return newScripted(newThrottle(t, client, scopes, &options))
}

// comes asks for a job, and fails the test unless it has the expected outcome.
func comes(t testing.TB, s *scripted, at time.Duration, job throttle.Job, want throttle.Outcome) throttle.Reservation {
	t.Helper()
	job.Weight = max(1, job.Weight)
	r, err := s.Reserve(dawn.Add(at), job)
	if err != nil || r.Outcome != want {
		t.Fatalf("%.60q is %s, %v; want %s", job.ID, r.Outcome, err, want)
	}
	return r
}

// allLines reads all pages, each of at most most lines, by scope and key.
func allLines(t testing.TB, s *scripted, at time.Duration, most int) map[string]inspect.Line {
	t.Helper()
	lines := make(map[string]inspect.Line)
	for from := ""; ; {
		page, err := s.Lines(dawn.Add(at), from)
		if err != nil || len(page.Lines) > most || !page.Now.Equal(dawn.Add(at)) {
			t.Fatalf("a page of %d lines, at %s: %v", len(page.Lines), page.Now, err)
		}
		for _, line := range page.Lines {
			name := line.Scope + " " + line.Key
			if _, twice := lines[name]; twice {
				t.Fatalf("line %.60q is told twice", name)
			}
			lines[name] = line
		}
		if from = page.Next; from == "" {
			return lines
		}
	}
}

// TestLinesPages: Lines returns each of very many scope keys once if nothing changes meanwhile, in
// pages of a bounded size.
func TestLinesPages(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	pages := func(t *testing.T, client *redis.Client, keys int) {
		s := nearly(t, client, tenantAndGlobal(throttle.Per(1, 10*time.Second),
			throttle.Per(100_000, 10*time.Second)), throttle.Options{})
		want := make(map[string]inspect.Line)
		for i := range keys {
			key := fmt.Sprintf("k%d", i)
			at := time.Duration(i) * time.Microsecond
			comes(t, s, at, throttle.Job{ID: key, Keys: of(key)}, throttle.Granted)
			for n := range 1 + i%2 {
				comes(t, s, at, throttle.Job{ID: fmt.Sprint(key, "-", n), Keys: of(key)}, throttle.Waiting)
			}
			want["tenant "+key] = inspect.Line{Scope: "tenant", Key: key, Flows: 1, Looked: dawn.Add(at + 9*time.Second)}
		}
		if diff := cmp.Diff(want, allLines(t, s, time.Second, 500)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		pages(t, miniClient(t), 600)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		pages(t, redistest.Shared(t).Client(t), longtest.Of(1200, 2000))
	})
}

// TestLinesOfVeryMany: Lines returns 10^5 scope keys under which jobs wait in bounded pages, each
// once. The test writes the line as docs/redis-state.md describes it: the cost of a page depends
// on the number of scope keys, not on how they came there.
func TestLinesOfVeryMany(t *testing.T) {
	t.Parallel()
	keys := longtest.Of(10_000, 100_000)
	client := redistest.Shared(t).Client(t)
	s := nearly(t, client, tenantAndGlobal(throttle.Per(3, 10*time.Second), throttle.Per(1000, 10*time.Second)),
		throttle.Options{})
	prefix := "thr:{" + s.throttle.Name() + "}:4:"
	pipe := client.Pipeline()
	for i := range keys {
		name := fmt.Sprint("tenant:t-", i)
		pipe.ZAdd(t.Context(), prefix+"timers", redis.Z{Score: float64(dawn.UnixMicro() + int64(i)), Member: name})
		pipe.ZAdd(t.Context(), prefix+"wait:"+name, redis.Z{Member: fmt.Sprint("t-", i)})
		pipe.Expire(t.Context(), prefix+"wait:"+name, time.Minute)
		if i%5000 == 4999 {
			if _, err := pipe.Exec(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Cleanup(func() { client.Unlink(context.WithoutCancel(t.Context()), prefix+"timers") })
	told, pages, largest, longest := make(map[string]bool), 0, 0, time.Duration(0)
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
		}
		if from = page.Next; from == "" {
			break
		}
	}
	t.Logf("%d lines in %d pages of at most %d in %s, the longest took %s", len(told), pages, largest,
		time.Since(began).Round(time.Millisecond), longest)
	if len(told) != keys || largest > 500 {
		t.Errorf("%d keys, in pages of at most %d; want %d, 500", len(told), largest, keys)
	}
}

// TestLinesKeys: whatever bytes a key has, its line has the key, or its hash if Redis has only
// that. The key's jobs are pulled and cancelled.
func TestLinesKeys(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := nearly(t, client, tenantAndGlobal(throttle.Per(1, 10*time.Second), throttle.Per(200, 10*time.Second)),
			throttle.Options{})
		want := make(map[string]inspect.Line)
		for i, key := range hostile {
			if key == "" {
				continue // no key at all
			}
			comes(t, s, 0, throttle.Job{ID: fmt.Sprint("first", i), Keys: of(key)}, throttle.Granted)
			r := comes(t, s, time.Second, throttle.Job{ID: fmt.Sprint(i), Keys: of(key)}, throttle.Waiting)
			if encoded := throttle.Encode(key); strings.HasPrefix(encoded, "~") {
				key = encoded
			}
			want["tenant "+key] = inspect.Line{Scope: "tenant", Key: key, Flows: 1, Looked: dawn.Add(9 * time.Second)}
			if r.Next.IsZero() {
				t.Error("the line is not to be pulled")
			}
		}
		if diff := cmp.Diff(want, allLines(t, s, time.Second, len(hostile))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		booked := drain(t, s, dawn.Add(10*time.Second))
		if len(booked) != len(want) {
			t.Errorf("%d of %d jobs are booked when there is room", len(booked), len(want))
		}
		for _, r := range booked {
			if done, err := s.Cancel(dawn.Add(10*time.Second), r.Job); err != nil || !done {
				t.Errorf("Cancel %.60q: %t, %v", r.Job.Keys, done, err)
			}
		}
	})
}

// TestLinesWithoutFairScope: without a fair scope, all jobs are of one flow, which has no key.
func TestLinesWithoutFairScope(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		for name, options := range map[string]throttle.Options{"no scope": {FairScope: throttle.Global},
			"as if by its default": {}} {
			scopes := tenantAndGlobal(throttle.Per(100, 10*time.Second), throttle.Per(2, 10*time.Second))
			if options.FairScope == "" {
				scopes[0].Name = "customer"
			}
			s := nearly(t, client, scopes, options)
			keys := func(value string) map[string]string { return map[string]string{scopes[0].Name: value} }
			comes(t, s, 0, throttle.Job{ID: "first", Weight: 2, Keys: keys("a")}, throttle.Granted)
			comes(t, s, time.Second, throttle.Job{ID: "a", Keys: keys("a")}, throttle.Waiting)
			comes(t, s, time.Second, throttle.Job{ID: "b", Keys: keys("b")}, throttle.Waiting)
			want := map[string]inspect.Line{"global ": {Scope: throttle.Global, Flows: 1, Looked: dawn.Add(9 * time.Second)}}
			if diff := cmp.Diff(want, allLines(t, s, time.Second, 1)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	})
}

// TestLinesOfHeavyJobs: a heavy job that is booked however far ahead stands under no scope key; the next
// one does.
func TestLinesOfHeavyJobs(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := nearly(t, client, tenantAndGlobal(throttle.Per(100, 10*time.Second), throttle.Per(10, 10*time.Second)),
			throttle.Options{})
		comes(t, s, 0, throttle.Job{ID: "first", Weight: 5, Keys: of("a")}, throttle.Granted)
		for _, tenant := range []string{"b", "c"} {
			comes(t, s, time.Second, throttle.Job{ID: "heavy " + tenant, Weight: 9, Keys: of(tenant)}, throttle.Waiting)
		}
		if booked := drain(t, s, dawn.Add(time.Second)); len(booked) != 0 {
			t.Fatalf("booked %v", booked)
		}
		lines := allLines(t, s, time.Second, 2)
		if line := lines["global "]; len(lines) != 1 || line.Flows != 1 {
			t.Errorf("got %+v, want one flow under global", lines)
		}
	})
}

// TestLinesFromNowhere: Lines refuses a beginning that no answer has named.
func TestLinesFromNowhere(t *testing.T) {
	t.Parallel()
	s := nearly(t, miniClient(t), globalScope(throttle.PerSecond(1)), throttle.Options{})
	for _, from := range []string{"x", "-1", "+1", "1.5", " 1", "1 ", "0x1", "1_0", "18446744073709551616"} {
		page, err := s.Lines(dawn, from)
		var wrong *throttle.ArgumentError
		if !errors.As(err, &wrong) || wrong.Argument != "from" || wrong.Reason == "" {
			t.Errorf("from %q: got %v, %v", from, page, err)
		}
	}
	page, err := s.Lines(dawn, "")
	if diff := cmp.Diff(inspect.LinesPage{Now: dawn}, page); diff != "" || err != nil {
		t.Errorf("nobody waits: %v (-want +got):\n%s", err, diff)
	}
}

// TestLineShare: what Options.Shares says of a key goes before what Options.Share says,
// which is brought into the range of shares: of 7 units tenants take their shares.
func TestLineShare(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long", 100)
	onServers(t, func(t *testing.T, client *redis.Client) {
		for name, row := range map[string]struct {
			options throttle.Options
			a, b    string
			ofA     int
		}{
			"equal":     {throttle.Options{}, "a", "b", 4},
			"by Shares": {throttle.Options{Shares: map[string]int{"é|,=": 6}}, "é|,=", "b", 6},
			"Shares before Share": {throttle.Options{Shares: map[string]int{"a": 6},
				Share: func(string) int { return 1 }}, "a", "b", 6},
			"by Share": {throttle.Options{Share: func(
				key string) int {
				return map[string]int{"a": 6, "b": -7}[key]
			}}, "a", "b", 6},
			"more than there can be": {throttle.Options{Share: func(
				key string) int {
				return map[string]int{"a": 1 << 40}[key]
			}}, "a", "b", 6},
			"not asked for a hash": {throttle.Options{Share: func(string) int { return 6 }}, "a", long, 6},
		} {
			s := nearly(t, client, tenantAndGlobal(throttle.Per(100, 10*time.Second),
				throttle.Per(7, 10*time.Second)), row.options)
			comes(t, s, 0, throttle.Job{ID: "first", Weight: 7, Keys: of("z")}, throttle.Granted)
			for i := range 7 {
				comes(t, s, time.Second, throttle.Job{ID: fmt.Sprint("a", i), Keys: of(row.a)}, throttle.Waiting)
				comes(t, s, time.Second, throttle.Job{ID: fmt.Sprint("b", i), Keys: of(row.b)}, throttle.Waiting)
			}
			ofA, booked := 0, drain(t, s, dawn.Add(9*time.Second))
			for _, r := range booked {
				if r.Job.ID[0] == 'a' {
					ofA++
				}
			}
			if ofA != row.ofA || len(booked) != 7 {
				t.Errorf("%s: %d of %d units, want %d of 7", name, ofA, len(booked), row.ofA)
			}
		}
	})
}
