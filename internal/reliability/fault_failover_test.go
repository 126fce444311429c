package reliability_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/connect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/internal/reliability"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// open returns a client as a program opens it, closed when the test ends.
func open(t *testing.T, url string) redis.UniversalClient {
	t.Helper()
	client, err := connect.Open(url)
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// together makes a drain with the throttle and asynq on the same servers, as in most programs.
func together(t *testing.T, name, url string) *drain {
	t.Helper()
	client := func() redis.UniversalClient { return open(t, url) }
	d := newDrain(t, name, counted, reach{client, client}, client(), client())
	d.begin(2)
	return d
}

// The reasons for which a drain does not run by default.
const (
	ofItsClass      = "another case of its class runs by default"
	forgottenReason = "asynq takes a minute to miss what a dead one had; throttle and worker have failovers of " +
		"their own, and TestWakeUpsOfAKilledProcess_F32 kills"
)

// TestSentinelFailover_F07 kills the primary that sentinels watch.
func TestSentinelFailover_F07(t *testing.T) {
	t.Parallel()
	longtest.Only(t, forgottenReason)
	s := redistest.StartSentinel(t)
	d := together(t, redistest.Name(t), "redis-sentinel://"+strings.Join(s.Addrs(), ",")+"?master="+s.MasterName)
	d.amid()
	s.Servers[1].AwaitSync(s.Servers[0]) // the replica has all tasks
	var primary *redistest.Server
	f := d.strike(func() { primary = s.AwaitPrimary(s.KillPrimary()) }, 0, nil)
	d.failedOver(f, primary, reliability.Row{
		Cases: "F7", Done: "kill -9 of the primary under Sentinel, which takes it for dead after 1 s",
		Servers: "the one Redis of throttle and asynq",
	})
}

// TestClusterFailover_F08 kills the primary of the slots that the throttle and asynq's
// queue lie in.
func TestClusterFailover_F08(t *testing.T) {
	t.Parallel()
	longtest.Only(t, forgottenReason)
	c := redistest.StartCluster(t)
	const queue = "asynq:{default}"
	owner, replica := c.Owner(t, queue), c.Replica(t, queue)
	name := nameOn(t, c, owner)
	d := together(t, name, "redis-cluster://"+strings.Join(c.Addrs(), ","))
	d.amid()
	replica.AwaitSync(owner) // the replica has all tasks
	var primary *redistest.Server
	f := d.strike(func() {
		owner.Stop()
		primary = c.AwaitOwner(t, queue, owner)
	}, 0, nil)
	d.failedOver(f, primary, reliability.Row{
		Cases: "F8", Done: "kill -9 of a primary of a Cluster with a node timeout of 1 s",
		Servers: "the one node of throttle and asynq",
	})
}

// nameOn returns a name for a throttle whose keys lie on that node.
func nameOn(t *testing.T, c *redistest.Cluster, node *redistest.Server) string {
	t.Helper()
	for {
		if name := redistest.Name(t); c.Owner(t, "{"+name+"}") == node {
			return name
		}
	}
}

// failedOver finishes a drain whose primary was killed. It counts the last writes that the new
// primary does not have: charges of the throttle, and asynq's notes of tasks that had run, which
// run again.
func (d *drain) failedOver(f fault, primary *redistest.Server, row reliability.Row) {
	d.t.Helper()
	// Grants of the old primary start at most MaxWait after it died.
	latest := f.began.Add(worker.DefaultMaxWait)
	lost := -d.charges(primary.Client(d.t), time.Since(latest))
	for _, s := range d.all() {
		if s.Decided.Before(f.began) {
			lost++
		}
	}
	// asynq too must find the new primary before it brings a task: its forwarder looks every half second, and its
	// client pauses for half a second between repetitions.
	d.finish(f, row, allowance{lost: max(0, lost), again: anyNumber, recoverer: true, within: 2 * time.Second})
}

// TestSlotMoved_F11_F12 moves the throttle's slot to another node of a Cluster, in steps:
// while some of its keys are on each side, no script with keys on both can run.
func TestSlotMoved_F11_F12(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	from := c.Owner(t, "asynq:{default}")
	name := nameOn(t, c, from)
	to := c.Nodes[(slices.Index(c.Nodes, from)+1)%3]
	d := together(t, name, "redis-cluster://"+strings.Join(c.Addrs(), ","))
	m := c.Migrate(t, c.Slot(t, "{"+name+"}"), to)
	f := d.strike(
		func() {
			m.Begin(t)
			m.Move(t, 20)
		}, 2*time.Second,
		func() {
			m.MoveAll(t)
			m.Finish(t)
		})
	d.finish(f, reliability.Row{Cases: "F11, F12",
		Done:    "the throttle's slot moved, for 2 s with keys on both sides: TRYAGAIN, ASK, MOVED",
		Servers: "a Cluster, asynq on it too"}, allowance{})
	// After TRYAGAIN the client asks again by itself, until the time is up.
	if d.putBackFor("tryagain", "timeout") == 0 {
		timely(t, "no task was put back while the slot was moved: this test has tested nothing")
	}
}
