package reliability_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// waitForReplica waits, after each script, until a replica has what the connection wrote, and fails the call if no
// replica has it in time. The library has no such mode: this measures what a program of its own could gain. It needs a
// client with one connection, since WAIT refers to the writes of its own connection.
type waitForReplica struct{ client *redis.Client }

var errNoReplica = errors.New("no replica has the decision")

func (waitForReplica) DialHook(next redis.DialHook) redis.DialHook { return next }

func (waitForReplica) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (w waitForReplica) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		if err := next(ctx, command); err != nil || !strings.EqualFold(command.Name(), "evalsha") {
			return err
		}
		if have, err := w.client.Wait(ctx, 1, 100*time.Millisecond).Result(); err != nil || have < 1 {
			command.SetErr(errors.Join(errNoReplica, err))
			return command.Err()
		}
		return nil
	}
}

// TestFailoverLoses_F07_F19 lets nothing pass from a primary to its replica, lets programs ask on, kills the primary
// and promotes the replica: the worst failover. It measures how many granted units the new primary does not know: of a
// plain primary, of one with min-replicas-to-write, and of programs that WAIT.
func TestFailoverLoses_F07_F19(t *testing.T) {
	t.Parallel()
	bounded := []string{"--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"}
	for name, with := range map[string]struct {
		options []string
		wait    bool
	}{
		"plain":                                {},
		"min-replicas-to-write 1, max-lag 1 s": {options: bounded},
		"WAIT 1":                               {wait: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary := redistest.Start(t, append(with.options, "--repl-diskless-sync-delay", "0")...)
			replica, l := replicaBehindLink(t, primary)
			var ask [4]*throttle.Throttle
			key := redistest.Name(t)
			for i := range ask {
				client := clientOf(t, &redis.Options{Addr: primary.Addr, PoolSize: 1, ContextTimeoutEnabled: true})
				if with.wait {
					client.AddHook(waitForReplica{client})
				}
				ask[i] = unlimited(t, key, client)
			}
			granted, last := grantsWhile(t, ask[:], l, longtest.Of(2*time.Second, 5*time.Second))
			primary.Stop()
			replica.Promote()
			th := unlimited(t, key, replica.Client(t))
			usage, err := inspect.New(th).Usage(t.Context(), throttle.Global, "")
			must(t, err)
			lost := granted - usage.Limits[0].Used
			t.Logf("%s: of %d granted units %d are lost; the last was granted %s after the link had stalled", name,
				granted, max(0, lost), last.Round(10*time.Millisecond))
			switch {
			case with.wait && lost > 0:
				t.Errorf("%d units were lost, though a replica had them", lost)
			case with.options == nil && !with.wait && lost <= 0:
				timely(t, "nothing was lost: this test has tested nothing")
			}
		})
	}
}

func unlimited(t *testing.T, name string, client redis.UniversalClient) *throttle.Throttle {
	t.Helper()
	th, err := throttle.New(name, client, []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{
		throttle.PerHour(1_000_000)}}}, &throttle.Options{Timeout: 5 * time.Second, BreakAfter: -1, Logger: zap.NewNop()})
	must(t, err)
	return th
}

// link passes bytes on until it stalls; bytes that are written then do not arrive. redistest.Proxy cannot do this,
// since it reads requests and replies one by one, and replication has neither.
type link struct {
	listener net.Listener
	target   string
	stalled  atomic.Bool
}

func newLink(t *testing.T, target string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	l := &link{listener: listener, target: target}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", l.target)
			if err != nil {
				_ = near.Close()
				continue
			}
			serving.Go(func() { l.pass(near, far) })
			serving.Go(func() { l.pass(far, near) })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); serving.Wait() })
	return l
}

// pass passes bytes from one connection to the other until one of them ends. What comes while the link is stalled is
// lost.
func (l *link) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if l.stalled.Load() {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// replicaBehindLink starts a replica that follows a primary through a link, and waits until it has the primary's data.
func replicaBehindLink(t *testing.T, primary *redistest.Server) (*redistest.Server, *link) {
	t.Helper()
	replica, l := redistest.Start(t), newLink(t, primary.Addr)
	host, port, err := net.SplitHostPort(l.listener.Addr().String())
	must(t, err)
	must(t, replica.Client(t).ReplicaOf(t.Context(), host, port).Err())
	one := clientOf(t, &redis.Options{Addr: primary.Addr, PoolSize: 1}) // WAIT speaks of what its connection wrote
	redistest.Await(t, "the replica has what was written", func() bool {
		return one.Set(t.Context(), "probe", "", time.Minute).Err() == nil &&
			one.Wait(t.Context(), 1, 100*time.Millisecond).Val() == 1
	})
	return replica, l
}

// grantsWhile asks for a hundred jobs a second of each throttle, stalls the link to the replica when some are granted,
// and goes on for a while. It returns how many were granted, and how long after the stall the last one was.
func grantsWhile(t *testing.T, ask []*throttle.Throttle, l *link, length time.Duration) (
	granted int64, last time.Duration) {
	t.Helper()
	var mu sync.Mutex
	var stalled time.Time
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	for i, th := range ask {
		asking.Go(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for n := 0; ctx.Err() == nil; n++ {
				r, err := th.Reserve(context.Background(), throttle.Job{ID: fmt.Sprint(i, "-", n), Weight: 1})
				mu.Lock()
				if err == nil && r.Outcome == throttle.Granted {
					granted++
					if !stalled.IsZero() {
						last = time.Since(stalled)
					}
				}
				mu.Unlock()
				<-tick.C
			}
		})
	}
	redistest.Await(t, "jobs are granted", func() bool { mu.Lock(); defer mu.Unlock(); return granted > 50 })
	mu.Lock()
	l.stalled.Store(true)
	stalled = time.Now()
	mu.Unlock()
	timer := time.NewTimer(length)
	defer timer.Stop()
	<-timer.C
	cancel()
	asking.Wait()
	return granted, last
}
