package lua_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/lua"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// onServers runs a test on miniredis and on a real Redis.
func onServers(t *testing.T, test func(t *testing.T, client *redis.Client)) {
	t.Helper()
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
		t.Cleanup(func() { _ = client.Close() })
		test(t, client)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, redistest.Shared(t).Client(t))
	})
}

// direct is a call of a script as Go makes it: the arguments as patterns, and
// what stands in them.
type direct struct {
	keys  []string // their ends
	args  []string
	reply int // how many integers it replies
}

// joined are the values that stand in one argument with others, where a pattern
// reads them: it takes zeros in front, which change nothing, and the integer after
// 2^53, which Lua cannot tell from 2^53. Go writes neither.
var joined = map[string]bool{"weight": true, "max_wait": true, "grace": true, "latest": true, "units": true, "window": true, "precision": true}

// right tells whether a text that is malformed elsewhere is right for a value.
func right(name, text string, d direct) bool {
	switch text {
	case "":
		return name == "now" || name == "latest" // Redis' clock, no deadline
	case "007", "00", "9007199254740993":
		return joined[name] && name != "window" && !slices.Contains(d.args, "{"+name+"}")
	}
	return name == "latest" && allDigits.MatchString(text) // later than any start
}

var allDigits = regexp.MustCompile(`^[0-9]+$`)

// good is what stands in the arguments of a call that is right.
var good = map[string]string{
	"now": "1800000000000000", "nonce": "n1", "ledgers": "l1", "keep": "0",
	"weight": "1", "max_wait": "0", "grace": "5000000", "latest": "1000000", "from": "1000000", "to": "0",
	"count": "1", "units": "10", "window": "60000000", "precision": "1000000",
}

// numeric are the names of the values that are integers.
var numeric = []string{"now", "keep", "weight", "max_wait", "grace", "latest", "from", "to", "count", "units", "window", "precision"}

// calls are one right call of each script.
func calls() map[string]direct {
	all := []string{"job:1", "key:global:", "ledger:global::60000000"}
	const limit = "{units} {window} {precision}"
	return map[string]direct{
		"reserve": {all, []string{"{now}", "{nonce}", "{ledgers}", "{weight} {max_wait} {grace} {latest}", "{count}", limit}, 7},
		"cancel":  {all, []string{"{now}", "{nonce}", "{keep}", "{grace}", "{ledgers}", "{count}", limit}, 3},
		"peek":    {all[1:], []string{"{now}", "{weight}", "{grace}", "{count}", limit}, 5},
		"usage":   {all[1:], []string{"{now}", "{grace}", "{count}", limit}, 4},
		"count":   {all[1:], []string{"{now}", "{from}", "{to}", "{count}", limit}, 2},
	}
}

// with fills the arguments, one of them with a value of the test's own.
func (d direct) with(name, value string) []any {
	args := make([]any, 0, len(d.args))
	for _, arg := range d.args {
		for each, text := range good {
			if each == name {
				text = value
			}
			arg = strings.ReplaceAll(arg, "{"+each+"}", text)
		}
		args = append(args, arg)
	}
	return args
}

func (d direct) has(name string) bool {
	return strings.Contains(strings.Join(d.args, " "), "{"+name+"}")
}

// TestF45_MalformedArguments: every number of every script is checked again in
// Lua: a text that is no integer of its range is refused by name, before anything
// is written.
func TestF45_MalformedArguments(t *testing.T) {
	t.Parallel()
	malformed := []string{
		"nan", "-nan", "inf", "-inf", "1e400", "1e3", "0x10", " 12 ", "12 ", "\t1", "1\n", "", "1.5", "1.0", "-1", "-0", "+1", "007", "00", "abc", "1;2", "1_0", "１",
		"9007199254740993", "9223372036854775808", "99999999999999999999999999", strings.Repeat("9", 400), "\x00", "1\x00",
	}
	onServers(t, func(t *testing.T, client *redis.Client) {
		for script, d := range calls() {
			keys, prefix := prepare(t, client, d)
			before := dump(t, client, prefix)
			for _, name := range numeric {
				if !d.has(name) {
					continue
				}
				for _, text := range malformed {
					if right(name, text, d) {
						continue
					}
					reply, err := client.Eval(t.Context(), composed[script], keys, d.with(name, text)...).Result()
					switch {
					case err != nil && strings.HasPrefix(err.Error(), "THROTTLE_ARGUMENT "):
					case err != nil && joined[name] && len(text) > 18 && allDigits.MatchString(text):
						// miniredis' Lua reads no number from 2^63 on, and fails by itself.
					default:
						t.Errorf("%s with %s = %.30q: got %v, %v; want THROTTLE_ARGUMENT", script, name, text, reply, err)
					}
				}
			}
			if diff := cmp.Diff(before, dump(t, client, prefix)); diff != "" {
				t.Errorf("%s wrote something (-before +after):\n%s", script, diff)
			}
		}
	})
}

// TestF45_RangesOfArguments: the ends of each range, and what lies just outside.
func TestF45_RangesOfArguments(t *testing.T) {
	t.Parallel()
	const units, span = "9007199254740992", "34560000000000"
	tests := map[string]struct{ right, wrong []string }{
		"now":       {[]string{"1800000000000000", units}, nil},
		"keep":      {[]string{"0", "1"}, []string{"2"}},
		"weight":    {[]string{"1", "10"}, []string{"0", "9007199254740994"}},
		"max_wait":  {[]string{"0", span}, []string{"34560000000001"}},
		"grace":     {[]string{"0", span}, []string{"34560000000001"}},
		"latest":    {[]string{"0", span}, nil},
		"from":      {[]string{"0", "60000000"}, []string{"34560000000001"}},
		"to":        {[]string{"0", "1000000"}, []string{"34560000000001"}},
		"count":     {[]string{"1"}, []string{"0", "2", "99", "100"}},
		"units":     {[]string{"1", units}, []string{"9007199254740994"}},
		"window":    {[]string{"1000000", span}, []string{"999", "0", "34560000000001", "999999"}}, // the last: below the precision
		"precision": {[]string{"1", "60000000"}, []string{"0", "60000001"}},
	}
	onServers(t, func(t *testing.T, client *redis.Client) {
		for script, d := range calls() {
			for name, test := range tests {
				if !d.has(name) {
					continue
				}
				for _, text := range test.right {
					keys, _ := prepare(t, client, d)
					if reply, err := client.Eval(t.Context(), composed[script], keys, d.with(name, text)...).Int64Slice(); err != nil || len(reply) != d.reply {
						t.Errorf("%s with %s = %s: got %v, %v; want %d integers", script, name, text, reply, err, d.reply)
					}
				}
				for _, text := range test.wrong {
					keys, prefix := prepare(t, client, d)
					before := dump(t, client, prefix)
					if reply, err := client.Eval(t.Context(), composed[script], keys, d.with(name, text)...).Result(); err == nil || !strings.HasPrefix(err.Error(), "THROTTLE_ARGUMENT ") {
						t.Errorf("%s with %s = %s: got %v, %v; want THROTTLE_ARGUMENT", script, name, text, reply, err)
					}
					if diff := cmp.Diff(before, dump(t, client, prefix)); diff != "" {
						t.Errorf("%s with %s = %s wrote something (-before +after):\n%s", script, name, text, diff)
					}
				}
			}
		}
	})
}

// TestF46_WeightsInLua: a weight above a limit is refused by Lua too, by the
// number of the limit.
func TestF46_WeightsInLua(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		for _, script := range []string{"reserve", "peek"} {
			d := calls()[script]
			keys, prefix := prepare(t, client, d)
			before := dump(t, client, prefix)
			for _, weight := range []string{"11", "9007199254740992"} {
				if _, err := client.Eval(t.Context(), composed[script], keys, d.with("weight", weight)...).Result(); err == nil || err.Error() != "THROTTLE_WEIGHT 1" {
					t.Errorf("%s of weight %s: got %v, want THROTTLE_WEIGHT 1", script, weight, err)
				}
			}
			if diff := cmp.Diff(before, dump(t, client, prefix)); diff != "" {
				t.Errorf("%s wrote something (-before +after):\n%s", script, diff)
			}
		}
	})
}

// TestNamesAndCountsOfArguments: names that would break the record are refused,
// and calls with too few or too many keys or arguments change nothing.
func TestNamesAndCountsOfArguments(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		for script, d := range calls() {
			keys, prefix := prepare(t, client, d)
			before := dump(t, client, prefix)
			refused := func(what string, keys []string, args []any) {
				t.Helper()
				if reply, err := client.Eval(t.Context(), composed[script], keys, args...).Result(); err == nil {
					t.Errorf("%s with %s: got %v, want an error", script, what, reply)
				}
			}
			for _, name := range []string{"nonce", "ledgers"} {
				for _, text := range []string{"a b", "a\nb", "ä", "\x00"} {
					if d.has(name) {
						refused(fmt.Sprintf("%s %q", name, text), keys, d.with(name, text))
					}
				}
			}
			args := d.with("", "")
			for n := range args {
				refused(fmt.Sprintf("%d arguments", n), keys, args[:n])
			}
			refused("a key too few", keys[:len(keys)-1], args)
			refused("a key too many", append(slices.Clone(keys), prefix+"more"), args)
			if diff := cmp.Diff(before, dump(t, client, prefix)); diff != "" {
				t.Errorf("%s wrote something (-before +after):\n%s", script, diff)
			}
		}
	})
}

// prepare makes one charge and one booking under a prefix of its own, and returns
// the keys of the call.
func prepare(t *testing.T, client *redis.Client, d direct) (keys []string, prefix string) {
	t.Helper()
	name := "lua" + rand.Text()
	prefix = "thr:{" + name + "}:1:"
	for i, weight := range []string{"8", "8"} {
		reserve := calls()["reserve"]
		args := reserve.with("weight", weight)
		all := []string{prefix + "job:before" + fmt.Sprint(i)}
		for _, end := range reserve.keys[1:] {
			all = append(all, prefix+end)
		}
		// No deadline, so that the second is booked.
		args[3] = strings.TrimSuffix(fmt.Sprint(args[3]), good["latest"])
		if _, err := client.Eval(t.Context(), lua.Reserve, all, args...).Result(); err != nil {
			t.Fatalf("prepare: %v", err)
		}
	}
	for _, end := range d.keys {
		keys = append(keys, prefix+end)
	}
	return keys, prefix
}

// dump reads what lies under a prefix.
func dump(t *testing.T, client *redis.Client, prefix string) map[string]string {
	t.Helper()
	ctx, held := context.Background(), make(map[string]string)
	scan := client.Scan(ctx, 0, prefix+"*", 1000).Iterator()
	for scan.Next(ctx) {
		if text, err := client.Get(ctx, scan.Val()).Result(); err == nil {
			held[scan.Val()] = text
			continue
		}
		entries, err := client.ZRangeWithScores(ctx, scan.Val(), 0, -1).Result()
		if err != nil {
			t.Fatal(err)
		}
		held[scan.Val()] = fmt.Sprint(entries)
	}
	if err := scan.Err(); err != nil || len(held) == 0 {
		t.Fatalf("read %s*: %d keys, %v", prefix, len(held), err)
	}
	return held
}

var keyPattern = regexp.MustCompile(`thr:\{name\}:[^ ,]*`)

// TestKeyPatterns: the keys that the headers name are those that Go builds.
func TestKeyPatterns(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	scopes := []throttle.Scope{{Name: "SCOPE", Limits: []throttle.Limit{throttle.PerSecond(1)}}}
	th, err := throttle.New("NAME", client, scopes, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"ID1", "ID2"} {
		if _, err := th.Reserve(t.Context(), throttle.Job{ID: id, Weight: 1, Keys: map[string]string{"SCOPE": "KEY"}, Nonce: "n"}); err != nil {
			t.Fatal(err)
		}
	}
	names := strings.NewReplacer("{name}", "{NAME}", "<scope>", "SCOPE", "<key>", "KEY", "<window>", "1000000", "<id>", "ID2")
	for _, f := range readFiles(t, "*.lua") {
		for _, s := range sections(t, f) {
			if s.kind != "KEYS" {
				continue
			}
			for _, pattern := range keyPattern.FindAllString(s.text, -1) {
				key := names.Replace(pattern)
				if n, err := client.Exists(t.Context(), key).Result(); err != nil || n != 1 {
					t.Errorf("%s declares the key %s: Go wrote no %s (%v)", f.name, pattern, key, err)
				}
			}
		}
	}
}
