package throttle

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// The most that one pull does: a few milliseconds of Redis' time.
const (
	mostBookings = 50
	mostLooks    = 200
)

// Driver is for a program that delivers the jobs of its own queue; for asynq the package worker
// does that. No waiting job is ever booked unless a program pulls. A Driver is safe for use by
// many goroutines and has no state of its own.
type Driver struct{ throttle *Throttle }

// Driver returns the throttle's driver. While it pulls at least every two seconds, the
// throttle's Wait leaves the pulling to it.
func (t *Throttle) Driver() Driver { return Driver{t} }

// Pulled is what a pull has found.
type Pulled struct {
	// Now is the instant of the answer, on Redis' clock.
	Now time.Time
	// Booked are jobs that have just been given their slot, which is their Start, or were planned
	// for it (Job.Plan). Call Reserve for each at its slot. Only the ID and the Keys of a job
	// are known; of a very long key only the hash, which begins with ~.
	Booked []Reservation
	// Overdue are booked jobs that did not come to their slot within Options.Grace: the
	// process that should have delivered them may have died. Their units no longer count.
	// Overdue are also waiting jobs that weigh more than a limit that was set since: Reserve
	// for such a job says which limit. Both are reported again, ever less often, for ten
	// minutes, until they come or leave.
	Overdue []Reservation
	// Next is when to pull again, on Redis' clock; zero if nothing waits.
	Next time.Time
	// Full is true if the pull has done as much as one pull may: more may be due.
	Full bool
	// Held says of each job that has ended whether it occupied its places until now, as Done
	// does.
	Held []bool
}

// Pull books the waiting jobs whose turn has come and that have room within Options.Lookahead,
// and returns them with the jobs that were planned for about now, at most 50. Call it at the time
// of Due, at most every 50 to 100 ms, or sooner after a full pull.
//
// The places of granted jobs that have ended are given back first, as by Done, so that the jobs
// that get them next are among the booked.
//
// It blocks for one round trip, and for one more for each 64 jobs that have ended. It fails as
// Done does; the ended jobs may be passed again then. If its answer is lost, a later pull
// returns the booked jobs as overdue.
func (d Driver) Pull(ctx context.Context, ended ...Reservation) (Pulled, error) {
	if ctx == nil {
		return Pulled{}, errNoContext
	}
	d.throttle.line.driven.Store(time.Now().UnixNano())
	return d.throttle.pull(ctx, true, ended...)
}

func (t *Throttle) pull(ctx context.Context, brings bool, ended ...Reservation) (Pulled, error) {
	g, err := t.grantsOf(ctx, false, ended)
	for err == nil && len(g.asked) > g.atOnce {
		err = t.send(ctx, false, g)
	}
	if err != nil {
		return Pulled{}, err
	}
	some := g.next()
	reply, err := t.redis.run(ctx, pullScript, t.pullArguments(mostBookings, mostLooks, brings, some))
	if err != nil {
		return Pulled{}, err
	}
	pulled, err := t.pulled(ctx, reply, len(some))
	if err != nil {
		return Pulled{}, err
	}
	t.means.ended(some, pulled.Now)
	g.answered(pulled.Held)
	pulled.Held, pulled.Full = g.held, pulled.Full || len(pulled.Booked) >= mostBookings
	return pulled, nil
}

// Due returns when to pull next, by the local clock, according to the last answer to any call of this
// throttle. It is zero if no job waited then. Other processes may have changed that since, so pull
// about once a second anyway.
func (d Driver) Due() time.Time { return d.throttle.line.next() }

// Release turns a grant whose start is still ahead back into a booking of the same start, for a
// caller that has to stop before that start: when the job asks again, it has the same slot. Release returns
// false if the start is past or the grant was settled; the charge then stays. It blocks for one
// round trip and fails as Reserve does, without fallback.
func (d Driver) Release(ctx context.Context, granted Reservation) (bool, error) {
	return d.throttle.settle(ctx, granted, func(*charge) int64 { return 0 }, true)
}

// lineTimer is when to pull next, as far as this process knows.
type lineTimer struct {
	driven atomic.Int64 // when a Driver last pulled, in Unix nanoseconds
	puller sync.Mutex   // held by the goroutine that pulls for all that wait in this process
	pulled time.Time    // when this process last pulled; guarded by puller

	mu   sync.Mutex
	asOf time.Time // on Redis' clock
	due  time.Time // by the local clock; zero: nothing waits
}

// drivenFor is how long after a Driver's pull Wait leaves the pulling to it.
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
