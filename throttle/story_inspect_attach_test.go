package throttle_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// published makes a throttle and waits until the throttle has published its configuration.
func published(t *testing.T, client *redis.Client, name string, scopes []throttle.Scope,
	options throttle.Options) *throttle.Throttle {
	t.Helper()
	if options.Timeout == 0 {
		options.Timeout = patient
	}
	th, err := throttle.New(name, client, scopes, &options)
	if err != nil {
		t.Fatal(err)
	}
	before := len(processesOf(t, th))
	if _, err := th.Peek(t.Context(), throttle.Job{ID: "x", Weight: 1, Keys: of("x")}); err != nil {
		t.Fatal(err)
	}
	th.AwaitPublished()
	if got := len(processesOf(t, th)); got != before+1 {
		t.Fatalf("%d processes are published, want %d", got, before+1)
	}
	return th
}

func processesOf(t *testing.T, th *throttle.Throttle) []throttle.Process {
	t.Helper()
	all, err := inspect.New(th).Processes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestPublishedAndAttached: a process publishes its configuration after the first answer. An attached Inspector
// finds the scopes and settings of that process, and can inspect and control the throttle.
func TestPublishedAndAttached(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		ctx, name := t.Context(), "attached-"+nameOf(t)
		var none *inspect.AttachError
		if _, err := inspect.Attach(ctx, name, client); !errors.As(err, &none) || none.Throttle != name {
			t.Fatalf("Attach before any process has published: %v", err)
		}
		scopes := tenantAndGlobal(throttle.PerMinute(2),
			throttle.Limit{Units: 500, Window: time.Minute, Precision: time.Second})
		scopes[0].Mode = throttle.Shadow
		th := published(t, client, name, scopes, throttle.Options{
			Lookahead: 3 * time.Second, Grace: 7 * time.Second, Shares: map[string]int{"acme": 3}, PriorityFloor: 0.2,
		})
		got := processesOf(t, th)
		if len(got) != 1 {
			t.Fatalf("%d processes", len(got))
		}
		want := throttle.Process{
			State: "4", Alive: true, Scopes: scopes, Lookahead: 3 * time.Second, Grace: 7 * time.Second, FairScope: "tenant",
			PriorityFloor: 0.2, Shares: map[string]int{"acme": 3}, SharesInAll: 1,
		}
		ignored := cmpopts.IgnoreFields(throttle.Process{}, "ID", "Host", "PID", "Program", "Library", "Since", "Seen")
		if diff := cmp.Diff(want, got[0], ignored); diff != "" {
			t.Errorf("published (-want +got):\n%s", diff)
		}
		key := "thr:{" + name + "}:processes"
		if left := client.PTTL(ctx, key).Val(); left <= 23*time.Hour || left > 24*time.Hour {
			t.Errorf("the configuration is kept for %s, want a day", left)
		}
		attached, err := inspect.Attach(ctx, name, client)
		if err != nil {
			t.Fatal(err)
		}
		job := throttle.Job{ID: "a", Weight: 1, Keys: of("acme")}
		if r, err := attached.Peek(ctx, job); err != nil || r.Outcome != throttle.Granted {
			t.Errorf("Peek: %+v, %v", r, err)
		}
		if _, err := attached.Forecast(ctx, []throttle.Job{job}); err != nil {
			t.Errorf("Forecast: %v", err)
		}
		if err := attached.SetLimits(ctx, "tenant", "acme", []throttle.Limit{throttle.PerMinute(9)}); err != nil {
			t.Fatal(err)
		}
		u, err := inspect.New(th).Usage(ctx, "tenant", "acme")
		if err != nil || len(u.Limits) != 1 || u.Limits[0].Limit.Units != 9 || u.SetFor != "key" ||
			u.Mode != throttle.Shadow {
			t.Errorf("limits set by the attached Inspector: %+v, %v", u, err)
		}
		if n := len(processesOf(t, th)); n != 1 {
			t.Errorf("%d processes, want 1: the attached Inspector has published a configuration", n)
		}
		names, err := inspect.List(ctx, client)
		if err != nil || !slices.Contains(names, name) {
			t.Errorf("list: %q, %v", names, err)
		}
	})
}

// TestProcessesDiffer: Attach takes the newer of two configurations, and Check and a line of the
// log say how the other configuration differs. A process that ended long ago is not compared, and a process
// that was last seen more than a day ago is removed.
func TestProcessesDiffer(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		ctx, name := t.Context(), "differ-"+nameOf(t)
		old := published(t, client, name, tenantAndGlobal(throttle.PerMinute(2), throttle.PerMinute(50)), throttle.Options{})
		outdated := processesOf(t, old)[0]
		outdated.ID, outdated.Seen = "OUTDATED", outdated.Seen.Add(-25*time.Hour)
		text, err := json.Marshal(outdated)
		if err != nil {
			t.Fatal(err)
		}
		if err := client.HSet(ctx, "thr:{"+name+"}:processes", "OUTDATED", text, "broken", "{").Err(); err != nil {
			t.Fatal(err)
		}
		core, logs := observer.New(zap.WarnLevel)
		fresh := published(t, client, name, tenantAndGlobal(throttle.PerMinute(3), throttle.PerMinute(50)),
			throttle.Options{Logger: zap.New(core), Grace: time.Second})
		if all := logs.FilterMessageSnippet("configured differently").All(); len(all) != 1 ||
			!strings.Contains(fmt.Sprint(all[0].ContextMap()), "scope tenant 3/1m, not 2/1m") {
			t.Errorf("logged: %v", logs.All())
		}
		if n := client.HLen(ctx, "thr:{"+name+"}:processes").Val(); n != 2 {
			t.Errorf("%d fields, want 2: the outdated and the broken one should be removed", n)
		}
		attached, err := inspect.Attach(ctx, name, client)
		if err != nil {
			t.Fatal(err)
		}
		if u, err := attached.Usage(ctx, "tenant", "a"); err != nil || u.Limits[0].Limit.Units != 3 {
			t.Errorf("not attached to the newest configuration: %+v, %v", u, err)
		}
		want := []string{"scope tenant 3/1m, not 2/1m", "Grace 1s, not 5s"}
		both := processesOf(t, fresh)
		if diff := cmp.Diff(want, both[0].Differences(both[1])); diff != "" {
			t.Errorf("differences (-want +got):\n%s", diff)
		}
		for _, inspector := range []*inspect.Inspector{inspect.New(old), inspect.New(fresh), attached} {
			findings, err := checkBy(t, inspector)
			if !slices.Contains(findings["warning"], "processes") {
				t.Errorf("check finds %v, %v, want the other process", findings, err)
			}
		}
	})
}

// TestEndedProcess: a process that has published its end is compared with none. Attach uses its configuration while
// no other process lives. A throttle that was never used publishes no end.
func TestEndedProcess(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		ctx, name := t.Context(), "ended-"+nameOf(t)
		unused, err := throttle.New(name, client, tenantAndGlobal(throttle.PerMinute(1), throttle.PerMinute(50)), nil)
		if err != nil {
			t.Fatal(err)
		}
		old := published(t, client, name, tenantAndGlobal(throttle.PerMinute(2), throttle.PerMinute(50)), throttle.Options{})
		for _, th := range []*throttle.Throttle{unused, old} {
			if err := th.Driver().End(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if all := processesOf(t, old); len(all) != 1 || !all[0].Ended || all[0].Alive {
			t.Errorf("after its end: %+v, want one process that has ended", all)
		}
		attached, err := inspect.Attach(ctx, name, client)
		if err != nil {
			t.Fatal(err)
		}
		if u, err := attached.Usage(ctx, "tenant", "a"); err != nil || u.Limits[0].Limit.Units != 2 {
			t.Errorf("attached to %+v, %v, want the configuration of the process that has ended", u, err)
		}
		core, logs := observer.New(zap.WarnLevel)
		fresh := published(t, client, name, tenantAndGlobal(throttle.PerMinute(3), throttle.PerMinute(50)),
			throttle.Options{Logger: zap.New(core)})
		if all := logs.FilterMessageSnippet("configured differently").All(); len(all) > 0 {
			t.Errorf("logged: %v", all)
		}
		if findings, err := checkBy(t, inspect.New(fresh)); err != nil || slices.Contains(findings["warning"], "processes") {
			t.Errorf("check finds %v, %v, want no other process", findings, err)
		}
	})
}

// overtaken lets the second transaction of a client overtake the first, if it comes while that is under way.
type overtaken struct {
	count  atomic.Int64
	second chan struct{} // closed when it has ended
}

func (*overtaken) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*overtaken) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (o *overtaken) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() != "multi" {
			return next(ctx, cmds)
		}
		n := o.count.Add(1)
		if n == 1 {
			select {
			case <-o.second:
			case <-time.After(100 * time.Millisecond): // it waits for the first
			}
		}
		err := next(ctx, cmds)
		if n == 2 {
			close(o.second)
		}
		return err
	}
}

// TestEndWhileItPublishes: a process that ends while it publishes that it is alive counts as ended.
func TestEndWhileItPublishes(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(&overtaken{second: make(chan struct{})})
	th, err := throttle.New("ends", client, tenantAndGlobal(throttle.PerMinute(2), throttle.PerMinute(50)),
		&throttle.Options{Timeout: patient})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := th.Peek(t.Context(), throttle.Job{ID: "x", Weight: 1, Keys: of("x")}); err != nil {
		t.Fatal(err)
	}
	if err := th.Driver().End(t.Context()); err != nil {
		t.Fatal(err)
	}
	th.AwaitPublished()
	if all := processesOf(t, th); len(all) != 1 || !all[0].Ended {
		t.Errorf("published: %+v, want one process that has ended", all)
	}
}

// TestManyEndedProcesses: programs that start and end again and again leave the entries of a hundred ended processes,
// those that were seen last, beside those of the live ones.
func TestManyEndedProcesses(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		ctx, name := t.Context(), "restarts-"+nameOf(t)
		scopes := tenantAndGlobal(throttle.PerMinute(2), throttle.PerMinute(50))
		one := processesOf(t, published(t, client, name, scopes, throttle.Options{}))[0]
		for n := range 150 {
			ended := one
			ended.ID, ended.Seen, ended.Ended = fmt.Sprintf("RESTART%03d", n), one.Seen.Add(-time.Duration(n)*time.Minute), true
			text, err := json.Marshal(ended)
			if err != nil {
				t.Fatal(err)
			}
			if err := client.HSet(ctx, "thr:{"+name+"}:processes", ended.ID, text).Err(); err != nil {
				t.Fatal(err)
			}
		}
		last, err := throttle.New(name, client, scopes, &throttle.Options{Timeout: patient})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := last.Peek(ctx, throttle.Job{ID: "x", Weight: 1, Keys: of("x")}); err != nil {
			t.Fatal(err)
		}
		last.AwaitPublished()
		left := client.HGetAll(ctx, "thr:{"+name+"}:processes").Val()
		_, latest := left["RESTART099"]
		_, older := left["RESTART100"]
		if len(left) != 102 || !latest || older {
			t.Errorf("%d processes are left, want 102, the latest of those that ended", len(left))
		}
	})
}

// TestDifferencesOfScopes: Differences names each part of a scope on which decisions depend.
func TestDifferencesOfScopes(t *testing.T) {
	t.Parallel()
	plain := throttle.Process{Scopes: []throttle.Scope{{Name: "host", Limits: []throttle.Limit{throttle.Running(3)}}}}
	for _, row := range []struct {
		change func(s *throttle.Scope)
		want   string
	}{
		{func(s *throttle.Scope) { s.Mode = throttle.Shadow }, "scope host 3/running, not 3/running (shadow)"},
		{func(s *throttle.Scope) { s.Optional = true }, "scope host 3/running, not 3/running (optional)"},
		{func(s *throttle.Scope) { s.Floor = 0.1 }, "scope host 3/running, not 3/running (follows its upstream down to 0.1)"},
		{func(s *throttle.Scope) { s.Cooldown = time.Minute }, "scope host 3/running, not 3/running (cools down for 1m)"},
		{func(s *throttle.Scope) { s.Runs = time.Second }, "scope host 3/running, not 3/running (runs for 1s)"},
	} {
		other := throttle.Process{Scopes: slices.Clone(plain.Scopes)}
		row.change(&other.Scopes[0])
		if diff := cmp.Diff([]string{row.want}, plain.Differences(other)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}

// TestAttachToOtherState: Attach fails if only processes of another state version have published, or
// if what was published is no configuration.
func TestAttachToOtherState(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		now := client.Time(t.Context()).Val().Format(time.RFC3339Nano)
		for text, want := range map[string]string{
			`{"state":"5","seen":"` + now + `"}`: "state version 5, this is 4",
			`{"state":"4","seen":"` + now + `"}`: "is no configuration",
			`{"state":"4"}`:                      "no process has published",
		} {
			name := "other-" + nameOf(t)
			if err := client.HSet(t.Context(), "thr:{"+name+"}:processes", "ID", text).Err(); err != nil {
				t.Fatal(err)
			}
			var wrong *inspect.AttachError
			if _, err := inspect.Attach(t.Context(), name, client); !errors.As(err, &wrong) ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", text, err, want)
			}
		}
	})
}
