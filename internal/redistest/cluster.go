package redistest

import (
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

const (
	primaries = 3
	nodes     = 2 * primaries // each has a replica
	slots     = 16384
)

// Cluster is a Redis Cluster of three primaries, each with a replica. Its methods are
// to be called by one goroutine at a time; they end the test when they fail.
type Cluster struct {
	// Nodes are all six. At the start the first three are the primaries, and the
	// replica of each is three places behind it.
	Nodes []*Server

	ids []string // the name each node has in the cluster
}

// StartCluster starts a cluster for the test and stops it when it ends. It returns when
// every slot is served and every replica in sync, after about two seconds. A node that
// has not answered for a second is taken for dead, and its replica takes over.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	return startCluster(t, launchCluster)
}

// StartSteadyCluster starts a cluster like StartCluster, of which no node is taken for dead
// while a test lasts.
func StartSteadyCluster(t testing.TB) *Cluster {
	t.Helper()
	return startCluster(t, launchSteadyCluster)
}

func startCluster(t testing.TB, launch func() (*Cluster, error)) *Cluster {
	t.Helper()
	requireProgram(t)
	c, err := launch()
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range c.Nodes {
		stopWith(t, node)
	}
	return c
}

// SharedCluster returns the one cluster of this test binary, which it starts when first
// asked. What is said of Shared holds for it too; slots may be neither moved nor lost.
func SharedCluster(t testing.TB) *Cluster {
	t.Helper()
	requireProgram(t)
	c, err := sharedCluster()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var sharedCluster = sync.OnceValues(launchSteadyCluster)

// Addrs are the addresses of all nodes.
func (c *Cluster) Addrs() []string { return addrs(c.Nodes) }

// Options returns go-redis' options for a client of this cluster, its defaults
// otherwise.
func (c *Cluster) Options() *redis.ClusterOptions { return &redis.ClusterOptions{Addrs: c.Addrs()} }

// Client returns a client with these options, closed when the test ends.
func (c *Cluster) Client(t testing.TB) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(c.Options())
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Heal restarts the nodes that were stopped, without their data, resumes those that
// were paused, and waits until the cluster is whole again: those that have replaced them
// stay primaries.
func (c *Cluster) Heal(t testing.TB) {
	t.Helper()
	for _, node := range c.Nodes {
		node.revive()
	}
	c.AwaitWhole(t)
}

// AwaitWhole waits until every node sees all others, every slot served and every
// primary with a replica in sync.
func (c *Cluster) AwaitWhole(t testing.TB) {
	t.Helper()
	if err := c.awaitWhole(); err != nil {
		t.Fatal(err)
	}
}
