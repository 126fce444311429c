package redistest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Slot returns the slot of a key.
func (c *Cluster) Slot(t testing.TB, key string) int {
	t.Helper()
	var slot int64
	err := c.someone().ask(func(ctx context.Context, client *redis.Client) (err error) {
		slot, err = client.ClusterKeySlot(ctx, key).Result()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return int(slot)
}

// Owner returns the primary of the key's slot, as the first running node sees it: until its
// replica has taken over, that may be a dead node.
func (c *Cluster) Owner(t testing.TB, key string) *Server {
	t.Helper()
	nodes := c.serving(t, c.Slot(t, key))
	return nodes[0]
}

// Replica returns the replica of the key's slot, nil if it has none.
func (c *Cluster) Replica(t testing.TB, key string) *Server {
	t.Helper()
	nodes := c.serving(t, c.Slot(t, key))
	if len(nodes) < 2 {
		return nil
	}
	return nodes[1]
}

// AwaitOwner waits until every running node sees another primary of the key's slot than
// the old one, and the cluster serves all slots. It returns the new primary.
func (c *Cluster) AwaitOwner(t testing.TB, key string, old *Server) *Server {
	t.Helper()
	slot := c.Slot(t, key)
	var owner *Server
	err := await("another primary than "+old.Addr, func() error {
		for _, node := range c.Nodes {
			if !node.Running() {
				continue
			}
			if err := c.serves(node); err != nil {
				return err
			}
			nodes, err := c.servingBy(node, slot)
			if err != nil {
				return err
			}
			if owner = nodes[0]; owner == old {
				return fmt.Errorf("%s still sees it", node.Addr)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return owner
}

// id returns a node's name in the cluster.
func (c *Cluster) id(node *Server) string { return c.ids[slices.Index(c.Nodes, node)] }

// someone returns a running node. If no node runs, it returns one whose calls say so.
func (c *Cluster) someone() *Server {
	return c.Nodes[max(0, slices.IndexFunc(c.Nodes, (*Server).Running))]
}

// serving returns the primary of a slot, then its replicas.
func (c *Cluster) serving(t testing.TB, slot int) []*Server {
	t.Helper()
	nodes, err := c.servingBy(c.someone(), slot)
	if err != nil {
		t.Fatal(err)
	}
	return nodes
}

// servingBy returns the primary of a slot, then its replicas, as a node sees them.
func (c *Cluster) servingBy(node *Server, slot int) ([]*Server, error) {
	served, err := c.servingAll(node)
	if err != nil {
		return nil, err
	}
	for _, some := range served {
		if slot < some.Start || slot > some.End {
			continue
		}
		var nodes []*Server
		for _, one := range some.Nodes {
			i := slices.Index(c.ids, one.ID)
			if i < 0 {
				return nil, fmt.Errorf("redistest: %s sees the stranger %s", node.Addr, one.Addr)
			}
			nodes = append(nodes, c.Nodes[i])
		}
		return nodes, nil
	}
	return nil, fmt.Errorf("redistest: %s sees nobody at slot %d", node.Addr, slot)
}

func (c *Cluster) servingAll(node *Server) (served []redis.ClusterSlot, err error) {
	err = node.ask(func(ctx context.Context, client *redis.Client) (err error) {
		served, err = client.ClusterSlots(ctx).Result() //nolint:staticcheck // servers before 7.0 have no other
		return err
	})
	return served, err
}
