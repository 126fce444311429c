package throttle_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/lua"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// composedScripts are the texts of all scripts, by their verbs.
func composedScripts(testing.TB) map[string]string {
	return map[string]string{
		"reserve": lua.Reserve, "pull": lua.Pull, "leave": lua.Leave, "settle": lua.Settle, "running": lua.Running,
		"set": lua.Set, "report": lua.Report, "usage": lua.Usage, "lines": lua.Lines, "check": lua.Check,
	}
}

// calledCommand matches a call of one command, or of either of two commands.
var calledCommand = regexp.MustCompile(`\b(?:call|write)\((?:\w+ and )?'([A-Z]+)'(?: or '([A-Z]+)')?`)

// commandsCalled returns the commands that the scripts call, without INFO: only check.lua
// calls INFO, and it works if INFO is refused.
func commandsCalled(t testing.TB) []string {
	t.Helper()
	all := []string{"HGETALL"} // called without a script, to read what processes publish
	for name, text := range composedScripts(t) {
		if name == "check" {
			continue
		}
		calls := calledCommand.FindAllStringSubmatch(text, -1)
		if total := len(anyCall.FindAllString(text, -1)); total != len(calls) {
			t.Errorf("%s: %d calls, of which %d name their command", name, total, len(calls))
		}
		for _, match := range calls {
			all = append(all, match[1])
			if match[2] != "" {
				all = append(all, match[2])
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// anyCall matches a call of any command.
var anyCall = regexp.MustCompile(`\b(?:call|write)\([^)]`)

var (
	probedAlone  = regexp.MustCompile(`\btry\('([A-Z]+)'`)
	probedOfList = regexp.MustCompile(`'([A-Z]+)\b`)
)

// commandsProbed returns the commands that check.lua tries, in its order: those that it names one by one, and those of
// its list.
func commandsProbed(t testing.TB) (probed []string) {
	t.Helper()
	before, rest, _ := strings.Cut(composedScripts(t)["check"], "local commands = {")
	list, after, _ := strings.Cut(rest, "}")
	for _, part := range []struct {
		text string
		is   *regexp.Regexp
	}{{before, probedAlone}, {list, probedOfList}, {after, probedAlone}} {
		for _, match := range part.is.FindAllStringSubmatch(part.text, -1) {
			probed = append(probed, match[1])
		}
	}
	return probed
}

// TestF18_CheckProbesWhatIsCalled: check.lua tries each command that any other script
// calls, and LPUSH, by which changes are recorded.
func TestF18_CheckProbesWhatIsCalled(t *testing.T) {
	t.Parallel()
	want, probed := append(commandsCalled(t), "LPUSH"), commandsProbed(t)
	slices.Sort(want)
	slices.Sort(probed)
	if diff := cmp.Diff(want, probed); diff != "" {
		t.Errorf("commands (-that are called +that check.lua tries):\n%s", diff)
	}
}

// check makes a Check and returns what it found: the What of findings and faults, by severity.
func check(t testing.TB, th *throttle.Throttle) (found map[string][]string, err error) {
	t.Helper()
	return checkBy(t, inspect.New(th))
}

// checkBy does the same with a given inspector.
func checkBy(t testing.TB, inspector *inspect.Inspector) (found map[string][]string, err error) {
	t.Helper()
	findings, err := inspector.Check(t.Context())
	var faulty *inspect.CheckError
	if errors.As(err, &faulty) {
		findings = slices.Concat(findings, faulty.Faults)
	}
	found = make(map[string][]string)
	for _, f := range findings {
		if f.Text == "" || f.Remedy == "" || f.What == "" || !strings.HasPrefix(f.String(), f.Severity+": ") {
			t.Errorf("finding %+v: want a text that says what is wrong, and a remedy", f)
		}
		if err != nil && f.Severity == "fault" && !strings.Contains(err.Error(), f.Text) {
			t.Errorf("the error %q does not say %q", err, f.Text)
		}
		found[f.Severity] = append(found[f.Severity], f.What)
	}
	return found, err
}

type found = map[string][]string

// TestCheck: for a server without faults, Check finds notes at most. Afterwards the server has all scripts
// and no key.
func TestCheck(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, client *redis.Client, want found) {
		th := newThrottle(t, client, globalScope(throttle.PerHour(5)), nil)
		got, err := check(t, th)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("got %v; findings (-want +got):\n%s", err, diff)
		}
		if keys := keyNames(t, client, th); len(keys) > 0 {
			t.Errorf("Check left keys in Redis: %v", keys)
		}
		for name, text := range composedScripts(t) {
			sum := sha1.Sum([]byte(text))
			there, err := client.ScriptExists(t.Context(), hex.EncodeToString(sum[:])).Result()
			if err != nil || !there[0] {
				t.Errorf("script %s is not loaded (%v)", name, err)
			}
		}
	}
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		test(t, miniClient(t), found{"note": {"info"}})
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, redistest.Start(t).Client(t), found{"note": {"persistence"}})
	})
	t.Run("redis with AOF", func(t *testing.T) {
		t.Parallel()
		test(t, redistest.Start(t, "--appendonly", "yes").Client(t), found{})
	})
}

// TestF15_CheckConfigurations: Check finds each fault of a server's configuration or state, each
// on a server that has it.
func TestF15_CheckConfigurations(t *testing.T) {
	t.Parallel()
	const note, warning, fault = "note", "warning", "fault"
	tests := map[string]struct {
		args    []string
		prepare func(t *testing.T, client *redis.Client)
		want    found
		text    string // of one of the findings
	}{
		"eviction": {
			args: []string{"--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"},
			want: found{note: {"persistence"}, warning: {"eviction"}}, text: "maxmemory-policy is volatile-lru",
		},
		"eviction without maxmemory": {
			args: []string{"--maxmemory-policy", "allkeys-lfu"}, want: found{note: {"eviction", "persistence"}},
			text: "as long as maxmemory is 0",
		},
		"out of memory": {
			args: []string{"--maxmemory", "1"}, want: found{note: {"persistence"}, warning: {"memory"}},
			text: "no memory for writes",
		},
		"replica": {
			args: []string{"--replicaof", "127.0.0.1", "1"}, want: found{note: {"persistence"}, fault: {"replica"}},
			text: "this server is a replica",
		},
		"replica that takes writes": {
			args: []string{"--replicaof", "127.0.0.1", "1", "--replica-read-only", "no"},
			want: found{note: {"persistence"}, fault: {"replica"}}, text: "this server is a replica",
		},
		"too few replicas": {
			args: []string{"--min-replicas-to-write", "1"},
			want: found{note: {"persistence"}, warning: {"replicas"}}, text: "min-replicas-to-write",
		},
		"cannot save": {
			args: []string{"--save", "3600", "1"}, prepare: failToSave, want: found{warning: {"persistence"}},
			text: "cannot save its data",
		},
		"renamed commands": {
			args: []string{"--rename-command", "HMGET", "", "--rename-command", "ZADD", "zadd2"},
			want: found{note: {"persistence"}, fault: {"command", "command"}}, text: "does not run HMGET",
		},
		"SCRIPT renamed": {
			args: []string{"--rename-command", "SCRIPT", ""}, want: found{fault: {"command"}}, text: "does not run SCRIPT LOAD",
		},
		"EVALSHA renamed": {
			args: []string{"--rename-command", "EVALSHA", ""}, want: found{fault: {"command"}}, text: "does not run EVALSHA",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redistest.Start(t, test.args...).Client(t)
			if test.prepare != nil {
				test.prepare(t, client)
			}
			th := newThrottle(t, client, globalScope(throttle.PerHour(5)), nil)
			got, err := check(t, th)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			var faulty *inspect.CheckError
			if errors.As(err, &faulty) != (len(test.want[fault]) > 0) || faulty == nil && err != nil {
				t.Errorf("got the error %v, want a *CheckError only for faults", err)
			}
			findings, _ := inspect.New(th).Check(t.Context())
			if faulty != nil {
				findings = append(findings, faulty.Faults...)
			}
			if !slices.ContainsFunc(findings, func(f inspect.Finding) bool { return strings.Contains(f.Text, test.text) }) {
				t.Errorf("found %v, want one that says %q", findings, test.text)
			}
		})
	}
}

// TestF19_CheckReplicas: Check says that a failover may forget without a bound, unless the primary has one.
func TestF19_CheckReplicas(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		want found
	}{
		"without a bound": {want: found{"note": {"persistence", "replicas"}}},
		"with a bound":    {[]string{"--min-replicas-to-write", "1"}, found{"note": {"persistence"}}},
		"bound turned off": {[]string{"--min-replicas-to-write", "1", "--min-replicas-max-lag", "0"},
			found{"note": {"persistence", "replicas"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary := redistest.Start(t, test.args...)
			redistest.StartReplica(t, primary)
			got, err := check(t, newThrottle(t, primary.Client(t), globalScope(throttle.PerHour(5)), nil))
			if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
				t.Errorf("error %v, findings (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestT12_UnknownCommandTellsNoKey: Redis' error for an unknown command repeats the command's arguments. If a tenant's
// key is among them, the text of the returned error does not contain the key.
func TestT12_UnknownCommandTellsNoKey(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, "--rename-command", "EVALSHA", "").Client(t)
	scopes := tenantAndGlobal(throttle.PerHour(5), throttle.PerHour(50))
	th, err := throttle.New("t", client, scopes, &throttle.Options{Timeout: patient})
	if err != nil {
		t.Fatal(err)
	}
	_, err = inspect.New(th).Usage(t.Context(), "tenant", "acme")
	unavailable(t, "no EVALSHA", err, "other")
	if text := err.Error(); strings.Contains(text, "acme") || !strings.Contains(text, "unknown command") {
		t.Errorf("got the text %q, want the cause and no key", text)
	}
}

// failToSave lets the server try to write its data to a place where it cannot.
func failToSave(t *testing.T, client *redis.Client) {
	t.Helper()
	dir, err := client.ConfigGet(t.Context(), "dir").Result()
	if err != nil {
		t.Fatal(err)
	}
	// The directory has the name to which Redis renames the file that it has written.
	if err := os.MkdirAll(filepath.Join(dir["dir"], "dump.rdb", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := client.BgSave(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Await(t, "the save fails", func() bool {
		info, err := client.Info(t.Context(), "persistence").Result()
		return err == nil && strings.Contains(info, "rdb_last_bgsave_status:err")
	})
}

// retold is a client that receives changed fields of INFO.
type retold struct {
	redis.Scripter
	replace *strings.Replacer
}

func (c retold) EvalSha(ctx context.Context, hash string, keys []string, args ...any) *redis.Cmd {
	command := c.Scripter.EvalSha(ctx, hash, keys, args...)
	values, err := command.Slice()
	for i, value := range values {
		if text, is := value.(string); is {
			values[i] = c.replace.Replace(text)
		}
	}
	return redis.NewCmdResult(values, err)
}

// TestCheckVersions: a server whose INFO says a version older than 6.2 is a fault, whatever else the INFO
// says. Valkey reports 7.2.4 as its Redis version, beside a version of its own.
func TestCheckVersions(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	version, err := client.Info(t.Context(), "server").Result()
	if err != nil {
		t.Fatal(err)
	}
	own := regexp.MustCompile(`(?s)redis_version:\S+(.*valkey_version:\S+)?`).FindString(version)
	for says, want := range map[string][]string{
		"redis_version:6.0.16": {"version"}, "redis_version:5.0.14": {"version"}, "redis_version:6": nil,
		"redis_version:unstable": nil,
		"redis_version:6.2.0":    nil, "redis_version:7.4.1": nil, "redis_version:8.0.0": nil, "redis_version:10.1": nil,
		"redis_version:5.0.0\r\nvalkey_version:8.0.1": nil,
	} {
		th := newThrottle(t, retold{client, strings.NewReplacer(own, says)}, globalScope(throttle.PerHour(5)), nil)
		got, err := check(t, th)
		if diff := cmp.Diff(want, got["fault"]); diff != "" || (err != nil) != (want != nil) {
			t.Errorf("%q: got %v; faults (-want +got):\n%s", says, err, diff)
		}
	}
}

// TestF25_CheckClocks: Check reports a difference of more than a second between Redis' clock and
// this machine's, with its size and its direction.
func TestF25_CheckClocks(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		for _, ahead := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute, 70 * time.Second} {
			th := newThrottle(t, client, globalScope(throttle.PerHour(5)), nil)
			th.SetNow(func() time.Time { return time.Now().Add(ahead) })
			findings, err := inspect.New(th).Check(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			told := time.Duration(0)
			for _, f := range findings {
				if f.What != "clock" || f.Severity != "warning" {
					continue
				}
				match := clockDiffers.FindStringSubmatch(f.Text)
				if match == nil {
					t.Fatalf("Redis %v ahead: said %q", ahead, f.Text)
				}
				if told, err = time.ParseDuration(match[1]); err != nil {
					t.Fatal(err)
				}
				if match[2] == "behind" {
					told = -told
				}
			}
			if off := (told - ahead).Abs(); off > 2*time.Second {
				t.Errorf("Redis %v ahead: told as %v", ahead, told)
			}
		}
	})
}

var clockDiffers = regexp.MustCompile(`Redis' clock is (\S+) (ahead of|behind) this machine's, give or take`)

// TestCheckAndUnavailableRedis: if Redis refuses calls or is silent, or if the context has ended, Check ends
// soon, and returns the findings for which it needs no Redis.
func TestCheckAndUnavailableRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	scopes, options := globalScope(throttle.PerHour(5)), throttle.Options{Timeout: 100 * time.Millisecond}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr}})
	t.Cleanup(func() { _ = cluster.Close() })
	single := newThrottle(t, server.Client(t), scopes, &options)
	many := newThrottle(t, cluster, scopes, &options)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := inspect.New(single).Check(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("context over: got %v, want %v", err, context.Canceled)
	}
	var wrong *throttle.ArgumentError
	//nolint:staticcheck // it must not panic
	if _, err := inspect.New(single).Check(nil); !errors.As(err, &wrong) || wrong.Argument != "ctx" {
		t.Errorf("no context: got %v, want an *ArgumentError", err)
	}
	server.Pause()
	for name, th := range map[string]*throttle.Throttle{"silent": single, "silent Cluster": many} {
		began := time.Now()
		findings, err := inspect.New(th).Check(t.Context())
		unavailable(t, name, err, "timeout")
		if took := time.Since(began); longtest.Full() && took > 10*options.Timeout+soon {
			t.Errorf("%s: took %s", name, took)
		}
		if got := len(findings); got != map[string]int{"silent": 0, "silent Cluster": 3}[name] {
			t.Errorf("%s: found %v; want what is wrong with the Cluster's client", name, findings)
		}
	}
	server.Resume()
	server.Stop()
	once := newThrottle(t, onceClient(t, server.Addr), scopes, nil)
	_, err := inspect.New(once).Check(t.Context())
	unavailable(t, "refused", err, "other")
}

// distant stands for a Redis that answers each call after the same delay.
type distant struct {
	redis.Scripter
	after time.Duration
}

func (c distant) ScriptLoad(context.Context, string) *redis.StringCmd {
	time.Sleep(c.after)
	return redis.NewStringResult("", nil)
}

func (c distant) EvalSha(context.Context, string, []string, ...any) *redis.Cmd {
	time.Sleep(c.after)
	return redis.NewCmdResult([]any{int64(0), "", "redis_version:7.0.15", "maxmemory_policy:noeviction", "", ""}, nil)
}

// TestCheckOfDistantRedis: a Redis that answers each call just within the time-out is checked to the
// end, since such a Redis can decide, too.
func TestCheckOfDistantRedis(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const within = 250 * time.Millisecond
		th := newThrottle(t, distant{after: within - time.Millisecond}, globalScope(throttle.PerHour(5)),
			&throttle.Options{Timeout: within})
		if findings, err := inspect.New(th).Check(t.Context()); err != nil || len(findings) > 0 {
			t.Errorf("got %v, %v; want no findings", findings, err)
		}
	})
}

// TestCheckOnCluster: Check asks the node that has the throttle's slot, and loads the scripts on all
// nodes. It reports each setting of the client that makes a recovery slow.
func TestCheckOnCluster(t *testing.T) {
	t.Parallel()
	addrs := twoNodes(t)
	good := redis.ClusterOptions{ContextTimeoutEnabled: true, ClusterStateReloadInterval: time.Second,
		DialTimeout: time.Second}
	tests := map[string]struct {
		change func(*redis.ClusterOptions)
		want   found
		text   string
	}{
		"good": {func(*redis.ClusterOptions) {}, found{"note": {"persistence"}}, ""},
		"heedless": {func(o *redis.ClusterOptions) { o.ContextTimeoutEnabled = false },
			found{"note": {"persistence"}, "warning": {"client"}}, "ContextTimeoutEnabled"},
		"old picture": {func(o *redis.ClusterOptions) { o.ClusterStateReloadInterval = 0 },
			found{"note": {"persistence"}, "warning": {"client"}}, "ClusterStateReloadInterval"},
		"slow to give up": {func(o *redis.ClusterOptions) { o.DialTimeout = 11 * patient },
			found{"note": {"persistence"}, "warning": {"client"}}, "DialTimeout"},
		"reads of replicas": {func(o *redis.ClusterOptions) { o.ReadOnly = true },
			found{"note": {"client", "persistence"}}, "leave"},
		"by latency": {func(o *redis.ClusterOptions) { o.RouteByLatency = true },
			found{"note": {"client", "persistence"}}, "leave"},
		"wherever it may be": {func(o *redis.ClusterOptions) { o.RouteRandomly = true },
			found{"note": {"client", "persistence"}}, "leave"},
	}
	for name, test := range tests {
		options := good
		options.Addrs = addrs
		test.change(&options)
		if longtest.Watched && options.RouteByLatency {
			continue // go-redis v9.23 changes a node's options while it measures its latency
		}
		client := redis.NewClusterClient(&options)
		t.Cleanup(func() { _ = client.Close() })
		th := newThrottle(t, client, globalScope(throttle.PerHour(5)), &throttle.Options{Timeout: patient})
		got, err := check(t, th)
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("%s: got %v; findings (-want +got):\n%s", name, err, diff)
		}
		findings, _ := inspect.New(th).Check(t.Context())
		if !slices.ContainsFunc(findings, func(f inspect.Finding) bool { return strings.Contains(f.Remedy, test.text) }) {
			t.Errorf("%s: found %v, want a remedy that names %s", name, findings, test.text)
		}
		node, err := client.MasterForKey(t.Context(), "{"+th.Name()+"}")
		if err != nil {
			t.Fatal(err)
		}
		for script, text := range composedScripts(t) {
			sum := sha1.Sum([]byte(text))
			if there, err := node.ScriptExists(t.Context(), hex.EncodeToString(sum[:])).Result(); err != nil || !there[0] {
				t.Errorf("%s: script %s is not loaded where the throttle's keys are (%v)", name, script, err)
			}
		}
	}
}

// twoNodes returns the addresses of a Cluster of two masters with half of the slots each.
func twoNodes(t *testing.T) (addrs []string) {
	t.Helper()
	var nodes []*redis.Client
	for range 2 {
		server := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "5000")
		addrs, nodes = append(addrs, server.Addr), append(nodes, server.Client(t))
	}
	ctx := t.Context()
	host, port, _ := strings.Cut(addrs[1], ":")
	for i, err := range []error{
		nodes[0].ClusterAddSlotsRange(ctx, 0, 8191).Err(), nodes[1].ClusterAddSlotsRange(ctx, 8192, 16383).Err(),
		nodes[0].ClusterMeet(ctx, host, port).Err(),
	} {
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
	for _, node := range nodes {
		redistest.Await(t, "the Cluster is formed", func() bool {
			info, err := node.ClusterInfo(ctx).Result()
			return err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:2")
		})
	}
	return addrs
}
