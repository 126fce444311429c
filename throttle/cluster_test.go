package throttle_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestScriptIsLoadedWhereItIsNeeded: go-redis' cluster client loads a script on every
// node, replicas too, and fails if one of them does not answer. A node that no decision
// needs must not hold decisions up.
func TestScriptIsLoadedWhereItIsNeeded(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, "--cluster-node-timeout", "30000") // nobody takes the one that stands still for dead
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	th := newThrottle(t, client, globalScope(throttle.PerHour(10)), &throttle.Options{Timeout: soon})
	if err := client.Ping(t.Context()).Err(); err != nil { // who is who is known
		t.Fatal(err)
	}
	replica := c.Replica(t, "thr:{"+th.Name()+"}:")
	replica.Pause()
	defer replica.Resume()
	if r := reserve(t, th, throttle.Job{ID: "a", Weight: 1}); r.Outcome != throttle.Granted || r.Source != throttle.FromRedis {
		t.Errorf("got %+v", r)
	}
}
