package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/connect"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// How many nodes and slots a Cluster has, how many throttles lie on it (two on each node), and how many goroutines ask
// them.
const (
	clusterNodes     = 4
	clusterThrottles = 2 * clusterNodes
	clusterAskers    = 4 * clusterThrottles
	clusterSlots     = 16384
)

// nodes compares the decisions of the same number of throttles on one server, on a Cluster's nodes, and on these nodes
// while slots are moved.
func nodes(ctx context.Context, b *bench) error {
	b.say("%d throttles, %d on each node, decide with room everywhere, asked by %d goroutines:", clusterThrottles,
		clusterThrottles/clusterNodes, clusterAskers)
	b.say("")
	b.say("| | decisions/s | calls per decision | µs of CPU per decision | %% of a core, by node |")
	b.say("|---|---|---|---|---|")
	var alone load
	err := withServer(ctx, func(s *server) error {
		client := s.client()
		defer client.Close() //nolint:errcheck // nothing is lost with it
		names := make([]string, clusterThrottles)
		for i := range names {
			names[i] = "node-" + strconv.Itoa(i)
		}
		all, err := throttlesOn(ctx, client, names)
		if err != nil {
			return err
		}
		alone, err = all.ask(ctx, []*server{s}, b.calls)
		b.sayLoad("one server", alone)
		return err
	})
	if err != nil {
		return err
	}
	return withCluster(ctx, func(c *cluster) error {
		names, err := c.names(ctx)
		if err != nil {
			return err
		}
		all, err := throttlesOn(ctx, c.client, names)
		if err != nil {
			return err
		}
		spread, err := all.ask(ctx, c.nodes, b.calls)
		if err != nil {
			return err
		}
		b.sayLoad(strconv.Itoa(clusterNodes)+" nodes", spread)
		if err := b.moveSlots(ctx, c, all); err != nil {
			return err
		}
		b.most("CPU of a decision on nodes to one server", spread.cpu/alone.cpu, 1.5)
		return b.moveBacklog(ctx, c)
	})
}

func (b *bench) sayLoad(name string, is load) {
	cores := make([]string, len(is.cores))
	for i, part := range is.cores {
		cores[i] = strconv.FormatFloat(100*part, 'f', 0, 64)
	}
	b.say("| %s | %.0f | %.2f | %.1f | %s |", name, is.perSecond, is.calls, is.cpu, strings.Join(cores, ", "))
}

// throttles is a set of throttles that are asked at the same time.
type throttles struct {
	all   []*throttle.Throttle
	mu    sync.Mutex
	asked int
	calls callCount
	away  map[string]int // how often Redis could not decide, by the failure
}

// throttlesOn makes throttles, and lets each of them decide once, so that the scripts are loaded.
func throttlesOn(ctx context.Context, client redis.UniversalClient, names []string) (*throttles, error) {
	ts := &throttles{away: make(map[string]int)}
	client.AddHook(&ts.calls)
	for _, name := range names {
		th, err := throttle.New(name, client, []throttle.Scope{
			{Name: "tenant", Limits: limits{throttle.PerMinute(globalUnits)}},
			{Name: throttle.Global, Limits: limits{throttle.PerMinute(globalUnits)}},
		}, &throttle.Options{Timeout: 20 * time.Second, Logger: zap.NewNop()})
		if err != nil {
			return nil, err
		}
		if err := ask(ctx, th, job("first", "tenant-0")); err != nil {
			return nil, err
		}
		ts.all = append(ts.all, th)
	}
	return ts, nil
}

// load is how fast decisions were made, and what they cost.
type load struct {
	perSecond, calls, cpu float64       // calls: per decision; cpu: µs of all servers per decision
	cores                 []float64     // the part of a core that each server took
	slowest               time.Duration // the longest time from a question to its decision
}

// ask makes each throttle decide for a number of jobs.
func (ts *throttles) ask(ctx context.Context, servers []*server, each int) (is load, err error) {
	before, err := cpuOf(ctx, servers)
	if err != nil {
		return is, err
	}
	from, n, began := ts.asked, each*len(ts.all), time.Now()
	ts.asked += n
	calls := ts.calls.reserves.Load()
	took, err := together(n, clusterAskers, func(i int) error {
		return ts.untilDecided(ctx, ts.all[i%len(ts.all)], job("job-"+strconv.Itoa(from+i), tenantOf(i)))
	})
	if err != nil {
		return is, err
	}
	lasted := time.Since(began).Seconds()
	after, err := cpuOf(ctx, servers)
	is = load{perSecond: float64(n) / lasted, slowest: slices.Max(took)}
	is.calls = float64(ts.calls.reserves.Load()-calls) / float64(n)
	for i := range servers {
		is.cores = append(is.cores, (after[i]-before[i]).Seconds()/lasted)
	}
	is.cpu = 1e6 * sum(is.cores) / is.perSecond
	return is, err
}

// cpuOf returns the CPU time that each server has used so far.
func cpuOf(ctx context.Context, servers []*server) ([]time.Duration, error) {
	all := make([]time.Duration, len(servers))
	for i, s := range servers {
		var err error
		if all[i], err = s.cpu(ctx); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func sum(values []float64) (all float64) {
	for _, value := range values {
		all += value
	}
	return all
}

// untilDecided asks until Redis decides. It repeats the nonce of the last error, so that a job is charged once.
func (ts *throttles) untilDecided(ctx context.Context, th *throttle.Throttle, j throttle.Job) error {
	for {
		err := ask(ctx, th, j)
		var away *throttle.UnavailableError
		if !errors.As(err, &away) {
			return err
		}
		ts.mu.Lock()
		ts.away[away.Failure]++
		ts.mu.Unlock()
		j.Nonce = away.Nonce
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// failures returns a text with how often Redis could not decide, for each kind of failure.
func (ts *throttles) failures() string {
	all := make([]string, 0, len(ts.away))
	for _, failure := range slices.Sorted(maps.Keys(ts.away)) {
		all = append(all, fmt.Sprintf("%d times (%s)", ts.away[failure], failure))
	}
	return strings.Join(all, ", ")
}

// moveSlots moves the throttles' slots from node to node while they decide.
func (b *bench) moveSlots(ctx context.Context, c *cluster, ts *throttles) error {
	moving, stop := context.WithCancel(ctx)
	var moves []time.Duration
	var failed error
	var mover sync.WaitGroup
	mover.Go(func() {
		for i := 0; failed == nil && (i == 0 || moving.Err() == nil); i++ {
			var took time.Duration
			if took, failed = c.move(ctx, ts.all[i%len(ts.all)].Name()); failed == nil {
				moves = append(moves, took)
			}
		}
	})
	is, err := ts.ask(ctx, c.nodes, b.calls)
	stop()
	mover.Wait()
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	slices.Sort(moves)
	b.sayLoad("slots are moved meanwhile", is)
	b.say("")
	b.say("%d moves of a slot, %.0f ms each (median), %.0f ms (longest); for %d jobs, Redis could not decide %s;",
		len(moves), micros(percentile(moves, 0.5))/1000, micros(moves[len(moves)-1])/1000, b.calls*len(ts.all), ts.failures())
	b.say("they asked again; the longest time until a decision was %.0f ms", micros(is.slowest)/1000)
	return nil
}

// moveBacklog moves a throttle with many jobs in line.
func (b *bench) moveBacklog(ctx context.Context, c *cluster) error {
	th, err := open(c.client, "backlog", nil, limits{throttle.Per(1, time.Hour)}, nil)
	if err != nil {
		return err
	}
	l := &line{throttle: th, tenants: 50}
	if err := l.fill(ctx, b.waiting); err != nil {
		return err
	}
	took, err := c.move(ctx, th.Name())
	b.say("a slot with %d waiting jobs of %d tenants is moved in %.0f ms", b.waiting, l.tenants, micros(took)/1000)
	return err
}

// cluster is a Redis Cluster of a section's own.
type cluster struct {
	*redistest.Cluster
	nodes  []*server
	client *redis.ClusterClient
	moved  map[int]int // the node of each slot that was moved
}

// withCluster runs f with a Cluster of its own.
func withCluster(ctx context.Context, f func(c *cluster) error) error {
	launched, err := redistest.LaunchCluster(clusterNodes)
	if err != nil {
		return err
	}
	c := &cluster{Cluster: launched, moved: make(map[int]int)}
	defer func() {
		for _, node := range c.nodes {
			_ = node.control.Close() // nothing is lost with it
		}
		_ = c.Close() // nor with these
	}()
	for _, node := range launched.Nodes {
		s, err := watch(ctx, node)
		if err != nil {
			return err
		}
		c.nodes = append(c.nodes, s)
	}
	client, err := connect.Open("redis-cluster://" + strings.Join(c.Addrs(), ","))
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // nothing is lost with it
	c.client, _ = client.(*redis.ClusterClient)
	return f(c)
}

// names returns names of throttles: the first lies on the first node, the second on the second, and so on in turn.
func (c *cluster) names(ctx context.Context) ([]string, error) {
	names := make([]string, clusterThrottles)
	for n, missing := 0, clusterThrottles; missing > 0; n++ {
		name := "node-" + strconv.Itoa(n)
		slot, err := c.slot(ctx, name)
		if err != nil {
			return nil, err
		}
		for i := c.nodeOf(slot); i < clusterThrottles; i += clusterNodes {
			if names[i] == "" {
				names[i] = name
				missing--
				break
			}
		}
	}
	return names, nil
}

// nodeOf returns the number of the node that serves a slot.
func (c *cluster) nodeOf(slot int) int {
	if node, is := c.moved[slot]; is {
		return node
	}
	return slot * clusterNodes / clusterSlots
}

// slot returns the slot of a throttle.
func (c *cluster) slot(ctx context.Context, name string) (int, error) {
	slot, err := c.client.ClusterKeySlot(ctx, "{"+name+"}").Result()
	return int(slot), err
}

// move moves a throttle's slot from its node to the next, and returns how long that took.
func (c *cluster) move(ctx context.Context, name string) (time.Duration, error) {
	slot, err := c.slot(ctx, name)
	if err != nil {
		return 0, err
	}
	from := c.nodeOf(slot)
	to := (from + 1) % clusterNodes
	m := redistest.Migration{Cluster: c.Cluster, Slot: slot, From: c.Nodes[from], To: c.Nodes[to]}
	began := time.Now()
	err = m.Run()
	c.moved[slot] = to
	return time.Since(began), err
}
