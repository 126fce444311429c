package throttle

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// lineTimer is when to pull next, as far as this process knows.
type lineTimer struct {
	driven atomic.Int64 // when a Driver last pulled, in Unix nanoseconds
	puller sync.Mutex   // held by the goroutine that pulls for all callers of Wait in this process
	pulled time.Time    // when a caller of Wait last pulled; guarded by puller

	mu   sync.Mutex
	asOf time.Time // when Redis gave the answer that set due, on Redis' clock
	due  time.Time // when to pull next, by the local clock; zero: no job waits
}

// drivenFor is how long, after a pull of a Driver, Wait leaves the pulling to the Driver.
const drivenFor = 2 * time.Second

func (l *lineTimer) isDriven() bool { return time.Now().UnixNano()-l.driven.Load() < int64(drivenFor) }

// backwards is the smallest step back of Redis' time that means that the clock was set. After a smaller step,
// the answer counts as one that arrived out of order.
const backwards = time.Second

// heard notes when to pull next. It ignores an answer that is older than the last one.
func (l *lineTimer) heard(at wire.Stamp) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, next := wire.Instant(at.Now), wire.Instant(at.Next)
	if back := l.asOf.Sub(now); back > 0 && back < backwards {
		return
	}
	l.asOf, l.due = now, time.Time{}
	if !next.IsZero() {
		l.due = time.Now().Add(next.Sub(now))
	}
}

func (l *lineTimer) next() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.due
}
