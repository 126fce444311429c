package simulation_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// wire is the connection of one process to Redis, with the faults that can strike it.
type wire struct {
	world   *world
	client  *redis.Client
	advance time.Duration // throttle.Options.Advance of its process
	lag     time.Duration // how long a command takes to Redis, and a reply back

	mu     sync.Mutex
	stands time.Time      // until when its process is stopped: it neither sends nor reads
	dead   bool           // the process has died: nothing that it sends arrives
	broken bool           // commands fail
	losses map[string]int // how many more replies will be lost, by script
	lost   int
}

func newWire(w *world, of process) *wire {
	wire := &wire{world: w, losses: make(map[string]int), advance: of.advance, lag: of.lag}
	wire.client = redis.NewClient(&redis.Options{
		Addr:                  "127.0.0.1:6379", // an address, since a name would be looked up outside of the bubble
		Dialer:                func(context.Context, string, string) (net.Conn, error) { return newBridge(wire), nil },
		DisableIdentity:       true,
		Protocol:              2,
		ContextTimeoutEnabled: true, // so that a throttle uses this very client
		PoolSize:              64,
	})
	return wire
}

// pass reports whether commands get through. The commands of a dead process are never answered;
// a broken wire takes a while to fail, since asynq asks again at once.
func (w *wire) pass() (bool, error) {
	w.mu.Lock()
	dead, broken := w.dead, w.broken
	w.mu.Unlock()
	if broken && !dead {
		time.Sleep(100 * time.Millisecond)
		return false, errCut
	}
	return !dead, nil
}

// stop stops the process for a while, as a signal does; its clock goes on.
func (w *wire) stop(lasts time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stands = time.Now().Add(lasts)
}

// stand waits while the process is stopped.
func (w *wire) stand() {
	w.mu.Lock()
	until := w.stands
	w.mu.Unlock()
	time.Sleep(time.Until(until))
}

func (w *wire) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = true
}

func (w *wire) isDead() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead
}

func (w *wire) cut(broken bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = broken
}

// lose loses the next replies to a script, which Redis executes all the same.
func (w *wire) lose(verb string, replies int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.losses[verb] += replies
}

// loses reports whether the reply to an executed command is lost.
func (w *wire) loses(args []string, reply []byte) bool {
	verb := ""
	switch {
	case ofThrottle(args):
		verb = verbs[args[1]]
	case len(args) > 3 && args[3] == "asynq:{default}:pending" && args[2] == "4" && reply[1] != '-':
		verb = dequeue
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.losses[verb] == 0 {
		return false
	}
	w.losses[verb]--
	w.lost++
	return true
}

// ofThrottle reports whether a command is a script of a throttle.
func ofThrottle(args []string) bool {
	return len(args) > 4 && strings.EqualFold(args[0], "evalsha") && strings.HasPrefix(args[3], "thr:")
}
