package lua_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
)

// none stands for a key that does not exist.
const none = "nothing"

// TestF14_F19_RefusedWritesAreWhole: if Redis has no memory, or too few replicas, a call is either refused and writes
// nothing, or does its whole work: never a part of it.
func TestF14_F19_RefusedWritesAreWhole(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, "--maxmemory-policy", "noeviction").Client(t)
	c := newCrowded(t, client)
	for name, test := range map[string]struct{ option, begin, end, says string }{
		"out of memory": {"maxmemory", "1", "0", "OOM "},
		"no replicas":   {"min-replicas-to-write", "1", "0", "NOREPLICAS "},
	} {
		refused := 0
		set := func(value string) {
			t.Helper()
			if err := client.ConfigSet(t.Context(), test.option, value).Err(); err != nil {
				t.Fatal(err)
			}
		}
		for what, call := range c.calls() {
			c.restore(t, none, value{})
			if said, err := call(); said != "" || err != nil {
				t.Fatalf("%s: %s, %v", what, said, err)
			}
			done := c.read(t)
			c.restore(t, none, value{})
			before := c.read(t)
			set(test.begin)
			said, err := call()
			set(test.end)
			want := done
			if err != nil {
				said = err.Error()
			}
			if said != "" {
				want = before
				refused++
			}
			if said != "" && !strings.Contains(said, test.says) {
				t.Errorf("%s, %s: said %s", name, what, said)
			}
			if diff := cmp.Diff(want, c.read(t), cmp.AllowUnexported(value{})); diff != "" {
				t.Errorf("%s, %s: said %q; the data in Redis (-want +got):\n%s", name, what, said, diff)
			}
		}
		if refused < 5 {
			t.Errorf("%s: %d calls were refused; this test has tested nothing", name, refused)
		}
	}
}

// asking sends ASKING before each command, as a client of a cluster does after a redirect to another node.
type asking struct{ client *redis.Client }

func (asking) DialHook(next redis.DialHook) redis.DialHook { return next }

func (asking) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (a asking) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		_, err := a.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			return errors.Join(p.Do(ctx, "ASKING").Err(), p.Process(ctx, cmd))
		})
		return err
	}
}

// TestF11_MigratingSlot: while a slot is moved from one node to another, neither node runs a script on the part of the
// keys that it has, and nothing is written: not at the source, whether it still has the keys or not, and not at the
// target. The errors are those that package throttle takes for TRYAGAIN, or that send the client to the other node.
func TestF11_MigratingSlot(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartSteadyCluster(t)
	slot := 0
	var c *crowded
	at := func(server *redistest.Server, ask bool) *crowded {
		moved := *c
		scripts := *c.scripted
		moved.scripted, moved.client = &scripts, server.Client(t)
		scripts.client = moved.client
		if ask {
			scripts.client = redis.NewClient(moved.client.Options())
			t.Cleanup(func() { _ = scripts.client.Close() })
			scripts.client.AddHook(asking{moved.client})
		}
		return &moved
	}
	home := cluster.Nodes[0]
	c = newCrowdedAt(t, home.Client(t), func(prefix string) bool {
		slot = cluster.Slot(t, prefix)
		return cluster.Owner(t, prefix) == home
	})
	migration := cluster.Migrate(t, slot, cluster.Nodes[1])
	source, target := at(migration.From, false), at(migration.To, true)
	refuses := func(step string, node *crowded) {
		t.Helper()
		before := []map[string]string{dumps(t, source.client, slot), dumps(t, target.client, slot)}
		for what, call := range node.calls() {
			_, err := call()
			known := func(words string) bool { return err != nil && strings.Contains(err.Error(), words) }
			if !slices.ContainsFunc([]string{"non local key", "rehashing of the slot", "TRYAGAIN ", "ASK ", "MOVED "}, known) {
				t.Errorf("%s, %s: got %v, want it refused", step, what, err)
			}
		}
		if diff := cmp.Diff(before, []map[string]string{dumps(t, source.client, slot),
			dumps(t, target.client, slot)}); diff != "" {
			t.Errorf("%s: something was written (-before +after):\n%s", step, diff)
		}
	}
	migration.Begin(t)
	refuses("begun, at the source", source)
	refuses("begun, at the target", target)
	migration.Move(t, 3)
	refuses("some keys moved, at the source", source)
	refuses("some keys moved, at the target", target)
	migration.MoveAll(t)
	refuses("all keys moved, at the source", source)
	refuses("all keys moved, at the target", target)
	migration.Finish(t)
	target = at(migration.To, false)
	for what, call := range target.calls() {
		if said, err := call(); said != "" || err != nil {
			t.Errorf("arrived, %s: %s, %v", what, said, err)
		}
	}
}

// dumps returns the keys of a slot that a node has, with their contents.
func dumps(t *testing.T, client *redis.Client, slot int) map[string]string {
	t.Helper()
	all := make(map[string]string)
	keys, err := client.ClusterGetKeysInSlot(t.Context(), slot, 1000).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		var dump *redis.StringCmd
		_, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			p.Do(t.Context(), "ASKING")
			dump = p.Dump(t.Context(), key)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		all[key] = dump.Val()
	}
	return all
}
