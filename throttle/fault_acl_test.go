package throttle_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// leastRules returns the rules of docs/operations.md that a throttle's user needs: the commands that go-redis sends,
// those that only publishing needs, and the commands that the scripts call.
func leastRules(t testing.TB) []string {
	t.Helper()
	rules := []string{"on", ">secret", "resetkeys", "~thr:*", "resetchannels", "-@all", "+ping", "+hello", "+auth"}
	rules = append(rules, publishing...)
	rules = append(rules, "+evalsha", "+script|load")
	for _, command := range commandsCalled(t) {
		rules = append(rules, "+"+strings.ToLower(command))
	}
	return rules
}

// publishing are the rules that only publishing needs.
var publishing = []string{"+lpush", "+multi", "+exec"}

// userClient returns a client of a user with these rules and no others.
func userClient(t testing.TB, server *redistest.Server, user string, rules []string) *redis.Client {
	t.Helper()
	args := []any{"ACL", "SETUSER", user, "reset"}
	for _, rule := range rules {
		args = append(args, rule)
	}
	if err := server.Client(t).Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("ACL SETUSER %v: %v", args, err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Username: user, Password: "secret"})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// TestF18_LeastRules: under the least rules a Check finds nothing wrong, and all calls
// work; with INFO it knows the rest too.
func TestF18_LeastRules(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rules := leastRules(t)
	t.Logf("the least rules: ACL SETUSER throttle %s", strings.Join(rules, " "))
	for _, test := range []struct {
		rules []string
		want  string
	}{{rules, "info"}, {append(slices.Clone(rules), "+info"), "persistence"}} {
		th := newThrottle(t, userClient(t, server, "user-"+test.want, test.rules), globalScope(throttle.PerHour(5)), nil)
		got, err := check(t, th)
		if diff := cmp.Diff(found{"note": {test.want}}, got); err != nil || diff != "" {
			t.Errorf("got %v; findings (-want +got):\n%s", err, diff)
		}
	}
	client := userClient(t, server, "least", rules)
	throttletest.Run(t, func(t *testing.T, scopes []throttle.Scope, options throttle.Options) throttletest.Subject {
		return newScripted(newThrottle(t, client, scopes, &options))
	})
}

// TestF18_LeastRulesOnCluster: a Cluster's client needs two rules more; it needs EVAL while a slot
// is being moved.
func TestF18_LeastRulesOnCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.SharedCluster(t)
	rules := append(leastRules(t), "+cluster|slots", "+eval")
	args := []any{"ACL", "SETUSER", "least", "reset"}
	for _, rule := range rules {
		args = append(args, rule)
	}
	for _, node := range cluster.Nodes {
		if err := node.Client(t).Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	options := cluster.Options()
	options.Username, options.Password, options.ContextTimeoutEnabled = "least", "secret", true
	client := redis.NewClusterClient(options)
	t.Cleanup(func() { _ = client.Close() })
	for i := range 6 {
		th := newThrottle(t, client, globalScope(throttle.PerHour(5)), nil)
		if _, err := inspect.New(th).Check(t.Context()); err != nil {
			t.Errorf("throttle %d: %v", i, err)
		}
		if _, err := th.Reserve(t.Context(), throttle.Job{ID: "a", Weight: 1}); err != nil {
			t.Errorf("throttle %d: %v", i, err)
		}
	}
}

// TestF18_MissingPermissionIsNamed: if a user lacks any one rule, Check names that rule, and no
// other; once the user has the rule, Check finds nothing any more. Check leaves no key.
func TestF18_MissingPermissionIsNamed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rules := leastRules(t)
	direct := server.Client(t)
	lack := func(what string, missing, later []string, rules []string) {
		t.Helper()
		if err := direct.ScriptFlush(t.Context()).Err(); err != nil { // what others have loaded
			t.Fatal(err)
		}
		th := newThrottle(t, userClient(t, server, "lacking", rules), globalScope(throttle.PerHour(5)), nil)
		for i, m := range missing {
			missing[i] = strings.ReplaceAll(m, "NAME", th.Name())
		}
		_, err := check(t, th)
		var faulty *inspect.CheckError
		if !errors.As(err, &faulty) {
			t.Errorf("%s: got %v, want a *CheckError", what, err)
			return
		}
		if diff := cmp.Diff(missing, faulty.Missing); diff != "" || faulty.Throttle != th.Name() {
			t.Errorf("%s: missing (-want +got):\n%s", what, diff)
		}
		for _, rule := range missing {
			if !strings.Contains(err.Error(), rule) {
				t.Errorf("%s: the error %q does not name %s", what, err, rule)
			}
		}
		if keys := keyNames(t, direct, th); len(keys) > 0 {
			t.Errorf("%s: left behind %v", what, keys)
		}
		given := slices.Concat(rules, faulty.Missing)
		for round := 0; ; round++ {
			again, err := throttle.New(th.Name(), userClient(t, server, "lacking", given), globalScope(throttle.PerHour(5)),
				&throttle.Options{Timeout: patient})
			if err != nil {
				t.Fatal(err)
			}
			if _, err = check(t, again); err == nil {
				return
			}
			// Some commands are tried only where SET and DEL are allowed.
			if !errors.As(err, &faulty) || round > 0 || len(later) == 0 || !slices.Equal(faulty.Missing, later) {
				t.Errorf("%s, given %v: %v", what, given, err)
				return
			}
			given = append(given, faulty.Missing...)
		}
	}
	without := func(which ...string) []string {
		return slices.DeleteFunc(slices.Clone(rules), func(rule string) bool { return slices.Contains(which, rule) })
	}
	for _, rule := range rules[slices.Index(rules, "+evalsha"):] {
		lack("without "+rule, []string{rule}, nil, without(rule))
	}
	var all []string
	for _, command := range commandsCalled(t) {
		all = append(all, "+"+strings.ToLower(command))
	}
	later := []string{"+rpush", "+append"}
	lack("only HSET", sortedAsProbed(t,
		slices.DeleteFunc(slices.Clone(all),
			func(rule string) bool { return rule == "+hset" || slices.Contains(later, rule) })),
		later, append(without(all...), "+hset"))
	lack("no keys", []string{"~thr:{NAME}:*"}, nil, without("~thr:*"))
	lack("others' keys", []string{"~thr:{NAME}:*"}, nil, append(without("~thr:*"), "~thr:{other}:*"))
	lack("some keys", []string{"~thr:{NAME}:*"}, nil, append(without("~thr:*"), "~thr:*:4:check", "~thr:*:4:key:*"))
	lack("keys to read", []string{"~thr:{NAME}:*"}, nil, append(without("~thr:*"), "%R~thr:*"))
}

// sortedAsProbed puts rules in the order in which check.lua tries the commands.
func sortedAsProbed(t testing.TB, rules []string) []string {
	t.Helper()
	probed := commandsProbed(t)
	at := func(rule string) int { return slices.Index(probed, strings.ToUpper(rule[1:])) }
	slices.SortFunc(rules, func(a, b string) int { return at(a) - at(b) })
	return rules
}

// TestF18_WithoutRulesToPublish: if a user lacks rules that only publishing needs, Check warns and names them, and
// leaves no key.
func TestF18_WithoutRulesToPublish(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, row := range []struct{ lacking, told []string }{
		{publishing, publishing}, {publishing[:1], publishing[:1]}, {publishing[1:2], publishing[1:2]},
		{publishing[2:], publishing[1:]}, // a user who may not end a transaction is not asked to begin one
	} {
		lacking := row.lacking
		rules := slices.DeleteFunc(leastRules(t), func(rule string) bool { return slices.Contains(lacking, rule) })
		th := newThrottle(t, userClient(t, server, "lacking", rules), globalScope(throttle.PerHour(5)), nil)
		findings, err := inspect.New(th).Check(t.Context())
		told := slices.DeleteFunc(findings, func(f inspect.Finding) bool { return f.What != "permission" })
		if err != nil || len(told) != 1 || told[0].Severity != "warning" ||
			told[0].Remedy != "allow "+strings.Join(row.told, " ") {
			t.Errorf("without %v: got %v, %v; want a warning that names %v", lacking, told, err, row.told)
		}
		if keys := keyNames(t, server.Client(t), th); len(keys) > 0 {
			t.Errorf("without %v: left behind %v", lacking, keys)
		}
		if _, err := th.Reserve(t.Context(), throttle.Job{ID: strings.Join(lacking, ""), Weight: 1}); err != nil {
			t.Errorf("without %v, the next call: %v", lacking, err)
		}
	}
}

// TestF18_WrongPassword: a user whom Redis does not know is a fault, with no secret in
// its text.
func TestF18_WrongPassword(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	userClient(t, server, "known", leastRules(t))
	guarded := redistest.Start(t)
	if err := guarded.Client(t).ConfigSet(t.Context(), "requirepass", "secret").Err(); err != nil {
		t.Fatal(err)
	}
	for what, options := range map[string]redis.Options{
		"wrong password": {Addr: server.Addr, Username: "known", Password: "SECRET-guess"},
		"unknown user":   {Addr: server.Addr, Username: "SECRET-unknown", Password: "secret"},
		"no password":    {Addr: guarded.Addr},
	} {
		client := redis.NewClient(&options)
		t.Cleanup(func() { _ = client.Close() })
		th := newThrottle(t, client, globalScope(throttle.PerHour(5)), nil)
		found, err := check(t, th)
		// Redis ends the connection of who sends a script without a password. Who is still
		// sending may find that first, and not the reason.
		for tries := 0; tries < 20 && err != nil &&
			(strings.Contains(err.Error(), "reset by peer") || strings.Contains(err.Error(), "broken pipe")); tries++ {
			found, err = check(t, th)
		}
		var faulty *inspect.CheckError
		if !errors.As(err, &faulty) || !slices.Equal(found["fault"], []string{"permission"}) ||
			strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: got %v, want a *CheckError about permission", what, err)
		}
	}
}

// TestF18_WithoutPermission: if the user may not run a decision, the fallback answers.
func TestF18_WithoutPermission(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rules := slices.DeleteFunc(leastRules(t), func(rule string) bool { return rule == "+set" })
	client := userClient(t, server, "lacking", rules)
	th := newThrottle(t, client, globalScope(throttle.PerHour(5)), nil)
	_, err := th.Reserve(context.Background(), throttle.Job{ID: "x", Weight: 1})
	unavailable(t, "without SET", err, "other")
	open := newThrottle(t, client, globalScope(throttle.PerHour(5)),
		&throttle.Options{Fallback: throttle.FallbackOpen, BreakPeriod: time.Hour})
	if got := reserve(t, open, throttle.Job{ID: "x", Weight: 1}); got.Source != throttle.FallbackOpen {
		t.Errorf("without SET, open: got %+v", got)
	}
}
