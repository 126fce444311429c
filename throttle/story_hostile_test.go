package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// keysPassed is a client that notes the keys which scripts are given.
type keysPassed struct {
	redis.Scripter
	keys map[string]struct{}
}

func (c *keysPassed) EvalSha(ctx context.Context, hash string, keys []string, args ...any) *redis.Cmd {
	for _, key := range keys {
		c.keys[key] = struct{}{}
	}
	return c.Scripter.EvalSha(ctx, hash, keys, args...)
}

// longestKey is more than the longest key of a throttle whose name has 64 bytes, which
// is that of a lane of two keyed scopes: prefix, word, three encoded values.
const longestKey = 500

// FuzzHostileValues: whatever bytes a tenant, a domain and a job's ID are of, every key
// that a script writes lies under the throttle's own prefix, in its slot, and is short;
// what is set for the tenant stands in a key of its own; and two tenants of different
// bytes share nothing. T1, F50.
func FuzzHostileValues(f *testing.F) {
	for i, value := range hostile {
		if len(value) < 1000 {
			f.Add(value, hostile[(i+1)%40], hostile[(i+2)%40])
		}
	}
	f.Add("*", "thr:{x}:4:control", "}:4:jobs")
	f.Add("a|domain:b", "a", "=x")
	f.Add("a,domain:b", "b,tenant:c", "+a|")
	f.Add("%7E", "~", "!tenant:a")
	f.Add("global", "global:!", "%s\n%d")
	f.Add("a!", ">a", "1 2 3:1")
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(server.Close)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	f.Cleanup(func() { _ = client.Close() })
	f.Fuzz(func(t *testing.T, tenant, domain, id string) {
		if tenant == "" || domain == "" || id == "" {
			t.Skip("refused before anything is asked")
		}
		server.FlushAll()
		hostileValues(t, server, client, tenant, domain, id)
	})
}

// TestT1_F50_LongValues: the same for values of more than a hundred kilobytes.
func TestT1_F50_LongValues(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	long := strings.Repeat("{}:\x00\n*%\xff", 1<<14)
	hostileValues(t, server, client, long, long+"x", "x"+long)
}

// TestHashOfALongKey: answers have a hash in place of a key that is too long. The hash is enough to look at the key. A
// change has to name the key itself.
func TestHashOfALongKey(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	th, ctx, long := hostileThrottle(t, client), t.Context(), strings.Repeat("ключ", 30)
	if _, err := inspect.New(th).Pause(ctx, "tenant", long, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	set, err := inspect.New(th).Settings(ctx)
	if err != nil {
		t.Fatal(err)
	}
	told := ""
	for _, s := range set {
		told = s.Key
	}
	var wrong *throttle.ArgumentError
	if u, err := inspect.New(th).Usage(ctx, "tenant", told); err != nil || u.Paused.IsZero() {
		t.Errorf("usage under the hash: %+v, %v, want the pause of the key", u, err)
	}
	_, errResume := inspect.New(th).Resume(ctx, "tenant", told)
	for _, err := range []error{errResume,
		inspect.New(th).SetLimits(ctx, "tenant", told, []throttle.Limit{throttle.PerHour(1)}),
		inspect.New(th).ResetLimits(ctx, "tenant", told)} {
		if !errors.As(err, &wrong) || wrong.Argument != "key" || !strings.HasPrefix(told, "~") {
			t.Errorf("%q: %v", told, err)
		}
	}
	if ended, err := inspect.New(th).Resume(ctx, "tenant", long); err != nil || !ended {
		t.Errorf("the key itself: %t, %v", ended, err)
	}
}

func hostileValues(t *testing.T, server *miniredis.Miniredis, client *redis.Client, tenant, domain, id string) {
	t.Helper()
	passed := &keysPassed{client, make(map[string]struct{})}
	th := hostileThrottle(t, passed)
	id = asID("", id)
	hostileHistory(t, th, throttle.Job{ID: id, Weight: 1, Keys: map[string]string{"tenant": tenant, "domain": domain}})
	checkKeys(t, th, server.Keys(), throttle.Encode(tenant), throttle.Encode(domain))
	for key := range passed.keys {
		if key != "thr:{"+th.Name()+"}:4:control" {
			t.Errorf("a script was given the key %.500q", key)
		}
	}
	other := throttle.Job{ID: id + "2", Weight: 1, Keys: map[string]string{"tenant": domain + "2", "domain": tenant}}
	if domain+"2" == tenant {
		return
	}
	if got := reserve(t, th, other); got.Outcome != throttle.Granted {
		t.Errorf("tenant %.40q, who has used nothing: %+v", domain+"2", got)
	}
}

func hostileThrottle(t *testing.T, client redis.Scripter) *throttle.Throttle {
	t.Helper()
	scopes := []throttle.Scope{
		{Name: "tenant", Limits: []throttle.Limit{throttle.PerHour(2)}},
		{Name: "domain", Limits: []throttle.Limit{throttle.PerHour(100)}},
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerHour(1000)}},
	}
	return newThrottle(t, client, scopes, &throttle.Options{Lookahead: time.Second})
}

// hostileHistory makes each kind of call for a job, others of its tenant in line.
func hostileHistory(t *testing.T, th *throttle.Throttle, job throttle.Job) {
	t.Helper()
	ctx := t.Context()
	tenant := job.Keys["tenant"]
	errs := make(map[string]error)
	first := reserve(t, th, job)
	second, third := job, job
	second.ID, third.ID = job.ID+"-", job.ID+"--"
	granted := reserve(t, th, second)
	waits := reserve(t, th, third)
	if first.Outcome != throttle.Granted || granted.Outcome != throttle.Granted || waits.Outcome != throttle.Waiting {
		t.Fatalf("got %v, %v, %v; want two granted and one in line", first.Outcome, granted.Outcome, waits.Outcome)
	}
	_, errs["Peek"] = th.Peek(ctx, third)
	_, errs["Usage"] = inspect.New(th).Usage(ctx, "tenant", tenant)
	_, errs["Count"] = inspect.New(th).Count(ctx, "tenant", tenant, time.Minute, 0)
	_, errs["Forecast"] = inspect.New(th).Forecast(ctx, []throttle.Job{third})
	_, errs["Pause"] = inspect.New(th).Pause(ctx, "tenant", tenant, time.Now().Add(time.Hour))
	errs["SetLimits"] = inspect.New(th).SetLimits(ctx, "tenant", tenant, []throttle.Limit{throttle.PerHour(2)})
	explained, err := inspect.New(th).Explain(ctx, third)
	errs["Explain"] = err
	if text := explained.String(); explained.Arrived.IsZero() || !isScreen(text) {
		t.Errorf("Explain: %.1000q; want a job in line, and no bytes that move a terminal", text)
	}
	_, errs["Settle"] = th.Settle(ctx, granted, 1)
	page, err := inspect.New(th).Lines(ctx, "")
	errs["Lines"] = err
	if want := tenant; len(page.Lines) != 1 || page.Lines[0].Key != want && page.Lines[0].Key != throttle.Encode(want) {
		t.Errorf("Lines: %+v, want that of %.40q", page.Lines, want)
	}
	jobs, _, err := inspect.New(th).Jobs(ctx, waits.Lane, "")
	errs["Jobs"] = err
	if len(jobs) != 1 || jobs[0].Job.ID != third.ID {
		t.Errorf("Jobs: %.200v, want %.40q", jobs, third.ID)
	}
	_, errs["Pull"] = th.Driver().Pull(ctx)
	_, errs["Release"] = th.Driver().Release(ctx, first)
	left, err := th.Driver().Leave(ctx, []string{third.ID, job.ID})
	errs["Leave"] = err
	if len(left) != 2 || !left[0] || left[1] {
		t.Errorf("Leave: %v, want who waits to have left, and nobody else", left)
	}
	_, errs["Cancel"] = th.Cancel(ctx, third)
	for call, err := range errs {
		if err != nil {
			t.Errorf("%s: %v", call, err)
		}
	}
}

// isScreen tells whether a text is a screen of lines and does nothing else to a terminal.
func isScreen(text string) bool {
	hidden := func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }
	return len(text) < 4000 && utf8.ValidString(text) &&
		strings.Count(text, "\n") == len(strings.Split(strings.TrimSpace(text), "\n")) && !strings.ContainsFunc(text, hidden)
}

// checkKeys holds the keys that were written to their form.
func checkKeys(t *testing.T, th *throttle.Throttle, keys []string, tenant, domain string) {
	t.Helper()
	prefix := "thr:{" + th.Name() + "}:4:"
	there := make(map[string]bool)
	for _, key := range keys {
		rest, under := strings.CutPrefix(key, prefix)
		if !under || hashTag(key) != th.Name() || len(key) > longestKey {
			t.Errorf("key %.500q: want it under %s, and at most %d bytes", key, prefix, longestKey)
		}
		if end := strings.HasPrefix(rest, "settled:"); !end &&
			strings.ContainsFunc(rest, func(r rune) bool {
				return r <= ' ' || r > '~' ||
					strings.ContainsRune(`*?[]{}"'\`, r)
			}) {
			t.Errorf("key %.500q: want no bytes that mean something elsewhere", key)
		}
		there[rest] = true
		if name, is := strings.CutPrefix(rest, "key:tenant:"); is && name != tenant {
			t.Errorf("the scope key of tenant %q is there, for %q", name, tenant)
		}
	}
	for _, want := range []string{"control", "key:tenant:" + tenant, "key:domain:" + domain, "key:global:"} {
		if !there[want] {
			t.Errorf("%s was not written", want)
		}
	}
}

// TestT1_F50_HostileNamesOfScopes: a scope that is none cannot be named either, however
// its name would stand in a key or a control field.
func TestT1_F50_HostileNamesOfScopes(t *testing.T) {
	t.Parallel()
	client := miniClient(t)
	passed := &keysPassed{client, make(map[string]struct{})}
	th := hostileThrottle(t, passed)
	for _, name := range append([]string{"", "tenant:a", "~", "!tenant", "%tenant", "Tenant", "control"}, hostile...) {
		for call, err := range map[string]error{
			"Usage":     second(inspect.New(th).Usage(t.Context(), name, "a")),
			"Count":     second(inspect.New(th).Count(t.Context(), name, "a", time.Second, 0)),
			"Pause":     second(inspect.New(th).Pause(t.Context(), name, "a", time.Now().Add(time.Hour))),
			"Resume":    second(inspect.New(th).Resume(t.Context(), name, "a")),
			"Report":    second(th.Report(t.Context(), name, "a", throttle.Report{})),
			"Reset":     inspect.New(th).ResetLimits(t.Context(), name, "a"),
			"SetLimits": inspect.New(th).SetLimits(t.Context(), name, "a", []throttle.Limit{throttle.PerHour(1)}),
			"ResetMode": resetMode(th, name),
			"Reserve": second(th.Reserve(t.Context(),
				throttle.Job{ID: "x", Weight: 1, Keys: map[string]string{"tenant": "a", "domain": "b", name: "c"}})),
		} {
			var wrong *throttle.ArgumentError
			var job *throttle.InvalidJobError
			if !errors.As(err, &wrong) && !errors.As(err, &job) {
				t.Errorf("%s of scope %.40q: got %v, want an *ArgumentError or an *InvalidJobError", call, name, err)
			}
		}
	}
	if len(passed.keys) > 0 {
		t.Errorf("scripts were given keys: %v", passed.keys)
	}
	// A lane is asked for in Redis, since other processes may know its scopes.
	for _, name := range hostile {
		if jobs, _, err := inspect.New(th).Jobs(t.Context(), name, ""); err != nil || len(jobs) > 0 {
			t.Errorf("Jobs of lane %.40q: got %v, %v; want none", name, jobs, err)
		}
	}
	if keys := keyNames(t, client, th); len(keys) > 0 {
		t.Errorf("written: %q", keys)
	}
}

func second[T any](_ T, err error) error { return err }

// resetMode is ResetMode; empty stands for all scopes and is right.
func resetMode(th *throttle.Throttle, name string) error {
	if name == "" {
		return fmt.Errorf("not asked: %w", &throttle.InvalidJobError{})
	}
	return inspect.New(th).ResetMode(context.Background(), name)
}
