package lua_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
)

// hostileTexts are what an argument or a part of it is replaced by.
var hostileTexts = []string{
	"", " ", "-1", "0", "1", "2", "nan", "-nan", "inf", "-inf", "1e400", "1e3", "0x10", " 12 ", "1.5", "007", "+1", "-0",
	"9007199254740992", "9007199254740993", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
	strings.Repeat("9", 400), strings.Repeat("x", 1<<16), "\x00", "\n", "\xff\xfe", "%", "%d%s", "(.*)", "{", "}{", "*", "|", "a|", "a|b", "~e", "nil", "false",
	"THROTTLE_ARGUMENT", "+global: -tenant:a", "10/1m", "k1.w1", "60000000 1000000", "1 2 3", "1 2 3 4 5 6 7 8 9",
}

// mutation is a call of a script that was right before something was changed in it.
type mutation struct {
	script string
	keys   []string
	args   []any
	line   bool // a key of the line, or of the job, was changed
	short  bool // keys or arguments are missing
	what   []string
}

func (m *mutation) String() string {
	ends := make([]string, 0, len(m.keys))
	for _, key := range m.keys {
		_, end, _ := strings.Cut(key, ":3:")
		ends = append(ends, end)
	}
	return fmt.Sprintf("%s with %s: KEYS %q, ARGV %.80q", m.script, strings.Join(m.what, ", "), ends, m.args)
}

// mutate changes a right call in one to three places.
func mutate(r *rand.Rand, script, prefix string) *mutation {
	d := calls()[script]
	m := &mutation{script: script, args: d.with("", "")}
	for _, end := range d.keys {
		m.keys = append(m.keys, prefix+end)
	}
	for range 1 + r.IntN(3) {
		if r.IntN(4) == 0 {
			m.mutateKeys(r, d, prefix)
		} else {
			m.mutateArguments(r)
		}
	}
	return m
}

func (m *mutation) mutateKeys(r *rand.Rand, d direct, prefix string) {
	others := []string{prefix + "nothing", prefix, prefix + "job:before0", prefix + "line", prefix + "ready", prefix + "key:global:", prefix + "control"}
	switch i := r.IntN(len(m.keys) + 2); {
	case i == len(m.keys):
		m.keys = append(m.keys, others[r.IntN(len(others))])
		m.what = append(m.what, "a key too many")
	case i > len(m.keys):
		m.keys = m.keys[:r.IntN(len(m.keys))]
		m.what, m.short = append(m.what, fmt.Sprintf("%d keys", len(m.keys))), true
	default:
		m.keys[i] = others[r.IntN(len(others))]
		m.line = m.line || i < len(d.keys) && !strings.HasPrefix(d.keys[i], "key:") && !strings.HasPrefix(d.keys[i], "ledger:")
		m.what = append(m.what, fmt.Sprintf("KEYS[%d]", i+1))
	}
	if len(m.keys) == 0 {
		m.keys = []string{others[0]}
	}
}

func (m *mutation) mutateArguments(r *rand.Rand) {
	text := hostileTexts[r.IntN(len(hostileTexts))]
	if r.IntN(40) == 0 {
		text = composed[m.script]
	}
	i := r.IntN(len(m.args) + 3)
	switch {
	case i >= len(m.args)+2 || len(m.args) == 0:
		m.args = append(m.args, text)
		m.what = append(m.what, "an argument too many")
		return
	case i == len(m.args)+1:
		m.args = m.args[:r.IntN(len(m.args))]
		m.what, m.short = append(m.what, fmt.Sprintf("%d arguments", len(m.args))), true
		return
	case i == len(m.args):
		i = r.IntN(len(m.args))
		j := r.IntN(len(m.args))
		m.args[i], m.args[j] = m.args[j], m.args[i]
		m.what = append(m.what, fmt.Sprintf("ARGV[%d] and [%d] in each other's place", i+1, j+1))
		return
	}
	whole := fmt.Sprint(m.args[i])
	if pieces := strings.Split(whole, " "); len(pieces) > 1 && r.IntN(3) > 0 {
		pieces[r.IntN(len(pieces))] = text
		text = strings.Join(pieces, " ")
	}
	m.args[i] = text
	m.what = append(m.what, fmt.Sprintf("ARGV[%d]", i+1))
}

var digits = regexp.MustCompile(`[0-9]{19}`)

// beyondMiniredis tells an error of miniredis' Lua, which reads no number from 2^63 on.
func (m *mutation) beyondMiniredis(text string) bool {
	return strings.Contains(text, "(new function)") && digits.MatchString(fmt.Sprint(m.args...))
}

// refusal is an error of ours, or what Redis says of a key of another type and of a
// cursor that is none.
var refusal = regexp.MustCompile(`THROTTLE_[A-Z]+ |WRONGTYPE |invalid cursor`)

// How many calls of each script are tried. miniredis compiles a script anew each time.
var (
	mutations     = longtest.Of(50, 150)
	mutationsMini = longtest.Of(10, 50)
)

// TestT3_F45_MutatedCalls: whatever is changed in a right call of a script, it is
// answered, or refused by a code of ours with nothing written. Where keys or arguments
// are missing, which no call of ours lacks, Lua itself may say so; nothing is written
// either.
func TestT3_F45_MutatedCalls(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		const seed = 20261121
		calls, broken, refused, half := mutations, 0, 0, 0
		if strings.HasSuffix(t.Name(), "miniredis") {
			calls = mutationsMini
		}
		for i, script := range slices.Sorted(maps.Keys(composed)) {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			prefix, before := "", map[string]string(nil)
			for range calls {
				if before == nil {
					_, prefix = prepare(t, client, direct{})
					pauseMore(t, client, prefix)
					before = held(t, client, prefix)
				}
				m := mutate(r, script, prefix)
				_, err := client.Eval(t.Context(), composed[script], m.keys, m.args...).Result()
				if err == nil {
					before = nil // it was right after all, and may have done something
					continue
				}
				refused++
				text := err.Error()
				if !m.short && !m.beyondMiniredis(text) && !refusal.MatchString(text) {
					t.Errorf("%s: broke with %.300s", m, text)
					broken++
				}
				after := held(t, client, prefix)
				if diff := cmp.Diff(before, after); diff != "" {
					if !m.line {
						t.Errorf("%s: refused with %.200s and wrote (-before +after):\n%.2000s", m, text, diff)
						broken++
					}
					half++
					before = nil
				}
				if broken > 20 {
					t.Fatal("and so on")
				}
			}
		}
		t.Logf("%d calls, %d refused, %d of them of a foreign key of the line with a part written", calls*len(composed), refused, half)
	})
}

// heldScript tells of each key what it holds and whether it expires.
const heldScript = `
local all = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  local kind, value = redis.call('TYPE', key).ok, nil
  if kind == 'string' then
    value = redis.call('GET', key)
  elseif kind == 'hash' then
    value = table.concat(redis.call('HGETALL', key), '\n')
  else
    value = table.concat(redis.call('ZRANGE', key, '0', '-1', 'WITHSCORES'), '\n')
  end
  all[#all + 1] = key
  all[#all + 1] = kind .. (redis.call('PTTL', key) > 0 and ' that expires: ' or ' for ever: ') .. value
end
return all`

// held reads what lies under a prefix, in one call.
func held(t *testing.T, client *redis.Client, prefix string) map[string]string {
	t.Helper()
	all, err := client.Eval(t.Context(), heldScript, nil, prefix+"*").StringSlice()
	if err != nil || len(all) == 0 {
		t.Fatalf("read %s*: %d keys, %v", prefix, len(all)/2, err)
	}
	keys := make(map[string]string, len(all)/2)
	for pair := range slices.Chunk(all, 2) {
		keys[pair[0]] = pair[1]
	}
	return keys
}

// pauseMore closes a scope key of the state that prepare has made, for a while.
func pauseMore(t *testing.T, client *redis.Client, prefix string) {
	t.Helper()
	err := client.Eval(t.Context(), composed["pause"], []string{prefix + "control", prefix + "agenda"}, good["now"], "other:y", good["length"], good["kept"]).Err()
	if err != nil {
		t.Fatalf("prepare: %v", err)
	}
}
