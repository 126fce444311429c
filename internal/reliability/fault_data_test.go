package reliability_test

import (
	"context"
	"maps"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/internal/reliability"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// ownRedis names the server that the fault strikes in most cases: asynq has another Redis, which no fault strikes.
const ownRedis = "the throttle's own Redis"

// TestRestartWithEmptyData_F05 kills Redis and starts it again, empty: its data and scripts are gone.
func TestRestartWithEmptyData_F05(t *testing.T) {
	t.Parallel()
	longtest.Only(t, ofItsClass)
	d, server := apart(t)
	f := d.lose(server.Restart)
	d.finish(f, reliability.Row{Cases: "F5", Done: "kill -9, restarted with empty data", Servers: ownRedis},
		allowance{loses: true})
}

// TestFlushAll_F20 deletes all keys.
func TestFlushAll_F20(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "TestDataLost_F20 of package worker in virtual time; here tasks wait for a minute")
	d, server := apart(t)
	client := server.Client(t)
	f := d.lose(func() { must(t, client.FlushAll(t.Context()).Err()) })
	d.finish(f, reliability.Row{Cases: "F20", Done: "FLUSHALL", Servers: ownRedis}, allowance{loses: true})
}

// TestScriptsFlushed_F06 makes Redis forget the scripts, again and again.
func TestScriptsFlushed_F06(t *testing.T) {
	t.Parallel()
	longtest.Only(t, ofItsClass)
	d, server := apart(t)
	client := server.Client(t)
	const times = 20
	f := d.strike(func() {
		for range times {
			must(t, client.ScriptFlush(t.Context()).Err())
			d.last(50 * time.Millisecond)
		}
	}, 0, nil)
	d.finish(f, reliability.Row{Cases: "F6", Done: "SCRIPT FLUSH, 20 times", Servers: ownRedis}, allowance{})
	if n := d.putBackFor("other"); n != 0 {
		t.Errorf("%d tasks were put back since a script was not known, want none", n)
	}
}

// TestStaleReplica_F09 promotes a replica that has missed the last charges: the replica is cut
// off, the primary goes on for a while, and then all clients are sent to the replica.
func TestStaleReplica_F09(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	replica := redistest.StartReplica(t, primary)
	var serving atomic.Value // the address that clients are sent to
	serving.Store(primary.Addr)
	decide := func() redis.UniversalClient {
		client := redis.NewClient(&redis.Options{Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			addr, _ := serving.Load().(string)
			return new(net.Dialer).DialContext(ctx, network, addr)
		}})
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	d := apartBy(t, replica, counted, decide)
	d.amid()
	replica.AwaitSync(primary)
	replica.Promote()
	missed := d.begun()
	d.until("charges are missed", time.Minute, func() bool { return d.begun() > missed+int(units)/2 })
	var cut time.Time // when the primary made its last decision
	lost := 0
	direct := primary.Client(t)
	f := d.lose(func() {
		must(t, direct.Do(t.Context(), "CLIENT", "PAUSE", time.Minute.Milliseconds(), "WRITE").Err())
		cut = time.Now()
		lost = -d.charges(replica.Client(t), 0)
		serving.Store(replica.Addr)
		primary.Stop()
	})
	d.last(2 * worker.DefaultMaxWait) // until all jobs that the primary granted have begun
	for _, s := range d.all() {
		if s.Decided.Before(cut) {
			lost++
		}
	}
	d.finish(f, reliability.Row{Cases: "F9", Done: "a replica that missed half a window is promoted",
		Servers: ownRedis + ", with a replica"},
		allowance{loses: true, lost: lost})
}

// keysOf returns the keys on one server that match.
func keysOf(t *testing.T, client *redis.Client, match string) map[string]string {
	t.Helper()
	keys := make(map[string]string)
	all := client.Scan(t.Context(), 0, match, 1000).Iterator()
	for all.Next(t.Context()) {
		keys[all.Val()] = ""
	}
	must(t, all.Err())
	return keys
}

// TestOtherVersionsSideBySide_F22 adds keys of an older and of a newer state version of the same throttle: its
// processes leave these keys unchanged.
func TestOtherVersionsSideBySide_F22(t *testing.T) {
	t.Parallel()
	longtest.Only(t, ofItsClass)
	d, server := apart(t)
	client := server.Client(t)
	dump := func() map[string]string {
		all := make(map[string]string)
		for _, version := range []string{"3", "5"} {
			for key := range keysOf(t, client, "thr:{"+d.name+"}:"+version+":*") {
				value, err := client.Dump(t.Context(), key).Result()
				must(t, err)
				all[key] = value
			}
		}
		return all
	}
	var before map[string]string
	f := d.strike(func() {
		for key := range keysOf(t, client, "thr:{"+d.name+"}:4:*") {
			for _, version := range []string{"3", "5"} {
				other := "thr:{" + d.name + "}:" + version + ":" + key[len("thr:{"+d.name+"}:4:"):]
				must(t, client.Copy(t.Context(), key, other, 0, true).Err())
				must(t, client.Persist(t.Context(), other).Err())
			}
		}
		before = dump()
	}, 0, nil)
	d.finish(f, reliability.Row{Cases: "F22", Done: "keys of versions 3 and 5 under the same name",
		Servers: ownRedis}, allowance{})
	if after := dump(); len(before) == 0 || !maps.Equal(before, after) {
		t.Errorf("of %d keys of other versions, %d are left, or their values have changed", len(before), len(after))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
