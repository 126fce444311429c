package throttle_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// hostile are values that users may send where a job's ID or a scope's key is
// expected. No two are the same bytes, though some are the same to the eye, to
// Unicode or to a careless encoding.
var hostile = []string{
	"a", "A", " a", "a ", "a\x00", "\x00", "\x00\x00", "\n", "a\nb", "\r\n", "\t",
	"{", "}", "{}", "}{", "a}b{c", "{a}", "{{a}}", "*", "?", "[a]", ":", "a:b", "a:b:c", "a%3Ab", "%", "%25", "%%", "~", "%7E", "~~",
	"\xff", "\x7f", "\x80", "\xa0", "\n0", "\xfe\xff", "\xc3\x28", "\u00e9", "e\u0301", "\u212b", "\u00c5", "A\u030a", "😀", "日本", "ß", "SS", "ı", "I", "\ufeff", "\u202e",
	"@", "a@b.c", "-", "_", ".", "..", "../x", "'", "\"", "\\", "$(x)", "0", "00", "-1", "1e3", "nil", "false",
	strings.Repeat("x", 127), strings.Repeat("x", 128), strings.Repeat("x", 129), strings.Repeat("y", 129),
	strings.Repeat(":", 42), strings.Repeat(":", 43), strings.Repeat("\x00", 128), strings.Repeat("x", 1<<20), strings.Repeat("x", 1<<20) + "\x00",
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

// TestF50_T1_HostileKeys: on a server each distinct key counts for itself, and
// every Redis key carries the throttle's name as its hash tag, so that all lie in
// one slot; none is long.
func TestF50_T1_HostileKeys(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.PerHour(1)}}}
		th := newThrottle(t, client, scopes, nil)
		for i, value := range hostile {
			first := reserve(t, th, throttle.Job{ID: "first" + value, Weight: 1, Keys: map[string]string{"tenant": value}})
			again := reserve(t, th, throttle.Job{ID: "again" + value, Weight: 1, Keys: map[string]string{"tenant": value}})
			if first.Outcome != throttle.Granted || again.Outcome != throttle.Booked {
				t.Errorf("key %d, %.40q: got %v then %v, want granted then booked", i, value, first.Outcome, again.Outcome)
			}
			usage, err := th.Usage(t.Context(), "tenant", value)
			if err != nil || usage.Limits[0].Used != 1 || usage.Limits[0].Booked != 1 {
				t.Errorf("key %d, %.40q: usage %+v, %v; want 1 used and 1 booked", i, value, usage, err)
			}
		}
		keys := keyspace(t, client, th)
		if want := 4 * len(hostile); len(keys) != want {
			t.Errorf("%d keys in Redis, want %d: two records, the totals and the ledger of each", len(keys), want)
		}
		for key := range keys {
			if tag := hashTag(key); tag != th.Name() {
				t.Errorf("key %q: hash tag %q, want the throttle's name", key, tag)
			}
			if len(key) > 300 || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' || r == '*' }) {
				t.Errorf("key %.400q of %d bytes: want at most 300, printable", key, len(key))
			}
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

// TestT1_NamesOfThrottles: what would leave its place in a key is no name.
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
		same, err := throttle.New(one.Name(), client, scopes, nil)
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
