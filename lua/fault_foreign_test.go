package lua_test

import (
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/lua"
)

const dawn = 1_800_000_000_000_000

// crowded is a throttle that has at least one key of every kind.
type crowded struct {
	*scripted
	client *redis.Client
	now    int64
	grants map[string]line.Grant
	kept   map[string]value // all that it had, by the ends of the keys
}

// jobOf returns a job of a tenant; namedJobOf returns one of a domain too.
func jobOf(tenant, id string, cost int64) line.Job {
	return line.Job{ID: id, Lane: tenant + "|global:,tenant:" + tenant, Costs: []int64{cost, cost},
		Latest: line.Never, Share: 1}
}

func namedJobOf(tenant, id string, cost int64) line.Job {
	j := jobOf(tenant, id, cost)
	j.Lane, j.Costs = tenant+"|domain:x,global:,tenant:"+tenant, append(j.Costs, cost)
	return j
}

func newCrowded(t *testing.T, client *redis.Client) *crowded {
	t.Helper()
	return newCrowdedAt(t, client, func(string) bool { return true })
}

// newCrowdedAt returns a crowded throttle with a prefix that right accepts.
func newCrowdedAt(t *testing.T, client *redis.Client, right func(prefix string) bool) *crowded {
	t.Helper()
	prefix := ""
	for prefix == "" || !right(prefix) {
		prefix = "thr:{" + rand.Text() + "}:4:"
	}
	thousand := []line.Limit{{Units: 1000, Span: line.Window(60_000_000), Precision: 600_000}}
	tenant := []line.Limit{{Units: 40, Span: line.Window(60_000_000), Precision: 1}}
	c := &crowded{client: client, now: dawn, grants: make(map[string]line.Grant), scripted: &scripted{
		client: client, prefix: prefix,
		settings: line.Settings{Lookahead: 1_000_000, Grace: 5_000_000, Scopes: map[string]line.Scope{
			"global": {Mode: line.Enforce, Limits: thousand},
			"tenant": {Mode: line.Enforce, Limits: tenant},
			"domain": {Mode: line.Enforce, Limits: thousand},
		}},
	}}
	for i := range 20 { // enough for a log
		c.comes(t, "1 ", jobOf("a", fmt.Sprint("a", i), 1))
		c.now += 1000
	}
	c.comes(t, "1 ", jobOf("b", "b0", 40))
	planned := jobOf("c", "planned", 1)
	planned.Plan = true
	c.comes(t, "2 ", planned)
	c.comes(t, "3 ", jobOf("a", "heavy", 30))       // the job gets a claim
	c.comes(t, "3 ", namedJobOf("a", "parked", 30)) // the job is parked beside it
	shared := jobOf("b", "shared", 1)
	shared.Share = 2
	c.comes(t, "3 ", shared)
	c.comes(t, "3 ", namedJobOf("b", "named", 1))
	late := jobOf("d", "late", 1)
	late.Plan = true
	c.now -= 7_000_000
	c.comes(t, "2 ", late) // nobody comes for it
	c.now += 7_000_000
	for _, change := range [][3]string{
		{"limits", "tenant:e", "5/w60000000/1"}, {"limits", "tenant", line.LimitsText(tenant)}, {"mode", "domain", "s"},
		{"pause", "tenant:f", "1000000000"},
	} {
		if _, err := c.set(c.now, change[0], change[1], change[2], 0); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if _, _, err := c.pull(c.now, 50, 200, 1); err != nil {
			t.Fatal(err)
		}
		c.now += 1000
	}
	if _, err := c.settle(c.now, c.grants["a0"], []int64{0, 0}, 3_600_000_000, 1, false); err != nil {
		t.Fatal(err)
	}
	c.kept = c.read(t)
	return c
}

// comes asks for a job, and fails the test if the answer does not begin with want.
func (c *crowded) comes(t *testing.T, want string, job line.Job) {
	t.Helper()
	_, lines, err := c.reserve(c.now, []line.Job{job})
	if err != nil || !strings.HasPrefix(lines[0], want) {
		t.Fatalf("%s: got %q, %v; want %q", job.ID, lines, err, want)
	}
	c.grants[job.ID] = line.Grant{ID: job.ID, Lane: job.Lane, Costs: job.Costs, Start: c.now}
}

// value is the content of a key: a text, a list, a hash, or members with their scores.
type value struct {
	kind    string
	text    string
	list    []string
	hash    map[string]string
	members map[string]float64
}

// read returns every key under the prefix, except the last answers of askers.
func (c *crowded) read(t *testing.T) map[string]value {
	t.Helper()
	ctx := t.Context()
	keys, err := c.client.Keys(ctx, c.prefix+"*").Result()
	if err != nil {
		t.Fatal(err)
	}
	keys = slices.DeleteFunc(keys, func(key string) bool { return strings.HasPrefix(key, c.prefix+"asked:") })
	kinds, err := c.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range keys {
			p.Type(ctx, key)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	contents, err := c.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			switch kinds[i].(*redis.StatusCmd).Val() {
			case "string":
				p.Get(ctx, key)
			case "list":
				p.LRange(ctx, key, 0, -1)
			case "hash":
				p.HGetAll(ctx, key)
			case "zset":
				p.ZRangeWithScores(ctx, key, 0, -1)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]value)
	for i, key := range keys {
		v := value{kind: kinds[i].(*redis.StatusCmd).Val()}
		switch content := contents[i].(type) {
		case *redis.StringCmd:
			v.text = content.Val()
		case *redis.StringSliceCmd:
			v.list = content.Val()
		case *redis.MapStringStringCmd:
			v.hash = content.Val()
		case *redis.ZSliceCmd:
			v.members = make(map[string]float64)
			for _, m := range content.Val() {
				v.members[m.Member.(string)] = m.Score
			}
		}
		all[strings.TrimPrefix(key, c.prefix)] = v
	}
	return all
}

// restore writes all keys of the throttle again, with a foreign value at one of them.
func (c *crowded) restore(t *testing.T, end string, foreign value) {
	t.Helper()
	there := c.read(t)
	_, err := c.client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for key := range there {
			p.Del(t.Context(), c.prefix+key)
		}
		for key, v := range c.kept {
			if key != end {
				c.put(t, p, key, v)
			}
		}
		c.put(t, p, end, foreign)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (c *crowded) put(t *testing.T, p redis.Pipeliner, end string, v value) {
	t.Helper()
	ctx, key := t.Context(), c.prefix+end
	switch v.kind {
	case "string":
		p.Set(ctx, key, v.text, 0)
	case "list":
		for _, element := range v.list {
			p.RPush(ctx, key, element)
		}
	case "hash":
		p.HSet(ctx, key, v.hash)
	case "zset":
		for member, score := range v.members {
			p.ZAdd(ctx, key, redis.Z{Member: member, Score: score})
		}
	}
}

// calls returns a call of every script, in each way to call it. Of each answer, only what went wrong matters.
func (c *crowded) calls() map[string]func() (string, error) {
	now := c.now + 1_000_000
	decided := func(jobs ...line.Job) func() (string, error) {
		return func() (string, error) {
			_, lines, err := c.reserve(now, jobs)
			for _, text := range lines {
				if strings.HasPrefix(text, "0 ") {
					return text, err
				}
			}
			return "", err
		}
	}
	run := func(script string, args ...any) func() (string, error) {
		return func() (string, error) { _, err := c.run(script, now, args...); return "", err }
	}
	planned := jobOf("c", "planned", 1)
	return map[string]func() (string, error){
		"reserve of a":                decided(jobOf("a", "new", 1)),
		"reserve of b":                decided(jobOf("b", "new", 1)),
		"reserve of b, another":       decided(namedJobOf("b", "new", 1)),
		"reserve of nobody":           decided(jobOf("g", "new", 1)),
		"reserve of who is paused":    decided(jobOf("f", "new", 1)),
		"reserve of who waits":        decided(jobOf("b", "shared", 1)),
		"reserve of who is booked":    decided(planned),
		"reserve of who did not come": decided(jobOf("d", "late", 1)),
		"reserve of another lane":     decided(namedJobOf("c", "planned", 1)),
		"leave of who waits":          run(lua.Leave, "shared"),
		"leave of who is parked":      run(lua.Leave, "parked"),
		"leave of who is booked":      run(lua.Leave, "planned"),
		"settle": func() (string, error) {
			_, err := c.settle(now, c.grants["a1"], []int64{0, 0}, 3_600_000_000, 1, false)
			return "", err
		},
		"settle of more": func() (string, error) {
			_, err := c.settle(now, c.grants["b0"], []int64{41, 41}, 3_600_000_000, 1, false)
			return "", err
		},
		"pause":              run(lua.Set, "pause", "tenant:a", "1000000", "0", "ann|"),
		"report":             run(lua.Report, "tenant:a", "1 0 0 100 0", "0/50/10"),
		"resume":             run(lua.Set, "resume", "tenant:b", "", "0", "ann|"),
		"limits of a key":    run(lua.Set, "limits", "tenant:a", "7/w60000000/1", "0", "ann|"),
		"limits of a scope":  run(lua.Set, "limits", "tenant", "7/w60000000/1", "0", "ann|"),
		"mode":               run(lua.Set, "mode", "tenant", "s", "0", "ann|"),
		"usage":              run(lua.Usage, "", "tenant:a", "tenant:b", "global:"),
		"usage with entries": run(lua.Usage, "e", "tenant:a", "global:"),
		"count":              run(lua.Usage, "c 1000000 0", "tenant:a"),
		"lines keys":         run(lua.Lines, "keys", 0, 100),
		"lines queues":       run(lua.Lines, "queues", "tenant:a", "tenant:b", 0, 100),
		"lines lists":        run(lua.Lines, "lists", "b|global:,tenant:b", 0, 100),
		"lines lanes":        run(lua.Lines, "lanes", "tenant:b", "b", 0, 100),
		"lines claims":       run(lua.Lines, "claims", 0, 100),
		"lines jobs":         run(lua.Lines, "jobs", "b|global:,tenant:b", 0, 100),
		"lines job":          run(lua.Lines, "job", "shared", "b|global:,tenant:b", 0, 100),
		"pull": func() (string, error) {
			said, _, err := c.pull(now, 50, 200, 1)
			if err != nil {
				return "", err
			}
			return said[2], nil
		},
	}
}

// TestF16_ForeignData: the test puts data of another type, or another text, at each key of the throttle. A call then
// either reports foreign data or does not read that key. A call that reports it writes nothing, except that a pull goes
// on with the other jobs. The foreign data stays as it is.
func TestF16_ForeignData(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		c := newCrowded(t, client)
		found := make(map[string]int)
		mini := strings.HasSuffix(t.Name(), "miniredis") && longtest.Of(true, false)
		for _, end := range slices.Sorted(maps.Keys(c.kept)) {
			kind, _, _ := strings.Cut(end, ":")
			if kind == "settled" || kind == "pulled" {
				continue // a mark exists or does not: its content is not read
			}
			for _, foreign := range []value{
				{kind: "string", text: "foreign"}, {kind: "list", list: []string{"foreign"}},
				{kind: "hash", hash: map[string]string{"foreign": "x"}}, {kind: "zset", members: map[string]float64{"foreign": 1}},
			} {
				if mini && foreign.kind != "list" && foreign.kind != "string" {
					continue // miniredis compiles a script anew each time
				}
				if foreign.kind == c.kept[end].kind && !(kind == "key" || kind == "control") {
					continue // other members of our own lists and sets may be jobs and keys of somebody
				}
				changed, before := true, map[string]value(nil)
				for name, call := range c.calls() {
					if changed {
						c.restore(t, end, foreign)
						before = c.read(t)
					}
					said, err := call()
					after := c.read(t)
					what := fmt.Sprintf("%s, with a %s at %s", name, foreign.kind, end)
					if err != nil {
						said = err.Error()
					}
					if said != "" {
						found[kind]++
					}
					if said != "" && !strings.Contains(said, "FOREIGN ") && !strings.Contains(said, "WRONGTYPE") {
						t.Errorf("%s: broke with %s", what, said)
					}
					diff := cmp.Diff(before, after, cmp.AllowUnexported(value{}))
					if changed = diff != ""; said != "" && name != "pull" && changed {
						t.Errorf("%s: said %s, and wrote (-before +after):\n%s", what, said, diff)
					}
					if diff := cmp.Diff(foreign, after[end], cmp.AllowUnexported(value{})); diff != "" {
						t.Errorf("%s: it was changed (-before +after):\n%s", what, diff)
					}
				}
			}
		}
		for _, kind := range []string{"control", "key", "ledger", "timers", "jobs", "claims", "lane", "lanes",
			"wait", "tags"} {
			if found[kind] == 0 {
				t.Errorf("nobody has noticed anything at %s: %v", kind, found)
			}
		}
	})
}
