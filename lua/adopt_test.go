package lua_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/lua"
)

// scopeKey is what is kept of one scope key: its totals and, by window, the entries
// of its ledgers. "@-10" stands for the instant 10 s before now.
type scopeKey struct {
	totals  string
	ledgers map[string][]string
}

// The windows of the tests, in us.
const (
	second = "1000000"
	minute = "60000000"
	hour   = "3600000000"
)

// adoption is one call of adopt: the limits, and the other windows there are.
type adoption struct {
	before  scopeKey
	limits  []string
	others  []string
	adopted int64
	after   scopeKey
}

// A minute's ledger in sub-windows of a second: 14 units spent, 3 of them in the
// open sub-window, 2 booked. Its totals say that they expire in 100 s.
var aMinute = scopeKey{
	"@0 100000000 60000000:1000000:14:2:0:3",
	map[string][]string{minute: {"s@-30:1", "s@-10:4", "s@-5:6", "b@3:2"}},
}

var adoptions = map[string]adoption{
	"a longer window": {
		aMinute, []string{"10 3600000000 60000000"}, []string{minute}, 1,
		scopeKey{
			"@0 3695000000 60000000:1000000:14:2:0:3 3600000000:60000000:14:2:0:3",
			map[string][]string{minute: aMinute.ledgers[minute], hour: {"s@-60:11", "b@0:2"}},
		},
	},
	"a shorter window": { // what has left it is left out
		aMinute, []string{"10 10000000 1000000"}, []string{minute}, 1,
		scopeKey{
			"@0 100000000 60000000:1000000:14:2:0:3 10000000:1000000:13:2:0:3",
			map[string][]string{minute: aMinute.ledgers[minute], "10000000": {"s@-10:4", "s@-5:6", "b@3:2"}},
		},
	},
	"a window beside the one it is built from": {
		aMinute, []string{"10 60000000 1000000", "10 1000000 1"}, nil, 1,
		scopeKey{
			"@0 100000000 60000000:1000000:14:2:0:3 1000000:1:6:2:-999999:3",
			map[string][]string{minute: aMinute.ledgers[minute], second: {"s@0:3", "b@3:2"}},
		},
	},
	"of two the shortest that is long enough": {
		scopeKey{
			"@0 4000000000 3600000000:60000000:90:0:0:90 60000000:1000000:5:0:0:5 1000000:1:1:0:0:1", nil,
		},
		[]string{"10 10000000 1000000"}, []string{hour, minute, second}, 1,
		scopeKey{
			"@0 4000000000 3600000000:60000000:90:0:0:90 60000000:1000000:5:0:0:5 1000000:1:1:0:0:1 10000000:1000000:5:0:0:5", nil,
		},
	},
	"units whose sub-window ends ahead": { // once for each window until then, starts reach 10 s ahead
		scopeKey{"@0 4000000000 3600000000:60000000:5:0:0:5", nil}, []string{"10 10000000 1000000"}, []string{hour}, 1,
		scopeKey{
			"@0 4000000000 3600000000:60000000:5:0:0:5 10000000:1000000:10:0:-10000000:5",
			map[string][]string{"10000000": {"s@0:5"}},
		},
	},
	"what has left the ledger": { // also where the totals still count it
		scopeKey{"@0 100000000 60000000:1000000:9:0:0:3", map[string][]string{minute: {"s@-100:6"}}},
		[]string{"10 3600000000 60000000"}, []string{minute}, 1,
		scopeKey{
			"@0 3695000000 60000000:1000000:9:0:0:3 3600000000:60000000:3:0:0:3", map[string][]string{minute: {"s@-100:6"}},
		},
	},
	"one that was set aside": { // what started since is added, a booking in both is one
		scopeKey{
			"@0 100000000 60000000:1000000:14:2:0:3|3600000000:1000000:20:7:@-20:5:@-15:13",
			map[string][]string{minute: {"s@-30:1", "s@-10:4", "s@-5:6", "b@3:2"}, hour: {"s@-600:14", "s@-30:1", "b@3:3", "b@4:4"}},
		},
		[]string{"10 3600000000 1000000"}, []string{minute}, 1,
		scopeKey{
			"@0 3636000000 60000000:1000000:14:2:0:3 3600000000:1000000:33:7:0:3",
			map[string][]string{minute: aMinute.ledgers[minute], hour: {"s@-600:14", "s@-30:1", "s@-20:5", "s@-10:4", "s@-5:6", "b@3:3", "b@4:4"}},
		},
	},
	"one that was set aside, of which the other has lost some": { // it had started when it left there
		scopeKey{
			"@0 100000000 10000000:1000000:4:0:0:3|3600000000:1000000:20:0:@-20:5:@-15:10",
			map[string][]string{"10000000": {"s@-5:1"}, hour: {"s@-600:14", "s@-30:1"}},
		},
		[]string{"10 3600000000 1000000"}, []string{"10000000"}, 1,
		scopeKey{
			"@0 3636000000 10000000:1000000:4:0:0:3 3600000000:1000000:30:0:0:3",
			map[string][]string{"10000000": {"s@-5:1"}, hour: {"s@-600:14", "s@-30:1", "s@-20:5", "s@-11:6", "s@-5:1"}},
		},
	},
	"one that was set aside, with nothing since": {
		scopeKey{"@0 100000000|60000000:1000000:7:0:@-20:5:@-15:0", map[string][]string{minute: {"s@-30:2"}}},
		[]string{"10 60000000 1000000"}, nil, 1,
		scopeKey{"@0 100000000 60000000:1000000:7:0:20000000:5", map[string][]string{minute: {"s@-30:2"}}},
	},
	"a coarser precision": { // what was spent counts at the later end of its second
		aMinute, []string{"10 60000000 10000000"}, nil, 1,
		scopeKey{
			"@0 105000000 60000000:10000000:14:2:0:3",
			map[string][]string{minute: {"s@-30:1", "s@-10:10", "b@0:2"}},
		},
	},
	"a finer precision that is told": {
		aMinute, []string{"10 60000000 500000 x"}, nil, 1,
		scopeKey{
			"@0 100000000 60000000:500000:17:2:-500000:3",
			map[string][]string{minute: {"s@-29.5:1", "s@-9.5:4", "s@-4.5:6", "s@0:3", "b@3:2"}},
		},
	},
	"a finer precision that is not told": {
		aMinute, []string{"10 60000000 1"}, nil, 0, aMinute,
	},
	"what there is": {
		aMinute, []string{"10 60000000 1000000 sx"}, nil, 0, aMinute,
	},
	"nothing": { // without totals a ledger is counted by the call itself
		scopeKey{"", map[string][]string{minute: {"s@-30:2"}}}, []string{"10 60000000 1000000"}, nil, 0,
		scopeKey{"", map[string][]string{minute: {"s@-30:2"}}},
	},
	"more than a thousand entries": {
		scopeKey{"@0 4000000000 3600000000:1000000:5001:0:0:1", map[string][]string{hour: many(-2500, 1, 2)}},
		[]string{"10 3000000000 1000000", "10 3600000000 2000000"}, nil, 2,
		scopeKey{
			"@0 4000000000 3600000000:2000000:5001:0:0:1 3000000000:1000000:5001:0:0:1",
			map[string][]string{"3000000000": many(-2500, 1, 2), hour: many(-2500, 2, 4)},
		},
	},
}

// many are the entries of so many units each, from so many seconds before now on,
// so many seconds apart.
func many(from, apart, units int) []string {
	var entries []string
	for at := from; at < 0; at += apart {
		entries = append(entries, fmt.Sprintf("s@%d:%d", at, units))
	}
	return entries
}

var instant = regexp.MustCompile(`@-?[0-9.]+`)

// absolute writes the instants of a text as Redis has them.
func absolute(text string) string {
	now, _ := strconv.ParseInt(good["now"], 10, 64)
	return instant.ReplaceAllStringFunc(text, func(relative string) string {
		seconds, _ := strconv.ParseFloat(relative[1:], 64)
		return strconv.FormatInt(now+int64(seconds*1e6), 10)
	})
}

// keysOf names the keys of a scope key: the totals', then those of its ledgers.
func keysOf(prefix string, windows []string) []string {
	keys := []string{prefix + "key:global:"}
	for _, window := range windows {
		keys = append(keys, prefix+"ledger:global::"+window)
	}
	return keys
}

// put writes what is kept of a scope key under a prefix of its own.
func (k scopeKey) put(t *testing.T, client *redis.Client) (prefix string) {
	t.Helper()
	prefix = "thr:{lua" + rand.Text() + "}:3:"
	if k.totals != "" {
		if err := client.Set(t.Context(), keysOf(prefix, nil)[0], absolute(k.totals), time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for window, entries := range k.ledgers {
		var members []redis.Z
		for _, entry := range entries {
			member := absolute(entry)
			at, _, _ := strings.Cut(member[1:], ":")
			score, _ := strconv.ParseFloat(at, 64)
			members = append(members, redis.Z{Score: score, Member: member})
		}
		if err := client.ZAdd(t.Context(), keysOf(prefix, []string{window})[1], members...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return prefix
}

// check compares what is kept under a prefix.
func (k scopeKey) check(t *testing.T, client *redis.Client, prefix string) {
	t.Helper()
	totals, err := client.Get(t.Context(), keysOf(prefix, nil)[0]).Result()
	if want := absolute(k.totals); totals != want || err != nil && !errors.Is(err, redis.Nil) {
		t.Errorf("totals %q, %v; want %q", totals, err, want)
	}
	for window, entries := range k.ledgers {
		var want []string
		for _, entry := range entries {
			want = append(want, absolute(entry))
		}
		members, err := client.ZRange(t.Context(), keysOf(prefix, []string{window})[1], 0, -1).Result()
		slices.Sort(members)
		slices.Sort(want)
		if diff := cmp.Diff(want, members); err != nil || diff != "" {
			t.Errorf("ledger of %s us, %v (-want +there):\n%s", window, err, diff)
		}
	}
	held := 0
	if k.totals != "" {
		held++
	}
	if there := len(dump(t, client, prefix)); there != held+len(k.ledgers) {
		t.Errorf("%d keys, want %d", there, held+len(k.ledgers))
	}
}

// run calls adopt under a prefix.
func (a adoption) run(t *testing.T, client *redis.Client, prefix string) (any, error) {
	t.Helper()
	var windows []string
	args := []any{good["now"], good["grace"], len(a.limits)}
	for _, limit := range a.limits {
		windows = append(windows, strings.Fields(limit)[1])
		args = append(args, limit)
	}
	for _, other := range a.others {
		windows = append(windows, other)
		args = append(args, other)
	}
	return client.Eval(t.Context(), lua.Adopt, keysOf(prefix, windows), args...).Result()
}

// TestAdopt: a ledger is built from what is counted already, and nothing that was
// spent is forgotten. To adopt it again changes nothing.
func TestAdopt(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		for name, test := range adoptions {
			t.Run(name, func(t *testing.T) {
				prefix := test.before.put(t, client)
				reply, err := test.run(t, client, prefix)
				if err != nil || !cmp.Equal(reply, any([]any{test.adopted})) {
					t.Fatalf("got %v, %v; want %d adopted", reply, err, test.adopted)
				}
				test.after.check(t, client, prefix)
				for _, limit := range test.limits {
					key := keysOf(prefix, []string{strings.Fields(limit)[1]})[1]
					if lives, err := client.PTTL(t.Context(), key).Result(); err != nil || test.adopted > 0 && lives == -1 {
						t.Errorf("%s lives %v, %v; want an end", key, lives, err)
					}
				}
				before := dump(t, client, prefix)
				if reply, err := test.run(t, client, prefix); err != nil || !cmp.Equal(reply, any([]any{int64(0)})) {
					t.Errorf("again: got %v, %v; want nothing adopted", reply, err)
				}
				if diff := cmp.Diff(before, dump(t, client, prefix)); diff != "" {
					t.Errorf("again: changed (-before +after):\n%s", diff)
				}
			})
		}
	})
}

// TestAdoptForeign: what is none of the throttle's is left as it is, and so is all
// else.
func TestAdoptForeign(t *testing.T) {
	t.Parallel()
	longer := adoption{limits: []string{"10 60000000 10000000", "10 3600000000 60000000"}, others: []string{second}}
	const totals = "@0 100000000 60000000:1000000:14:2:0:3"
	tests := map[string]struct {
		there scopeKey
		text  string // the window whose key holds text
		want  string
	}{
		"totals":                   {there: scopeKey{"foreign", aMinute.ledgers}, want: "THROTTLE_STATE "},
		"the ledger itself":        {there: scopeKey{totals, map[string][]string{minute: {"s@-30:1", "x@-10:4"}}}, want: "THROTTLE_STATE "},
		"the ledger that is built": {there: scopeKey{totals, map[string][]string{minute: aMinute.ledgers[minute], hour: {"x@-10:4"}}}, want: "THROTTLE_STATE "},
		"the ledger it is built from": {
			there: scopeKey{totals + "|3600000000:60000000:1:0:@-60:1:@-30 1000000:1:1:0:0:1", map[string][]string{minute: {"s@-3:1:1"}}}, want: "THROTTLE_STATE ",
		},
		"a key of another type": {there: aMinute, text: hour, want: "WRONGTYPE "},
	}
	onServers(t, func(t *testing.T, client *redis.Client) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				prefix := test.there.put(t, client)
				if test.text != "" {
					if err := client.Set(t.Context(), keysOf(prefix, []string{test.text})[1], "foreign", 0).Err(); err != nil {
						t.Fatal(err)
					}
				}
				before := dump(t, client, prefix)
				if reply, err := longer.run(t, client, prefix); err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v, %v; want %s", reply, err, test.want)
				}
				if diff := cmp.Diff(before, dump(t, client, prefix)); diff != "" {
					t.Errorf("changed (-before +after):\n%s", diff)
				}
			})
		}
	})
}
