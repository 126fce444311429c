package redistest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
)

func launchCluster(primaries, nodes int) (*Cluster, error) {
	args := []string{
		"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "1000",
		"--cluster-replica-validity-factor", "0", // a replica takes over, however old its data is
		"--cluster-migration-barrier", "100", // a replica stays with its primary
		"--repl-diskless-sync-delay", "0",
		"--repl-ping-replica-period", "1", // a replica that has received nothing is not reported
	}
	c := &Cluster{Nodes: make([]*Server, nodes), primaries: primaries, ids: make([]string, nodes)}
	each := make([]int, nodes)
	for i := range each {
		each[i] = i
	}
	err := together(each, func(i int) (err error) {
		c.Nodes[i], err = launch(&Server{args: args, ports: nodePorts})
		return err
	})
	if err == nil {
		err = c.form(each)
	}
	if err != nil {
		return nil, fmt.Errorf("redistest: cluster: %w", errors.Join(err, c.Close()))
	}
	return c, nil
}

// launchSteadyCluster starts a cluster that does not break if the machine stands still for a
// while. It sets the long time-out last: set from the start, it would keep the nodes from
// hearing of each other for as long.
func launchSteadyCluster(primaries, nodes int) (*Cluster, error) {
	c, err := launchCluster(primaries, nodes)
	if err != nil {
		return nil, err
	}
	err = together(c.Nodes, func(node *Server) error {
		return node.ask(func(ctx context.Context, client *redis.Client) error {
			return client.ConfigSet(ctx, "cluster-node-timeout", "60000").Err()
		})
	})
	if err != nil {
		return nil, fmt.Errorf("redistest: cluster: %w", errors.Join(err, c.Close()))
	}
	return c, nil
}

// form makes a cluster of nodes that do not know each other.
func (c *Cluster) form(each []int) error {
	err := together(each, func(i int) error {
		return c.Nodes[i].ask(func(ctx context.Context, client *redis.Client) (err error) {
			// The epochs differ from the start, so that the nodes need not agree on them.
			err = client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err()
			if err == nil && i < c.primaries {
				err = client.ClusterAddSlotsRange(ctx, i*slots/c.primaries, (i+1)*slots/c.primaries-1).Err()
			}
			if err == nil {
				c.ids[i], err = client.ClusterMyID(ctx).Result()
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	err = c.Nodes[0].ask(func(ctx context.Context, client *redis.Client) error {
		for _, other := range c.Nodes[1:] {
			host, port := other.hostPort()
			if err := client.ClusterMeet(ctx, host, port).Err(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = together(each[c.primaries:], func(i int) error {
		return c.Nodes[i].ask(func(ctx context.Context, client *redis.Client) error {
			return await("a replica that knows its primary", func() error {
				return client.ClusterReplicate(ctx, c.ids[i-c.primaries]).Err()
			})
		})
	})
	if err != nil {
		return err
	}
	return c.awaitWhole()
}

func (c *Cluster) awaitWhole() error {
	return await("a cluster that is whole", func() error {
		for _, node := range c.Nodes {
			if err := c.serves(node); err != nil {
				return err
			}
			if err := c.inSync(node); err != nil {
				return err
			}
		}
		return nil
	})
}

// serves returns an error that says what keeps a node from serving every slot.
func (c *Cluster) serves(node *Server) error {
	var info string
	err := node.ask(func(ctx context.Context, client *redis.Client) (err error) {
		info, err = client.ClusterInfo(ctx).Result()
		return err
	})
	if err != nil {
		return err
	}
	fields := fieldsOf(info)
	if fields["cluster_state"] != "ok" || fields["cluster_slots_ok"] != strconv.Itoa(slots) ||
		fields["cluster_known_nodes"] != strconv.Itoa(len(c.Nodes)) {
		return fmt.Errorf("%s sees %s nodes, %s slots are served, it is %q",
			node.Addr, fields["cluster_known_nodes"], fields["cluster_slots_ok"], fields["cluster_state"])
	}
	return nil
}

// inSync returns an error that says what keeps a primary from having a replica in sync, or a replica
// from being in sync.
func (c *Cluster) inSync(node *Server) error {
	is, err := node.replication()
	if err != nil {
		return err
	}
	copies := len(c.Nodes) / c.primaries // copies of each slot: one on its primary, one on each replica
	if is["role"] == "master" && copies > 1 && !slices.ContainsFunc(c.Nodes,
		func(replica *Server) bool { return sendsTo(is, replica) }) {
		return fmt.Errorf("%s sends to none of its %s replicas", node.Addr, is["connected_slaves"])
	}
	if is["role"] != "master" && is["master_link_status"] != "up" {
		return fmt.Errorf("the replica %s is %s", node.Addr, is["master_link_status"])
	}
	served, err := c.servingAll(node)
	if err != nil {
		return err
	}
	for _, slot := range served {
		if len(slot.Nodes) != copies {
			return fmt.Errorf("%s sees %d nodes at slot %d", node.Addr, len(slot.Nodes), slot.Start)
		}
	}
	return nil
}
