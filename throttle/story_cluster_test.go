package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/connect"
	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// clusterClient returns the client that a URL of the cluster opens.
func clusterClient(t testing.TB, c *redistest.Cluster) *redis.ClusterClient {
	t.Helper()
	return open(t, "redis-cluster://"+strings.Join(c.Addrs(), ",")).(*redis.ClusterClient)
}

func open(t testing.TB, url string) redis.UniversalClient {
	t.Helper()
	client, err := connect.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// keyOf returns a key in the slot of a throttle.
func keyOf(th *throttle.Throttle) string { return "{" + th.Name() + "}" }

// TestConformanceOnCluster holds a cluster to the timelines of TestConformance.
func TestConformanceOnCluster(t *testing.T) {
	t.Parallel()
	client := clusterClient(t, redistest.SharedCluster(t))
	throttletest.Run(t, func(t *testing.T, scopes []throttle.Scope, options throttle.Options) throttletest.Subject {
		return newScripted(newThrottle(t, client, scopes, &options))
	})
}

// TestConformanceThroughSentinel runs the same timelines with a client that asks sentinels.
func TestConformanceThroughSentinel(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	client := open(t, sentinelURL(s))
	throttletest.Run(t, func(t *testing.T, scopes []throttle.Scope, options throttle.Options) throttletest.Subject {
		return newScripted(newThrottle(t, client, scopes, &options))
	})
}

func sentinelURL(s *redistest.Sentinel) string {
	return "redis-sentinel://" + strings.Join(s.Addrs(), ",") + "?master=" + s.MasterName
}

// TestThrottlesSpreadOverTheCluster: all keys of a throttle lie on one primary, and many
// throttles use all primaries. Each throttle decides as if it were alone.
func TestThrottlesSpreadOverTheCluster(t *testing.T) {
	t.Parallel()
	const throttles, limit = 50, 3
	c := redistest.SharedCluster(t)
	client := clusterClient(t, c)
	on := make(map[*redistest.Server]int)
	var all []*throttle.Throttle
	for range throttles {
		th := newThrottle(t, client, globalScope(throttle.PerHour(limit)), nil)
		all = append(all, th)
		on[c.Owner(t, keyOf(th))]++
		for n := range limit + 2 {
			want := throttle.Granted
			if n >= limit {
				want = throttle.Booked
			}
			if r := reserve(t, th, throttle.Job{ID: fmt.Sprint(n), Weight: 1}); r.Outcome != want {
				t.Errorf("job %d of %s: got %v, want %v", n, th.Name(), r.Outcome, want)
			}
		}
	}
	if len(on) != 3 {
		t.Errorf("%d throttles lie on %d primaries, want 3", throttles, len(on))
	}
	for _, node := range c.Nodes[:3] {
		direct := node.Client(t)
		for _, th := range all {
			keys := keyNames(t, direct, th)
			if owns := c.Owner(t, keyOf(th)) == node; owns != (len(keys) > 0) {
				t.Errorf("%s has %d keys of %s; it owns the slot: %t", node.Addr, len(keys), th.Name(), owns)
			}
		}
	}
}

// TestF13_EveryKeyInOneSlot: no call has keys in two slots, whatever the names of
// throttles, scopes, keys and jobs are. A cluster would refuse such a call: CROSSSLOT.
func TestF13_EveryKeyInOneSlot(t *testing.T) {
	t.Parallel()
	client := clusterClient(t, redistest.SharedCluster(t))
	name := rapid.StringMatching(`[A-Za-z0-9_.-]{1,30}`)
	scopeName := rapid.StringMatching(`[a-z]{1,8}`).Filter(func(s string) bool { return s != throttle.Global })
	value := rapid.OneOf(rapid.String(), rapid.SampledFrom(hostile),
		rapid.StringMatching(`[{}:*a]{1,6}`)).Filter(func(s string) bool { return s != "" })
	id := value.Filter(func(s string) bool { return len(s) < 1000 }) // a longer ID is refused before Redis is called
	unique := "." + strings.ReplaceAll(redistest.Name(t), "-", "_")
	rapid.Check(t, func(r *rapid.T) {
		scope, key := scopeName.Draw(r, "scope"), value.Draw(r, "key")
		scopes := []throttle.Scope{
			{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerHour(100)}},
			{Name: scope, Limits: []throttle.Limit{throttle.PerHour(2), throttle.Per(1, time.Second)}},
		}
		full := name.Draw(r, "name") + unique
		th, err := throttle.New(full[max(0, len(full)-64):], client, scopes,
			&throttle.Options{Timeout: patient, FairScope: scope})
		if err != nil {
			r.Fatal(err)
		}
		everyVerb(r, th, scope, key, id.Draw(r, "id"))
	})
}

// everyVerb makes each call that takes keys once. It fails on an error, and ignores the
// answers.
func everyVerb(t *rapid.T, th *throttle.Throttle, scope, key, id string) {
	ctx := context.Background()
	must := func(verb string, err error) {
		if err != nil {
			t.Fatalf("%s of scope %q, key %q, job %q: %v", verb, scope, key, id, err)
		}
	}
	job := throttle.Job{ID: id, Weight: 1, Keys: map[string]string{scope: key}}
	second, third := job, job
	second.ID, third.ID = id+"2", id+"3"
	granted, err := th.Reserve(ctx, job)
	must("Reserve", err)
	for _, answer := range th.ReserveAll(ctx, []throttle.Job{second, third}) {
		must("ReserveAll", answer.Err)
	}
	_, err = th.Peek(ctx, job)
	must("Peek", err)
	if granted.Outcome == throttle.Granted {
		_, err = th.Settle(ctx, granted, 1)
		must("Settle", err)
	}
	_, err = inspect.New(th).Usage(ctx, scope, key)
	must("Usage", err)
	_, err = inspect.New(th).Count(ctx, scope, key, time.Minute, 0)
	must("Count", err)
	_, err = inspect.New(th).Explain(ctx, second)
	must("Explain", err)
	_, err = inspect.New(th).Forecast(ctx, []throttle.Job{{ID: id + "4", Weight: 1, Keys: job.Keys}})
	must("Forecast", err)
	must("SetLimits", inspect.New(th).SetLimits(ctx, scope, key, []throttle.Limit{throttle.PerHour(3)}))
	must("ResetLimits", inspect.New(th).ResetLimits(ctx, scope, key))
	must("SetMode", inspect.New(th).SetMode(ctx, scope, throttle.Enforce))
	must("ResetMode", inspect.New(th).ResetMode(ctx, scope))
	_, err = inspect.New(th).Pause(ctx, scope, key, time.Now().Add(time.Minute))
	must("Pause", err)
	_, err = inspect.New(th).Resume(ctx, scope, key)
	must("Resume", err)
	_, err = inspect.New(th).Lines(ctx, "")
	must("Lines", err)
	_, err = th.Driver().Pull(ctx)
	must("Pull", err)
	_, _, err = inspect.New(th).Jobs(ctx, granted.Lane, "")
	must("Jobs", err)
	_, err = th.Cancel(ctx, third)
	must("Cancel", err)
	_, err = th.Driver().Leave(ctx, []string{second.ID})
	must("Leave", err)
}

// TestClientThatReadsReplicasDecidesOnPrimaries: a client may be configured to read from
// replicas. The throttle still calls the primaries, since scripts may write.
func TestClientThatReadsReplicasDecidesOnPrimaries(t *testing.T) {
	t.Parallel()
	c := redistest.SharedCluster(t)
	for _, options := range []redis.ClusterOptions{{ReadOnly: true}, {RouteRandomly: true}, {RouteByLatency: true}} {
		if longtest.Watched && options.RouteByLatency {
			continue // go-redis v9.23 changes a node's options while it measures its latency
		}
		options.Addrs, options.ContextTimeoutEnabled = c.Addrs(), true
		client := redis.NewClusterClient(&options)
		t.Cleanup(func() { _ = client.Close() })
		th := newThrottle(t, client, globalScope(throttle.PerHour(1000)), nil)
		jobs := make([]throttle.Job, 60)
		for n := range jobs {
			jobs[n] = throttle.Job{ID: fmt.Sprint(n), Weight: 1}
		}
		for n, answer := range th.ReserveAll(t.Context(), jobs[:30]) {
			if answer.Err != nil || answer.Reservation.Outcome != throttle.Granted {
				t.Fatalf("job %d: got %v, %v", n, answer.Reservation.Outcome, answer.Err)
			}
		}
		for n, job := range jobs[30:] {
			reserve(t, th, job)
			usage, err := inspect.New(th).Usage(t.Context(), throttle.Global, "") // a call that only reads
			if err != nil || usage.Limits[0].Used != int64(31+n) {
				t.Fatalf("after %d jobs: usage %+v, %v", 31+n, usage, err)
			}
		}
	}
}

// TestScriptIsLoadedWhereItIsNeeded: go-redis' cluster client loads a script on every
// node, replicas too, and fails if one node does not answer. Here a replica is silent, and
// decisions still go on: the throttle loads its script only on the node that decides.
func TestScriptIsLoadedWhereItIsNeeded(t *testing.T) {
	t.Parallel()
	c := redistest.StartSteadyCluster(t)
	client := clusterClient(t, c)
	th := newThrottle(t, client, globalScope(throttle.PerHour(10)), &throttle.Options{Timeout: patient})
	if err := client.Ping(t.Context()).Err(); err != nil { // now the client knows the nodes
		t.Fatal(err)
	}
	replica := c.Replica(t, keyOf(th))
	replica.Pause()
	defer replica.Resume()
	if r := reserve(t, th, throttle.Job{ID: "a", Weight: 1}); r.Outcome != throttle.Granted ||
		r.Source != throttle.FallbackClosed {
		t.Errorf("got %+v", r)
	}
}

// moving is a throttle whose slot moves from one primary to another.
type moving struct {
	*redistest.Migration
	throttle *throttle.Throttle
	jobs     int
}

func newMoving(t *testing.T, scopes []throttle.Scope, timeout time.Duration) *moving {
	t.Helper()
	c := redistest.StartSteadyCluster(t)
	th := newThrottle(t, clusterClient(t, c), scopes, &throttle.Options{Timeout: timeout})
	from := c.Owner(t, keyOf(th))
	to := c.Nodes[(slices.Index(c.Nodes, from)+1)%3]
	return &moving{Migration: c.Migrate(t, c.Slot(t, keyOf(th)), to), throttle: th}
}

// grants asks for a new job of a tenant. The job must be granted.
func (m *moving) grants(t *testing.T, step, tenant string) {
	t.Helper()
	m.jobs++
	r := reserve(t, m.throttle, throttle.Job{ID: fmt.Sprint("job", m.jobs), Weight: 1, Keys: of(tenant)})
	if r.Outcome != throttle.Granted || r.Replayed || r.Source != throttle.FallbackClosed {
		t.Errorf("%s: got %+v, want granted for the first time", step, r)
	}
	m.used(t, step)
}

// used checks that each job was charged once.
func (m *moving) used(t *testing.T, step string) {
	t.Helper()
	usage, err := inspect.New(m.throttle).Usage(t.Context(), throttle.Global, "")
	if err != nil || usage.Limits[0].Used != int64(m.jobs) {
		t.Errorf("%s: used %+v, %v; want %d", step, usage.Limits, err, m.jobs)
	}
}

// TestF11_F12_SlotMoves goes through the states of a slot that is moved. Meanwhile a node
// runs only scripts whose keys it has, all of them. Some keys of a decision do not exist yet,
// so neither node can decide until the slot has arrived. The caller gets an error that says
// so, and nothing is charged. A job that asks again is charged once. The caller does not
// notice MOVED.
func TestF11_F12_SlotMoves(t *testing.T) {
	t.Parallel()
	m := newMoving(t, tenantAndGlobal(throttle.PerHour(1000), throttle.PerHour(1000)), patient)
	m.grants(t, "before", "acme")
	m.Begin(t)
	torn := throttle.Job{ID: "torn", Weight: 1, Keys: of("new"), Nonce: "its-own"}
	undecided := func(step string) {
		t.Helper()
		_, err := m.throttle.Reserve(t.Context(), torn)
		unavailable(t, step, err, "tryagain")
	}
	undecided("begun: TRYAGAIN at the source")
	m.MoveAll(t)
	undecided("all moved: ASK, and TRYAGAIN at the target")
	m.Finish(t)
	m.jobs++
	if r := reserve(t, m.throttle, torn); r.Outcome != throttle.Granted || r.Replayed {
		t.Errorf("arrived, MOVED: got %+v, want granted for the first time", r)
	}
	m.used(t, "arrived")
	m.grants(t, "arrived", "acme")
	back := m.Cluster.Migrate(t, m.Slot, m.From)
	back.Begin(t)
	back.MoveAll(t)
	back.Finish(t)
	jobs := make([]throttle.Job, 150)
	for n := range jobs {
		jobs[n] = throttle.Job{ID: fmt.Sprint("all", n), Weight: 1, Keys: of(fmt.Sprint("t", n%7))}
	}
	m.jobs += len(jobs)
	for n, answer := range m.throttle.ReserveAll(t.Context(), jobs) {
		if answer.Err != nil || answer.Reservation.Outcome != throttle.Granted || answer.Reservation.Replayed {
			t.Errorf("job %d of many, MOVED: got %+v, %v", n, answer.Reservation, answer.Err)
		}
	}
	m.used(t, "many, MOVED")
}

// TestF12_SlotMovesMidRun moves a slot there and back while eight goroutines ask. The charges
// equal the grants, and both equal the limit.
func TestF12_SlotMovesMidRun(t *testing.T) {
	t.Parallel()
	const askers, limit = 8, 200
	m := newMoving(t, tenantAndGlobal(throttle.PerHour(1000), throttle.PerHour(limit)), patient)
	var granted, other, undecided atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for asker := range askers {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				job := throttle.Job{ID: fmt.Sprintf("%d-%d", asker, n), Weight: 1, Keys: of(fmt.Sprint("t", asker))}
				for ctx.Err() == nil {
					r, err := m.throttle.Reserve(context.Background(), job)
					var away *throttle.UnavailableError
					if errors.As(err, &away) { // the call may have been decided: ask with its nonce
						job.Nonce = away.Nonce
						undecided.Add(1)
						time.Sleep(10 * time.Millisecond) // the breaker may be open; a busy loop would take the mover's core
						continue
					}
					switch {
					case err != nil:
						t.Errorf("%s: %v", job.ID, err)
					case r.Outcome == throttle.Granted:
						granted.Add(1)
					default:
						other.Add(1)
					}
					break
				}
			}
		})
	}
	moves := 0
	for there := m.Migration; ; there = m.Cluster.Migrate(t, m.Slot, there.From) {
		before := granted.Load() + other.Load()
		redistest.Await(t, "decisions between two moves", func() bool { return granted.Load()+other.Load() > before+20 })
		there.Begin(t)
		there.Move(t, 1)
		there.MoveAll(t)
		there.Finish(t)
		moves++
		if granted.Load() == limit && other.Load() > 0 {
			break
		}
	}
	stop()
	wg.Wait()
	var usage inspect.Usage
	redistest.Await(t, "an answer after the last move", func() (answered bool) { // the breaker may be open
		var err error
		usage, err = inspect.New(m.throttle).Usage(t.Context(), throttle.Global, "")
		return err == nil
	})
	if usage.Limits[0].Used != limit || granted.Load() != limit {
		t.Errorf("granted %d, used %+v; want %d", granted.Load(), usage.Limits, limit)
	}
	t.Logf("%d moves, granted %d, booked %d, undecided meanwhile %d", moves, granted.Load(), other.Load(),
		undecided.Load())
}
