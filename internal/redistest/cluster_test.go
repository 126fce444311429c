package redistest_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
)

func TestClusterServesEverySlot(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := redistest.SharedCluster(t)
	if again := redistest.SharedCluster(t); again != c {
		t.Error("got two clusters")
	}
	client, used := c.Client(t), make(map[*redistest.Server]int)
	prefix := redistest.Name(t)
	for i := range 30 {
		key := fmt.Sprint(prefix, i)
		if err := client.Set(ctx, key, "1", 0).Err(); err != nil {
			t.Fatal(err)
		}
		owner, replica := c.Owner(t, key), c.Replica(t, key)
		used[owner]++
		if slices.Index(c.Nodes, replica) != slices.Index(c.Nodes, owner)+3 {
			t.Errorf("%s: the owner is %s, its replica %s", key, owner.Addr, replica.Addr)
		}
		if n, err := owner.Client(t).Exists(ctx, key).Result(); err != nil || n != 1 {
			t.Errorf("%s: its owner %s has %d, %v", key, owner.Addr, n, err)
		}
	}
	if len(used) != 3 {
		t.Errorf("30 keys lie on %d primaries, want 3", len(used))
	}
}

func TestClusterFailsOver(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := redistest.StartCluster(t)
	if err := c.Client(t).Set(ctx, "k", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	owner, replica := c.Owner(t, "k"), c.Replica(t, "k")
	replica.AwaitSync(owner)
	owner.Stop()
	if now := c.AwaitOwner(t, "k", owner); now != replica {
		t.Errorf("the owner is %s, want %s", now.Addr, replica.Addr)
	}
	if got, err := replica.Client(t).Get(ctx, "k").Result(); err != nil || got != "1" {
		t.Errorf("it has %q, %v; want what the killed one had", got, err)
	}
	c.Heal(t)
	if now := c.Replica(t, "k"); now != owner {
		t.Errorf("healed, the replica is %s, want %s", now.Addr, owner.Addr)
	}
}

// A slot is moved, and a client that follows no redirects sees each step.
func TestMigrationInSteps(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := redistest.StartSteadyCluster(t)
	slot := c.Slot(t, "{k}")
	from := c.Owner(t, "{k}")
	to := c.Nodes[(slices.Index(c.Nodes, from)+1)%3]
	source := from.Client(t)
	for _, key := range []string{"{k}a", "{k}b"} {
		if err := source.Set(ctx, key, "1", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	m := c.Migrate(t, slot, to)
	expect := func(step, prefix string, keys ...string) {
		t.Helper()
		err := source.MGet(ctx, keys...).Err()
		if prefix == "" && err != nil || prefix != "" && !redis.HasErrorPrefix(err, prefix) {
			t.Errorf("%s: %v at the source: got %v, want %q", step, keys, err, prefix)
		}
	}
	expect("before", "", "{k}a", "{k}new")
	m.Begin(t)
	expect("begun", "", "{k}a", "{k}b")
	expect("begun", "ASK", "{k}new")
	m.Abandon(t)
	expect("abandoned", "", "{k}new")
	m.Begin(t)
	if n := m.Move(t, 1); n != 1 {
		t.Errorf("moved %d keys, want 1", n)
	}
	expect("one moved", "TRYAGAIN", "{k}a", "{k}b")
	if n := m.MoveAll(t); n != 1 {
		t.Errorf("moved %d keys, want the other", n)
	}
	m.Finish(t)
	expect("finished", "MOVED", "{k}a", "{k}b")
	if owner := c.Owner(t, "{k}"); owner != to {
		t.Errorf("the owner is %s, want %s", owner.Addr, to.Addr)
	}
	if got, err := c.Client(t).MGet(ctx, "{k}a", "{k}b").Result(); err != nil || !slices.Equal(got, []any{"1", "1"}) {
		t.Errorf("through a client: %v, %v", got, err)
	}
}
