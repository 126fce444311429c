package throttle_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// hostile are values that users may send where a job's ID or a scope's key is
// expected. No two are the same bytes, though some are the same to the eye, to
// Unicode or to a careless encoding.
var hostile = []string{
	"a", "A", " a", "a ", "a\x00", "\x00", "\x00\x00", "\n", "a\nb", "\r\n", "\t",
	"{", "}", "{}", "}{", "a}b{c", "{a}", "{{a}}", "*", "?", "[a]", ":", "a:b", "a:b:c", "a%3Ab", "%", "%25", "%%",
	"~", "%7E", "~~",
	"\xff", "\x7f", "\x80", "\xa0", "\n0", "\xfe\xff", "\xc3\x28", "\u00e9", "e\u0301", "\u212b", "\u00c5",
	"A\u030a", "😀", "日本", "ß", "SS", "ı", "I", "\ufeff", "\u202e",
	"@", "a@b.c", "-", "_", ".", "..", "../x", "'", "\"", "\\", "$(x)", "0", "00", "-1", "1e3", "nil", "false",
	strings.Repeat("x", 127), strings.Repeat("x", 128), strings.Repeat("x", 129), strings.Repeat("y", 129),
	strings.Repeat(":", 42), strings.Repeat(":", 43), strings.Repeat("\x00", 128), strings.Repeat("x", 1<<20),
	strings.Repeat("x", 1<<20) + "\x00",
}

// plain is what a value may look like in a key.
var plain = regexp.MustCompile(`^[A-Za-z0-9_.@%~-]{1,128}$`)

// TestF50_EncodingKeepsValuesApart: one text per distinct bytes, short, and of
// harmless bytes only.
func TestF50_EncodingKeepsValuesApart(t *testing.T) {
	t.Parallel()
	seen := make(map[string]string)
	for _, value := range append([]string{""}, hostile...) {
		encoded := throttle.Encode(value)
		if other, taken := seen[encoded]; taken {
			t.Errorf("%.40q and %.40q are both encoded as %q", value, other, encoded)
		}
		seen[encoded] = value
		if value != "" && !plain.MatchString(encoded) {
			t.Errorf("%.40q is encoded as %.200q: want 1 to 128 of the safe bytes", value, encoded)
		}
	}
}

// FuzzEncode: two values share an encoding only if they are the same bytes.
func FuzzEncode(f *testing.F) {
	for i, value := range hostile {
		f.Add(value, hostile[(i+1)%len(hostile)])
	}
	// The second value is built to look like the encoding of the first.
	f.Add(strings.Repeat("x", 129), throttle.Encode(strings.Repeat("x", 129)))
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, other := range []string{b, throttle.Encode(a), a + "\x00", "~" + a} {
			if same := throttle.Encode(a) == throttle.Encode(other); same != (a == other) {
				t.Fatalf("%q and %q: the same bytes %t, the same encoding %t (%q)", a, other, a == other, same, throttle.Encode(a))
			}
		}
		if a != "" && !plain.MatchString(throttle.Encode(a)) {
			t.Fatalf("%q is encoded as %q: want 1 to 128 of the safe bytes", a, throttle.Encode(a))
		}
	})
}

// asID returns as much of a value as an ID may have.
func asID(begin, value string) string { return begin + value[:min(len(value), 1000)] }

// TestF50_T1_HostileKeys: on a server each distinct key counts for itself, where
// its second job is booked and where it waits in line, and every Redis key carries
// the throttle's name as its hash tag, so that all lie in one slot; none is long.
func TestF50_T1_HostileKeys(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.PerHour(1)}}}
		for _, test := range []struct {
			lookahead    time.Duration
			second       throttle.Outcome
			booked       int64
			each, shared int // keys
		}{
			{maxWindow, throttle.Booked, 1, 1, 4},    // the scope key; control, the last answer, jobs, timers
			{time.Second, throttle.Waiting, 0, 5, 4}, // the scope key, its flows, their lanes and tags, the lane
		} {
			th := newThrottle(t, client, scopes, &throttle.Options{Lookahead: test.lookahead})
			for i, value := range hostile {
				first := reserve(t, th, throttle.Job{ID: asID("first", value), Weight: 1, Keys: of(value)})
				again := reserve(t, th, throttle.Job{ID: asID("again", value), Weight: 1, Keys: of(value)})
				if first.Outcome != throttle.Granted || again.Outcome != test.second || again.Ahead != 0 {
					t.Errorf("key %d, %.40q: got %v then %v, want granted then %v, first in its lane", i, value,
						first.Outcome, again.Outcome, test.second)
				}
				usage, err := inspect.New(th).Usage(t.Context(), "tenant", value)
				if err != nil || usage.Limits[0].Used != 1 || usage.Limits[0].Booked != test.booked {
					t.Errorf("key %d, %.40q: usage %+v, %v; want 1 used and %d booked", i, value, usage, err, test.booked)
				}
			}
			keys := keyNames(t, client, th)
			if want := test.each*len(hostile) + test.shared; len(keys) != want {
				t.Errorf("%v: %d keys in Redis, want %d", test.second, len(keys), want)
			}
			for _, key := range keys {
				if tag := hashTag(key); tag != th.Name() {
					t.Errorf("key %q: hash tag %q, want the throttle's name", key, tag)
				}
				if len(key) > 400 || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' || r == '*' }) {
					t.Errorf("key %.400q of %d bytes: want at most 400, printable", key, len(key))
				}
			}
		}
	})
}

// TestF50_HostileJobsInLine: a job that waits in line under any ID and key is listed under
// that key, pulled by that ID, and starts.
func TestF50_HostileJobsInLine(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := tenantAndGlobal(throttle.PerHour(1), throttle.PerHour(maxUnits))
		s := newScripted(newThrottle(t, client, scopes, &throttle.Options{Lookahead: time.Second}))
		now := time.UnixMicro(1_800_000_000_000_000)
		waiting := make(map[string]string) // keys by ID
		lines := make(map[string]bool)
		for _, value := range hostile {
			for _, id := range []string{"first", "again"} {
				if _, err := s.Reserve(now, throttle.Job{ID: asID(id, value), Weight: 1, Keys: of(value)}); err != nil {
					t.Fatal(err)
				}
			}
			waiting[asID("again", value)] = value
			if encoded := throttle.Encode(value); strings.HasPrefix(encoded, "~") {
				value = encoded // only its hash is kept
			}
			lines[value] = true
		}
		told := make(map[string]bool)
		for from, more := "", true; more; more = from != "" {
			page, err := s.Lines(now, from)
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range page.Lines {
				told[line.Key] = line.Scope == "tenant" && line.Flows == 1
			}
			from = page.Next
		}
		if diff := cmp.Diff(lines, told); diff != "" {
			t.Errorf("lines with a flow each (-want +got):\n%.2000s", diff)
		}
		now = now.Add(2 * time.Hour)
		for _, r := range drain(t, s, now) {
			job := throttle.Job{ID: r.Job.ID, Weight: 1, Keys: of(waiting[r.Job.ID])}
			if got, err := s.Reserve(now, job); err != nil || got.Outcome != throttle.Granted {
				t.Errorf("pulled job %.40q: got %v, %v; want granted", job.ID, got.Outcome, err)
			}
			delete(waiting, r.Job.ID)
		}
		if len(waiting) > 0 {
			t.Errorf("%d of %d jobs were not pulled", len(waiting), len(hostile))
		}
	})
}

// hashTag is what Redis Cluster takes the slot of: between the first { and the
// first } after it.
func hashTag(key string) string {
	_, rest, found := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(rest, "}")
	if !found || !closed || tag == "" {
		return key
	}
	return tag
}

// TestT1_NamesOfThrottles: a name that would not stay within its part of a key is refused.
func TestT1_NamesOfThrottles(t *testing.T) {
	t.Parallel()
	client := miniClient(t)
	scopes := []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerHour(1)}}}
	for _, name := range []string{"a", "smtp", "A-b_c.9", "-", ".", strings.Repeat("n", 64)} {
		if th, err := throttle.New(name, client, scopes, nil); err != nil || th.Name() != name {
			t.Errorf("New(%q): got %v", name, err)
		}
	}
	bad := slices.DeleteFunc(slices.Clone(hostile), func(s string) bool { return plainName.MatchString(s) })
	for _, name := range append(bad, "", strings.Repeat("n", 65)) {
		if _, err := throttle.New(name, client, scopes, nil); !isOptionError(err, "name") {
			t.Errorf("New(%.40q): got %v, want an *OptionError for the name", name, err)
		}
		scopes := []throttle.Scope{{Name: name, Limits: scopes[0].Limits}}
		if _, err := throttle.New("n", client, scopes, nil); !isOptionError(err, "Scope.Name") {
			t.Errorf("New with scope %.40q: got %v, want an *OptionError for Scope.Name", name, err)
		}
	}
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// TestThrottlesDoNotShare: two throttles of different names on one server count
// apart, two of one name together.
func TestThrottlesDoNotShare(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerHour(1)}}}
		one := newThrottle(t, client, scopes, nil)
		other := newThrottle(t, client, scopes, nil)
		same, err := throttle.New(one.Name(), client, scopes, &throttle.Options{Timeout: patient, Lookahead: maxWindow})
		if err != nil {
			t.Fatal(err)
		}
		for i, step := range []struct {
			th   *throttle.Throttle
			want throttle.Outcome
		}{{one, throttle.Granted}, {other, throttle.Granted}, {same, throttle.Booked}} {
			if got := reserve(t, step.th, throttle.Job{ID: fmt.Sprint(i), Weight: 1}); got.Outcome != step.want {
				t.Errorf("step %d: got %v, want %v", i, got.Outcome, step.want)
			}
		}
	})
}
