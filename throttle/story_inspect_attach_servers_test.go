package throttle_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestPublishingNeedsNoOtherPermission: under the least rules of docs/operations.md, a process
// publishes, its changes are kept, and an Inspector attached as that user can look and control.
func TestPublishingNeedsNoOtherPermission(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rules := append(leastRules(t), "+multi", "+exec", "+lpush")
	client, name := userClient(t, server, "least", rules), nameOf(t)
	th := published(t, client, name, tenantAndGlobal(throttle.PerHour(1), throttle.PerHour(9)), throttle.Options{})
	for _, id := range []string{"a", "b"} {
		if _, err := th.Reserve(t.Context(), throttle.Job{ID: id, Weight: 1, Keys: of("acme")}); err != nil {
			t.Fatal(err)
		}
	}
	attached, err := inspect.Attach(t.Context(), name, client)
	if err != nil {
		t.Fatal(err)
	}
	if err := attached.SetMode(t.Context(), "tenant", throttle.Shadow); err != nil {
		t.Fatal(err)
	}
	changes, err := attached.Changes(t.Context())
	if err != nil || len(changes) != 1 {
		t.Errorf("changes: %+v, %v", changes, err)
	}
	if e, err := attached.ExplainID(t.Context(), "b"); err != nil || e.Waiting != 1 {
		t.Errorf("in line: %+v, %v", e, err)
	}
	if s, err := attached.SettingsOf(t.Context(), "tenant", ""); err != nil || len(s) != 1 || s[0].Mode != "shadow" {
		t.Errorf("set: %+v, %v", s, err)
	}
	if _, err := attached.Settings(t.Context()); err == nil || !strings.Contains(err.Error(), "scan") {
		t.Errorf("settings without SCAN: %v", err)
	}
}

// TestPublishingHarmsNobody: a throttle that cannot publish decides as ever, and one that can
// publishes once in many decisions.
func TestPublishingHarmsNobody(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	direct := server.Client(t)
	stats := func() string {
		info, err := direct.Info(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	th := published(t, direct, nameOf(t), tenantAndGlobal(throttle.PerHour(1_000_000), throttle.PerHour(1_000_000)),
		throttle.Options{})
	for range 500 {
		if _, err := th.Reserve(t.Context(), throttle.Job{ID: nameOf(t), Weight: 1, Keys: of("a")}); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(stats(), "cmdstat_hset:calls=1,") {
		t.Errorf("it has published more than once:\n%s", stats())
	}
	// HSET is used by the jobs that wait or are booked alone.
	rules := slices.DeleteFunc(leastRules(t), func(rule string) bool { return rule == "+hset" })
	core, logs := observer.New(zap.DebugLevel)
	lacking, err := throttle.New(nameOf(t), userClient(t, server, "lacking", rules),
		globalScope(throttle.PerHour(1_000_000_000)), &throttle.Options{Timeout: patient, Logger: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); logs.FilterMessageSnippet("could not be published").Len() == 0 &&
		time.Now().Before(deadline); {
		if r, err := lacking.Reserve(t.Context(), throttle.Job{ID: nameOf(t), Weight: 1}); err != nil ||
			r.Outcome != throttle.Granted {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if all := logs.All(); len(all) != 1 || all[0].Level != zap.DebugLevel {
		t.Errorf("logged: %+v", all)
	}
}

// TestAttachToCluster: throttles are listed from all primaries of a Cluster, and attached to
// where they are.
func TestAttachToCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.SharedCluster(t)
	options := cluster.Options()
	options.ContextTimeoutEnabled = true
	client := redis.NewClusterClient(options)
	t.Cleanup(func() { _ = client.Close() })
	var names []string
	for range 6 {
		name := nameOf(t)
		names = append(names, name)
		th, err := throttle.New(name, client, tenantAndGlobal(throttle.PerHour(1), throttle.PerHour(9)),
			&throttle.Options{Timeout: patient})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"a", "b"} {
			if _, err := th.Reserve(t.Context(), throttle.Job{ID: id, Weight: 1, Keys: of("acme")}); err != nil {
				t.Fatal(err)
			}
		}
		th.AwaitPublished()
	}
	listed, err := inspect.List(t.Context(), client)
	for _, name := range names {
		if !slices.Contains(listed, name) {
			t.Errorf("%s is not listed: %q, %v", name, listed, err)
		}
		th, err := inspect.Attach(t.Context(), name, client)
		if err != nil {
			t.Fatal(err)
		}
		if lanes, err := th.Lanes(t.Context()); err != nil || len(lanes) != 1 {
			t.Errorf("lanes: %+v, %v", lanes, err)
		}
		if e, err := th.ExplainID(t.Context(), "b"); err != nil || e.Waiting != 1 {
			t.Errorf("in line: %+v, %v", e, err)
		}
		if all, err := th.UsageAll(t.Context(), "tenant"); err != nil || len(all) != 1 {
			t.Errorf("usage: %+v, %v", all, err)
		}
		if err := th.SetMode(t.Context(), "tenant", throttle.Off); err != nil {
			t.Fatal(err)
		}
		if set, err := th.Settings(t.Context()); err != nil || len(set) != 1 || set[0].Mode != "off" {
			t.Errorf("set: %+v, %v", set, err)
		}
	}
}
