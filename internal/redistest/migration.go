package redistest

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Migration moves a slot from one primary of a cluster to another. A test calls the steps
// one by one, and may stop or do something else between any two:
//
//	m := cluster.Migrate(t, slot, to) // nothing has happened
//	m.Begin(t)                        // keys that are missing at the source: ASK
//	m.Move(t, 1)                      // one key goes over; scripts with keys on both sides: TRYAGAIN
//	m.MoveAll(t)                      // the rest
//	m.Finish(t)                       // the slot is the target's: MOVED
type Migration struct {
	Cluster  *Cluster
	Slot     int
	From, To *Server
}

// Migrate prepares to move a slot from its primary to another one. It changes nothing yet.
func (c *Cluster) Migrate(t testing.TB, slot int, to *Server) *Migration {
	t.Helper()
	return &Migration{Slot: slot, From: c.serving(t, slot)[0], To: to, Cluster: c}
}

// Begin opens the slot: SETSLOT IMPORTING at the target, MIGRATING at the source.
func (m *Migration) Begin(t testing.TB) {
	t.Helper()
	failed(t, m.begin())
}

// Run takes all steps, for a program that is no test.
func (m *Migration) Run() error {
	if err := m.begin(); err != nil {
		return err
	}
	if _, err := m.moveAll(); err != nil {
		return err
	}
	return m.finish()
}

func (m *Migration) begin() error {
	if err := m.set(m.To, "IMPORTING", m.id(m.From)); err != nil {
		return err
	}
	return m.set(m.From, "MIGRATING", m.id(m.To))
}

// Move moves up to n keys of the slot, and returns how many it moved.
func (m *Migration) Move(t testing.TB, n int) int {
	t.Helper()
	moved, err := m.move(n)
	failed(t, err)
	return moved
}

func (m *Migration) move(n int) (moved int, err error) {
	host, port := m.To.hostPort()
	err = m.From.ask(func(ctx context.Context, client *redis.Client) error {
		keys, err := client.ClusterGetKeysInSlot(ctx, m.Slot, n).Result()
		if err != nil || len(keys) == 0 {
			return err
		}
		moved = len(keys)
		args := []any{"MIGRATE", host, port, "", 0, patience.Milliseconds(), "KEYS"}
		for _, key := range keys {
			args = append(args, key)
		}
		return client.Do(ctx, args...).Err()
	})
	if err != nil {
		return moved, fmt.Errorf("redistest: move %d keys of slot %d: %w", n, m.Slot, err)
	}
	return moved, nil
}

// MoveAll moves the keys that the source still has, and returns how many it moved.
func (m *Migration) MoveAll(t testing.TB) int {
	t.Helper()
	all, err := m.moveAll()
	failed(t, err)
	return all
}

func (m *Migration) moveAll() (all int, err error) {
	const atOnce = 100
	for {
		n, err := m.move(atOnce)
		if all += n; n == 0 || err != nil {
			return all, err
		}
	}
}

// Finish gives the slot to the target, which must have all its keys.
func (m *Migration) Finish(t testing.TB) {
	t.Helper()
	failed(t, m.finish())
}

func (m *Migration) finish() error {
	for _, node := range []*Server{m.To, m.From} {
		if err := m.set(node, "NODE", m.id(m.To)); err != nil {
			return err
		}
	}
	return await("nodes that know the new primary of slot "+strconv.Itoa(m.Slot), func() error {
		for _, node := range m.Cluster.Nodes {
			if !node.Running() {
				continue
			}
			nodes, err := m.Cluster.servingBy(node, m.Slot)
			if err != nil {
				return err
			}
			if nodes[0] != m.To {
				return fmt.Errorf("%s sees it at %s", node.Addr, nodes[0].Addr)
			}
		}
		return nil
	})
}

// Abandon closes the slot again at both ends (STABLE). Call it only if no key was moved.
func (m *Migration) Abandon(t testing.TB) {
	t.Helper()
	failed(t, m.set(m.From, "STABLE"))
	failed(t, m.set(m.To, "STABLE"))
}

func (m *Migration) id(node *Server) string { return m.Cluster.id(node) }

func (m *Migration) set(node *Server, state ...any) error {
	err := node.ask(func(ctx context.Context, client *redis.Client) error {
		return client.Do(ctx, append([]any{"CLUSTER", "SETSLOT", m.Slot}, state...)...).Err()
	})
	if err != nil {
		return fmt.Errorf("redistest: %s: slot %d %v: %w", node.Addr, m.Slot, state, err)
	}
	return nil
}

// failed ends the test if a step failed.
func failed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
