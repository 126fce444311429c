package simulation_test

import (
	"net"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
)

// backend is the Redis of one run.
type backend interface {
	// open gives a world an empty Redis, within the world's bubble.
	open(w *world) *exchange
	// age deletes keys that have expired by Redis' clock, if the backend needs that. The caller
	// holds the exchange's lock.
	age(w *world)
	// pass lets keys expire as if a time had passed; it returns false if the backend cannot do so.
	pass(d time.Duration) bool
	// close ends the Redis, or the connection to it, that open has opened.
	close(w *world)
}

// memory is a miniredis. Its keys expire in virtual time, many at once: looking at all keys with
// each command would cost a quarter of a run.
type memory struct{ redis *miniredis.Miniredis }

func (m *memory) open(w *world) *exchange {
	m.redis = miniredis.NewMiniRedis()
	conn, err := m.redis.Dial()
	if err != nil {
		w.t.Fatal(err)
	}
	return newExchange(conn)
}

func (m *memory) age(w *world) {
	now := w.now()
	if passed := now.Sub(w.latest); passed > 0 { // if the clock has stepped back, keys live longer
		m.redis.FastForward(passed)
		w.latest = now
	}
}

func (m *memory) pass(d time.Duration) bool {
	m.redis.FastForward(d)
	return true
}

func (m *memory) close(w *world) {
	_ = w.redis.conn.Close()
	m.redis.Close()
}

// outside is a redis-server of the simulation's own. Its keys expire in real time, and a
// run takes less real time than any key lives.
type outside struct{ server *redistest.Server }

func (r *outside) open(w *world) *exchange {
	conn, err := new(net.Dialer).DialContext(w.t.Context(), "tcp", r.server.Addr)
	if err != nil {
		w.t.Fatal(err)
	}
	x := newExchange(conn)
	if reply, err := x.do(encode("FLUSHALL")); err != nil || reply[0] != '+' {
		w.t.Fatalf("FLUSHALL: %q, %v", reply, err)
	}
	return x
}

func (*outside) age(*world) {}

func (*outside) pass(time.Duration) bool { return false }

func (*outside) close(w *world) { _ = w.redis.conn.Close() }

// servers are the redis-servers of the simulation, one for each run that is under way.
type servers chan *redistest.Server

func startServers(t *testing.T, n int) servers {
	t.Helper()
	pool := make(servers, n)
	for range n {
		pool <- redistest.Start(t)
	}
	return pool
}
