package redistest

import (
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

const (
	primaries = 3 // the primaries of a test's cluster
	slots     = 16384
)

// Cluster is a Redis Cluster: of three primaries, each with a replica, unless LaunchCluster started it.
// Call its methods from one goroutine at a time; they end the test when they fail.
type Cluster struct {
	// Nodes are all nodes. At the start the first three are the primaries, and the
	// replica of Nodes[i] is Nodes[i+3].
	Nodes []*Server

	primaries int      // how many of the nodes were primaries at the start
	ids       []string // the name each node has in the cluster
}

// StartCluster starts a cluster for the test and stops it when the test ends. It returns when
// every slot is served and every replica in sync, after about two seconds. The cluster takes a
// node that has not answered for a second for dead, and its replica takes over.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	return startCluster(t, func() (*Cluster, error) { return launchCluster(primaries, 2*primaries) })
}

// StartSteadyCluster starts a cluster as StartCluster does, except that it takes no node for dead while a test lasts.
func StartSteadyCluster(t testing.TB) *Cluster {
	t.Helper()
	return startCluster(t, launchTestCluster)
}

// LaunchCluster starts a steady cluster with the given number of primaries and no replicas, for a program that is not a
// test: the caller closes it.
func LaunchCluster(primaries int) (*Cluster, error) { return launchSteadyCluster(primaries, primaries) }

// Close ends the nodes.
func (c *Cluster) Close() error {
	return together(c.Nodes, func(node *Server) error {
		if node == nil {
			return nil
		}
		return node.Close()
	})
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

// SharedCluster returns the one cluster of this test binary, which it starts at the first
// call. The rules of Shared hold for it too; do not move or lose slots.
func SharedCluster(t testing.TB) *Cluster {
	t.Helper()
	requireProgram(t)
	c, err := sharedCluster()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var sharedCluster = sync.OnceValues(launchTestCluster)

func launchTestCluster() (*Cluster, error) { return launchSteadyCluster(primaries, 2*primaries) }

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string { return addrs(c.Nodes) }

// Options returns go-redis' options for a client of this cluster: the addresses, and
// go-redis' defaults.
func (c *Cluster) Options() *redis.ClusterOptions { return &redis.ClusterOptions{Addrs: c.Addrs()} }

// Client returns a client with these options, closed when the test ends.
func (c *Cluster) Client(t testing.TB) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(c.Options())
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Heal restarts the nodes that were stopped, without their data, resumes the nodes that
// were paused, and waits until the cluster is whole again. Replicas that took over stay
// primaries.
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
