package throttle_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// replicated is a Redis that survives the death of a primary.
type replicated struct {
	shape string
	open  func(t *testing.T) redis.UniversalClient // with package connect's options
	plain func(t *testing.T) redis.UniversalClient // with go-redis' defaults
	owner func(t *testing.T, key string) *redistest.Server
	// replaced waits until everyone who has a say names another primary, which takes writes.
	replaced func(t *testing.T, key string, old *redistest.Server)
	heal     func(t *testing.T)
}

func onSentinels(t *testing.T) replicated {
	s := redistest.StartSentinel(t)
	return replicated{
		shape:    "Sentinel",
		open:     func(t *testing.T) redis.UniversalClient { return open(t, sentinelURL(s)) },
		plain:    func(t *testing.T) redis.UniversalClient { return s.Client(t) },
		owner:    func(*testing.T, string) *redistest.Server { return s.Primary() },
		replaced: func(_ *testing.T, _ string, old *redistest.Server) { s.AwaitPrimary(old) },
		heal:     func(*testing.T) { s.Heal() },
	}
}

func onCluster(t *testing.T) replicated {
	c := redistest.StartCluster(t)
	return replicated{
		shape:    "Cluster",
		open:     func(t *testing.T) redis.UniversalClient { return clusterClient(t, c) },
		plain:    func(t *testing.T) redis.UniversalClient { return c.Client(t) },
		owner:    func(t *testing.T, key string) *redistest.Server { return c.Owner(t, key) },
		replaced: func(t *testing.T, key string, old *redistest.Server) { c.AwaitOwner(t, key, old) },
		heal:     func(t *testing.T) { c.Heal(t) },
	}
}

// failover says what one death of a primary did to decisions.
type failover struct {
	replaced time.Duration // from the death until another primary was known to all and took writes
	resumed  time.Duration // from the death until the first decision
	lost     int64         // charges of granted jobs that the new primary does not know
}

// asker asks for one job after the other, as workers do.
type asker struct {
	throttle *throttle.Throttle

	mu      sync.Mutex
	granted int64
	died    time.Time     // when the primary died; zero before
	resumed time.Duration // zero before the first decision that was asked for after it
}

func (a *asker) ask(ctx context.Context, name string) {
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		asked := time.Now()
		r, err := a.throttle.Reserve(context.Background(), throttle.Job{ID: fmt.Sprint(name, "-", n), Weight: 1})
		a.mu.Lock()
		if err == nil && r.Outcome == throttle.Granted && r.Source == throttle.FallbackClosed {
			a.granted++
			if !a.died.IsZero() && asked.After(a.died) && a.resumed == 0 {
				a.resumed = time.Since(a.died)
			}
		}
		a.mu.Unlock()
		<-pause.C
	}
}

func (a *asker) hasGranted(n int64) func() bool {
	return func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.granted >= n }
}

func (a *asker) hasResumed() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.resumed > 0 }

// outage ends the primary of a throttle, by end, while four goroutines ask.
func (r replicated) outage(t *testing.T, client redis.UniversalClient, end func(*redistest.Server)) failover {
	t.Helper()
	const most = 1_000_000
	th := newThrottle(t, client, globalScope(throttle.PerHour(most)), &throttle.Options{Timeout: defaultTimeout})
	a := &asker{throttle: th}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for n := range 4 {
		wg.Go(func() { a.ask(ctx, strconv.Itoa(n)) })
	}
	redistest.Await(t, "decisions before", a.hasGranted(50))
	owner := r.owner(t, keyOf(th))
	a.mu.Lock()
	end(owner)
	a.died = time.Now()
	a.mu.Unlock()
	r.replaced(t, keyOf(th), owner)
	f := failover{replaced: time.Since(a.died)}
	redistest.Await(t, "decisions again", a.hasResumed)
	stop()
	wg.Wait()
	var known int64
	redistest.Await(t, "an answer of a client that has resumed", func() bool {
		usage, err := inspect.New(th).Usage(t.Context(), throttle.Global, "")
		if err == nil {
			known = usage.Limits[0].Used
		}
		return err == nil
	})
	f.resumed, f.lost = a.resumed, max(0, a.granted-known)
	return f
}

func kill(s *redistest.Server) { s.Stop() }

// TestF07_F08_DecisionsResume kills the primary (SIGKILL) behind a client that package
// connect has opened. Decisions resume, in full runs within a second of the failover, however
// long that takes. Only the charges that the new primary has not received are forgotten.
func TestF07_F08_DecisionsResume(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) replicated{"sentinel": onSentinels, "cluster": onCluster} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t)
			f := r.outage(t, r.open(t), kill)
			t.Logf("failover %s, decisions after %s, %d charges lost", f.replaced, f.resumed, f.lost)
			const within, slack = time.Second, time.Second // for a machine that stands still
			if longtest.Full() && f.resumed > f.replaced+within+slack {
				t.Errorf("decisions resumed %s after the failover, want at most %s", f.resumed-f.replaced, within)
			}
		})
	}
}

// TestFailoverContrast prints how long decisions are away with package connect's options
// and with go-redis' defaults, if the primary is killed and if it hangs, like a lost
// machine. FAILOVER_ROUNDS=5 says how often; without it the test is skipped, since the
// defaults take up to a minute each time: -timeout 30m.
func TestFailoverContrast(t *testing.T) {
	rounds, err := strconv.Atoi(cmp.Or(os.Getenv("FAILOVER_ROUNDS"), "0"))
	if err != nil {
		t.Fatalf("FAILOVER_ROUNDS: %v", err)
	}
	if rounds < 1 {
		t.Skip("FAILOVER_ROUNDS is not set")
	}
	for name, start := range map[string]func(*testing.T) replicated{"sentinel": onSentinels, "cluster": onCluster} {
		t.Run(name, func(t *testing.T) { contrast(t, start(t), rounds) })
	}
}

func contrast(t *testing.T, r replicated, rounds int) {
	t.Helper()
	t.Log("| | primary | client | failover, median (worst) | decisions away, median (worst) | charges lost, most |")
	for _, how := range []struct {
		name string
		end  func(*redistest.Server)
	}{{"killed", kill}, {"hangs", (*redistest.Server).Pause}} {
		for _, with := range []struct {
			name string
			open func(*testing.T) redis.UniversalClient
		}{{"`connect.Open`", r.open}, {"go-redis' defaults", r.plain}} {
			var replaced, resumed []time.Duration
			var lost int64
			for range rounds {
				client := with.open(t)
				f := r.outage(t, client, how.end)
				replaced, resumed, lost = append(replaced, f.replaced), append(resumed, f.resumed), max(lost, f.lost)
				_ = client.Close()
				r.heal(t)
			}
			t.Logf("| %s | %s | %s | %s | %s | %d |", r.shape, how.name, with.name, middle(replaced), middle(resumed), lost)
		}
	}
}

// middle returns the median and the worst, as text.
func middle(of []time.Duration) string {
	slices.Sort(of)
	return fmt.Sprintf("%.1f s (%.1f s)", of[len(of)/2].Seconds(), of[len(of)-1].Seconds())
}
