package lua_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

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
	keys    []string // their ends
	args    []string
	replies []int // how many values it may reply
}

// joined are the values that stand in one argument with others, where a pattern
// reads them: it takes zeros in front, which change nothing, and the integer after
// 2^53, which Lua cannot tell from 2^53. Go writes neither.
var joined = map[string]bool{
	"weight": true, "max_wait": true, "grace": true, "latest": true, "lookahead": true, "kept": true, "share": true, "pulled": true,
	"units": true, "window": true, "precision": true, "start": true, "actual": true, "within": true,
}

// right tells whether a text that is malformed elsewhere is right for a value.
func right(name, text string, d direct) bool {
	if allDigits.MatchString(text) && (name == "latest" || name == "cursor") {
		return true // later than any start, Redis' own to judge
	}
	switch text {
	case "12 ":
		return name == "precision" // where no letter follows
	case "":
		return name == "now" || name == "latest" // Redis' clock, no deadline
	case "007", "00", "9007199254740993":
		return joined[name] && name != "window" && !slices.Contains(d.args, "{"+name+"}")
	}
	return false
}

var allDigits = regexp.MustCompile(`^[0-9]+$`)

// good is what stands in the arguments of a call that is right.
var good = map[string]string{
	"now": "1800000000000000", "nonce": "n1", "ledgers": "k1.w1", "keys": "k1", "keep": "0", "plan": "0", "sets": "0",
	"start": "1800000000000000", "actual": "1", "within": "3600000000", "length": "1000000",
	"name": "other:x", "field": "%tenant:a", "text": "10/1m", "names": "+global: -tenant:a",
	"weight": "1", "max_wait": "0", "grace": "5000000", "latest": "1000000", "from": "1000000", "to": "0",
	"lookahead": "5000000", "kept": "86400000", "lane": "a|", "id": "1",
	"share": "1", "pulled": "1", "recall": "0", "classes": "g",
	"most": "1", "forget": "600000000", "jobs": "1", "cursor": "0", "rank": "0",
	"aside": "1000000", "age": "0", "gone": "1", "count": "1", "index": "1", "units": "10", "window": "60000000", "precision": "1000000",
}

// numeric are the names of the values that are integers.
var numeric = []string{
	"now", "keep", "weight", "max_wait", "grace", "latest", "lookahead", "kept", "share", "pulled", "recall",
	"most", "forget", "jobs", "cursor", "from", "to", "count", "units", "window", "precision",
	"plan", "sets", "rank", "start", "actual", "within", "length", "index", "aside", "age", "gone",
}

// calls are one right call of each script.
func calls() map[string]direct {
	all := []string{"job:1", "control", "line", "agenda", "ready", "tags", "heads:a", "lane:a|", "key:global:", "ledger:global::60000000"}
	const limit = "{units} {window} {precision}"
	const names, belief = "{names}", ""
	decision := []int{10, 10 + 3 + 2} // more if it waits in line
	return map[string]direct{
		"reserve": {all, []string{
			"{now}", names, belief, "{nonce}", "{ledgers}", "{weight} {max_wait} {grace} {latest} {lookahead} {kept} {plan} {sets}", "{lane}", "{id}", "{count}", limit,
		}, decision},
		"peek": {all[1:], []string{"{now}", names, belief, "{weight}", "{grace}", "{max_wait}", "{lookahead}", "{lane}", "{sets}", "{count}", limit}, decision},
		"pull": {all[1:], []string{
			"{now}", names, belief, "{lane}", "{keys}", "{grace} {lookahead} {kept} {share} {pulled} {recall} {sets}", "{classes}", "{count}", limit,
		}, []int{2, 2 + 3}},
		"sweep": {[]string{"line", "agenda", "ready", "control"}, []string{"{now}", "{most}", "{forget}", "{jobs}"}, []int{3}},
		"admit": {[]string{"agenda", "tags", "held:domain:x"}, []string{"{now}", "{lane}"}, []int{2}},
		"skip":  {all[2:7], []string{"{now}", "{lane}", "{kept}"}, []int{2}},
		"weed":  {all[2:8], []string{"{now}", "{lane}", "{kept}", "{aside}", "{most}", "{age}", "{gone}", "1:waiting"}, []int{2, 4}},
		"cancel": {all, []string{
			"{now}", names, belief, "{nonce}", "{ledgers}", "{weight} {keep} {grace} {kept} {share} {within}", "{lane}", "{id}", "{count}", limit,
		}, []int{2}},
		"settle": {all, []string{
			"{now}", names, belief, "{nonce}", "{keys} {ledgers}", "{start} {weight} {actual} {grace} {kept} {within} {share}", "{lane}", "{id}", "{count}", limit,
		}, []int{2}},
		"usage":    {slices.Concat(all[1:2], all[8:]), []string{"{now}", names, belief, "{grace}", "{count}", limit}, []int{4}},
		"count":    {slices.Concat(all[1:2], all[8:]), []string{"{now}", names, belief, "{from}", "{to}", "{index}", "{count}", limit}, []int{2}},
		"lines":    {[]string{"line", "ready", "control"}, []string{"{now}", "{cursor}", "{most}", "tenant"}, []int{5 + 6}},
		"lanes":    {[]string{"line", "agenda", "ready", "tags"}, []string{"{now}", "{cursor}", "{most}"}, []int{3, 3 + 6}},
		"explain":  {all, []string{"{now}", names, belief, "{weight} {grace}", "{lane}", "{id}", "{count}", limit}, []int{16}},
		"waiting":  {[]string{"lane:a|"}, []string{"{now}", "{rank}", "{most}"}, []int{1, 4}},
		"entries":  {slices.Concat(all[1:2], all[8:]), []string{"{now}", names, belief, "{grace}", "{count}", limit}, []int{5, 7, 9}},
		"pause":    {[]string{"control", "agenda"}, []string{"{now}", "{name}", "{length}", "{kept}"}, []int{2}},
		"resume":   {[]string{"control", "agenda"}, []string{"{now}", "{name}"}, []int{1}},
		"recall":   {[]string{"agenda", "line"}, []string{"{now}", "{cursor}", "{most}", "a", ""}, []int{1}},
		"controls": {[]string{"control"}, []string{"{now}", names, belief}, []int{3}},
		"set":      {[]string{"control"}, []string{"{field}", "{text}"}, []int{1}},
		"check":    {[]string{"check", "control"}, []string{"{now}"}, []int{6}},
		"adopt":    {[]string{"key:global:", "ledger:global::60000000"}, []string{"{now}", "{grace}", "{count}", limit}, []int{1}},
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
		"lookahead": {[]string{"0", span}, []string{"34560000000001"}},
		"kept":      {[]string{"1", "69206400000"}, []string{"0", "9007199254740994"}},
		"plan":      {[]string{"0", "1"}, []string{"2"}},
		"start":     {[]string{"0", "1800000000000000", units}, []string{"9007199254740994"}},
		"actual":    {[]string{"0", "10", units}, []string{"9007199254740994"}},
		"within":    {[]string{"0", span}, []string{"34560000000001"}},
		"length":    {[]string{"0", span}, []string{"34560000000001"}},
		"share":     {[]string{"1", units}, []string{"0", "9007199254740994"}},
		"pulled":    {[]string{"0", "100"}, []string{"101"}},
		"recall":    {[]string{"0", "1"}, []string{"2"}},
		"most":      {[]string{"1", "1000"}, []string{"0", "1001"}},
		"aside":     {[]string{"0", "300000000"}, []string{"300000001"}},
		"gone":      {[]string{"1"}, []string{"0", "2", "1001"}},
		"age":       {[]string{"0", "1000000"}, []string{"300000001"}},
		"forget":    {[]string{"0", span}, []string{"34560000000001"}},
		"jobs":      {[]string{"0", "1"}, []string{"2"}},
		"cursor":    {[]string{"0"}, nil},
		"from":      {[]string{"0", "60000000"}, []string{"34560000000001"}},
		"to":        {[]string{"0", "1000000"}, []string{"34560000000001"}},
		"index":     {[]string{"0", "1", "2"}, []string{"9007199254740993"}}, // 0 and 2: none
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
					reply, err := client.Eval(t.Context(), composed[script], keys, d.with(name, text)...).Slice()
					if !slices.Contains(d.replies, len(reply)) && !adoptable(name, err) {
						t.Errorf("%s with %s = %s: got %v, %v; want %d values", script, name, text, reply, err, d.replies)
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

// adoptable tells whether a script, but for adopt, went on to what is kept and found
// it in the window or the precision of good.
func adoptable(name string, err error) bool {
	return (name == "window" || name == "precision") && err != nil && err.Error() == "THROTTLE_LEDGERS 1 "+good["window"]
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

// TestNamesAndCountsOfArguments: names that would break what is kept are refused,
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
			for name, malformed := range malformedNames() {
				for _, text := range malformed {
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
			if d.has("count") { // others leave it alone
				refused("a key too many", append(slices.Clone(keys), prefix+"more"), args)
			}
			if diff := cmp.Diff(before, dump(t, client, prefix)); diff != "" {
				t.Errorf("%s wrote something (-before +after):\n%s", script, diff)
			}
		}
	})
}

// malformedNames are texts that are no name, by what they are told to be.
func malformedNames() map[string][]string {
	all := []string{"a b", "a\nb", "ä", "\x00", "a|b |", "a|\n"}
	scopeKeys := []string{"a", ":", ":a", "a:b:c", "a: ", "ä:a", "a:ä", "a:b\n", "a:b\x00"}
	malformed := map[string][]string{
		"nonce": all, "lane": all, "classes": all, "text": {"a b", "a\nb", "\x00", "a|\n", "10/1m 5/1s", "10/1m,\t5/1s", "10/1m~e", "~", "10/1m\n"},
		"keys": slices.Concat(all, []string{"", "k1.w1", "k-1"}), "ledgers": slices.Concat(all, []string{"", "k1", "k1.", ".w1", "k1.w1.w2", "k-1.w1"}),
		"name": slices.Concat(all, scopeKeys, []string{""}), "field": slices.Concat(all, scopeKeys, []string{"", "~", "~a", "~a:b", "!a:b", "%", "%a"}),
		"names": slices.Concat(all, []string{" ", "+", "a:b", "+a", "+:b", "*a:b", "+a:b ", " +a:b", "+a:b  +a:c", "+a:b\n+a:c", "+a:b+a:c", "+a:b:c", "+a:ä", "+a:b c:d"}),
	}
	for _, name := range scopeKeys {
		malformed["field"] = append(malformed["field"], "%"+name)
		malformed["names"] = append(malformed["names"], "+"+name, "+global: -"+name)
	}
	return malformed
}

// TestNamesThatAreRight: what Go may send is not refused.
func TestNamesThatAreRight(t *testing.T) {
	t.Parallel()
	tests := map[string][]string{
		"names":   {"", "+global:", "-global:", "+tenant:", "+a_B.1-:a%2Fb@x.y +b:~Zz_-9 -c:-"},
		"name":    {"global:", "a_B.1-:a%2Fb@x.y", "tenant:~Zz_-9"},
		"field":   {"%global:", "%tenant:", "%a_B.1-:a%2Fb@x.y", "%tenant:~Zz_-9"},
		"text":    {"", "10/1m", "0/1m", "10/1m@1ms,unlimited/24h,500/1.5s@10ms", "500/1m@1µs"},
		"nonce":   {"a_B.1-"},
		"keys":    {"0", "1y2p0ij32e8e7"},
		"ledgers": {"0.0", "1y2p0ij32e8e7.1y2p0ij32e8e7"},
	}
	onServers(t, func(t *testing.T, client *redis.Client) {
		for script, d := range calls() {
			for name, texts := range tests {
				if !d.has(name) {
					continue
				}
				for _, text := range texts {
					keys, _ := prepare(t, client, d)
					if reply, err := client.Eval(t.Context(), composed[script], keys, d.with(name, text)...).Slice(); err != nil || !slices.Contains(d.replies, len(reply)) {
						t.Errorf("%s with %s = %q: got %v, %v; want %d values", script, name, text, reply, err, d.replies)
					}
				}
			}
		}
	})
}

// TestModesThatAreSet: a mode is one of three letters, for a scope or for all.
func TestModesThatAreSet(t *testing.T) {
	t.Parallel()
	tests := []struct {
		field, text string
		right       bool
	}{
		{"~", "e", true},
		{"~tenant", "s", true},
		{"~a_B.1-", "o", true},
		{"~", "", true},
		{"~tenant", "x", false},
		{"~tenant", "es", false},
		{"~tenant", "10/1m", false},
		{"~tenant:", "e", false},
		{"~ä", "e", false},
	}
	onServers(t, func(t *testing.T, client *redis.Client) {
		for _, test := range tests {
			keys, prefix := prepare(t, client, calls()["set"])
			before := dump(t, client, prefix)
			err := client.Eval(t.Context(), lua.Set, keys, test.field, test.text).Err()
			refused := err != nil && strings.HasPrefix(err.Error(), "THROTTLE_ARGUMENT ")
			if refused == test.right || !refused && err != nil {
				t.Errorf("set %q to %q: got %v, want it taken: %v", test.field, test.text, err, test.right)
			}
			if diff := cmp.Diff(before, dump(t, client, prefix)); refused && diff != "" {
				t.Errorf("set %q to %q wrote something (-before +after):\n%s", test.field, test.text, diff)
			}
		}
	})
}

// prepare makes one charge and one booking under a prefix of its own, leaves one
// job in line and a pause that is over, and returns the keys of the call.
func prepare(t *testing.T, client *redis.Client, d direct) (keys []string, prefix string) {
	t.Helper()
	name := "lua" + rand.Text()
	prefix = "thr:{" + name + "}:3:"
	under := func(ends []string) []string {
		keys := make([]string, 0, len(ends))
		for _, end := range ends {
			keys = append(keys, prefix+end)
		}
		return keys
	}
	for i := range 3 {
		reserve := calls()["reserve"]
		args, id := reserve.with("weight", "8"), fmt.Sprint("before", i)
		// No deadline, so that the others wait in line.
		args[5] = strings.Replace(fmt.Sprint(args[5]), " "+good["latest"]+" ", "  ", 1)
		args[7] = id
		keys := append([]string{prefix + "job:" + id}, under(reserve.keys[1:])...)
		if _, err := client.Eval(t.Context(), lua.Reserve, keys, args...).Result(); err != nil {
			t.Fatalf("prepare: %v", err)
		}
	}
	pull := calls()["pull"]
	if reply, err := client.Eval(t.Context(), lua.Pull, under(pull.keys), pull.with("lookahead", "100000000")...).Slice(); err != nil || len(reply) != 5 {
		t.Fatalf("prepare: pulled %v, %v; want one job", reply, err)
	}
	pause := calls()["pause"]
	if err := client.Eval(t.Context(), lua.Pause, under(pause.keys), good["now"], "other:x", "0", good["kept"]).Err(); err != nil {
		t.Fatalf("prepare: %v", err)
	}
	return under(d.keys), prefix
}

// dump reads what lies under a prefix.
func dump(t *testing.T, client *redis.Client, prefix string) map[string]string {
	t.Helper()
	ctx, held := context.Background(), make(map[string]string)
	scan := client.Scan(ctx, 0, prefix+"*", 1000).Iterator()
	for scan.Next(ctx) {
		var entries any
		kind, err := client.Type(ctx, scan.Val()).Result()
		if err != nil {
			t.Fatal(err)
		}
		switch kind {
		case "string":
			entries, err = client.Get(ctx, scan.Val()).Result()
		case "hash":
			entries, err = client.HGetAll(ctx, scan.Val()).Result()
		default:
			entries, err = client.ZRangeWithScores(ctx, scan.Val(), 0, -1).Result()
		}
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

var keyPattern = regexp.MustCompile(`thr:\{name\}:(?:<[^>]*>|[^ ,<])*`)

// TestKeyPatterns: the keys that the headers name are those that Go builds.
func TestKeyPatterns(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	scopes := []throttle.Scope{
		{Name: "SCOPE", Optional: true, Limits: []throttle.Limit{throttle.PerHour(1)}},
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerHour(2)}},
	}
	th, err := throttle.New("NAME", client, scopes, nil)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Unix(1_800_000_000, 0)
	server.SetTime(began)
	of := map[string]string{"SCOPE": "KEY"}
	for i, job := range []throttle.Job{ // the first is granted and one of the others, the rest wait
		{ID: "ID1", Keys: of}, {ID: "ID2", Keys: of}, {ID: "ID3", Keys: of}, {ID: "ID4"}, {ID: "ID5"},
	} {
		server.SetTime(began.Add(time.Duration(i) * time.Millisecond))
		job.Weight, job.Nonce = 1, "n"
		if _, err := th.Reserve(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := th.Pause(t.Context(), "SCOPE", "OTHER", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	server.SetTime(began.Add(time.Hour))
	if booked, _, err := th.Pull(t.Context(), "|SCOPE=KEY"); err != nil || len(booked) != 1 {
		t.Fatalf("pulled %v, %v; want one job, and one left in line", booked, err)
	}
	names := strings.NewReplacer("{name}", "{NAME}", "<scope>", "SCOPE", "<key>", "KEY", "<window>", "3600000000", "<id>", "ID1",
		"<fair key>", "", "<lane>", "|SCOPE=KEY")
	for _, f := range readFiles(t, "*.lua") {
		for _, s := range sections(t, f) {
			if s.kind != "KEYS" {
				continue
			}
			for _, pattern := range keyPattern.FindAllString(s.text, -1) {
				key, want := names.Replace(pattern), int64(1)
				if f.name == "check" {
					want = 0 // it leaves nothing
				}
				if n, err := client.Exists(t.Context(), key).Result(); err != nil || n != want {
					t.Errorf("%s declares the key %s: Go wrote %d of %s, want %d (%v)", f.name, pattern, n, key, want, err)
				}
			}
		}
	}
}
