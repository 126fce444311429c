package throttle

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// What one pull does at most: a few milliseconds of Redis' time.
const (
	mostBookings = 50
	mostLooks    = 200
)

// Driver is what a program needs that brings the jobs of a queue of its own; for asynq
// the package worker does it. Without anybody who pulls, no job in line is ever booked.
// It is safe for use by many goroutines, and has no state of its own.
type Driver struct{ throttle *Throttle }

// Driver returns the throttle's driver. As long as it pulls, once in two seconds at
// least, the throttle's Wait leaves the pulling to it.
func (t *Throttle) Driver() Driver { return Driver{t} }

// Pulled is what a pull has found.
type Pulled struct {
	// Now is the instant of the answer, on Redis' clock.
	Now time.Time
	// Booked are jobs that have just got their slot, which is their Start, or were planned
	// for it (Job.Plan): each is to be asked for by Reserve then. Of the jobs only the ID and the Keys are known; of a
	// very long key only the hash, which begins with ~.
	Booked []Reservation
	// Overdue are booked jobs that did not come to their slot within Options.Grace:
	// whoever was to bring them may have died. Their units count no more. And jobs in
	// line that weigh more than a limit allows that was set since: they are to ask, to
	// hear that. Both are told of again, ever less often, for ten minutes, until they come
	// or leave.
	Overdue []Reservation
	// Next is when to pull again, on Redis' clock; zero if nothing waits.
	Next time.Time
	// Full tells that the pull has done as much as one pull does: more may be due.
	Full bool
	// Held tells of each job that has ended whether it held its places until now, as Done
	// does.
	Held []bool
}

// Pull books the jobs in line whose turn has come and which have a place within
// Options.Lookahead, and tells of those that were planned for later, 50 at most. Call it when
// Due says so, at most every 50 to 100 ms, or sooner after a full one.
//
// What granted jobs hold that have ended is given back first, as by Done, so that those who
// have their places next are among the booked.
//
// It blocks for one round trip, and for more as Done does for jobs that have ended beyond the
// first, and fails as Done does; the jobs that have ended may be told of again then. Where its
// answer is lost, its jobs are found as overdue by a later one.
func (d Driver) Pull(ctx context.Context, ended ...Reservation) (Pulled, error) {
	if ctx == nil {
		return Pulled{}, &InvalidJobError{Field: "ctx", Value: nil, Reason: "is nil"}
	}
	d.throttle.line.driven.Store(time.Now().UnixNano())
	return d.throttle.pull(ctx, true, ended...)
}

func (t *Throttle) pull(ctx context.Context, brings bool, ended ...Reservation) (Pulled, error) {
	g, err := t.grantsOf(ctx, false, ended)
	for err == nil && len(g.asked) > g.atOnce {
		err = t.tell(ctx, false, g)
	}
	if err != nil {
		return Pulled{}, err
	}
	some := g.next()
	reply, err := t.redis.run(ctx, pullScript, t.pullArguments(mostBookings, mostLooks, brings, some))
	if err != nil {
		return Pulled{}, err
	}
	pulled, err := t.pulled(reply, len(some))
	if err != nil {
		return Pulled{}, err
	}
	t.means.ended(some, pulled.Now)
	g.answered(pulled.Held)
	pulled.Held, pulled.Full = g.held, pulled.Full || len(pulled.Booked) >= mostBookings
	return pulled, nil
}

// Due says when to pull next, by the local clock: what the last answer of this throttle
// said, whatever it was for. It is zero if nothing waited then. Others may have changed
// that since, so pull about once a second anyway.
func (d Driver) Due() time.Time { return d.throttle.line.next() }

// Leave gives back the places in line and the bookings of jobs that will not come: see
// Inspector.Leave.
func (d Driver) Leave(ctx context.Context, ids []string) ([]bool, error) {
	return d.throttle.Inspector().Leave(ctx, ids)
}

// Jobs returns a page of the jobs that stand in a lane: see Inspector.Jobs.
func (d Driver) Jobs(ctx context.Context, lane, from string) (jobs []Reservation, next string, err error) {
	return d.throttle.Inspector().Jobs(ctx, lane, from)
}

// Release turns a grant whose start is still ahead back into a booking of the
// same start, for a caller that has to stop before it: asked for again, the job
// finds its place. It returns false if the start is past or the grant was settled; the
// charge then stays. It blocks for one round trip and fails as Reserve does, without
// fallback.
func (d Driver) Release(ctx context.Context, granted Reservation) (bool, error) {
	return d.throttle.settle(ctx, granted, func(*charge) int64 { return 0 }, true)
}

// HandsOver tells whether the configuration has a running limit: then it is unforeseen when a
// place is given back, and a booked job is to be brought as soon as can be.
func (d Driver) HandsOver() bool {
	return slices.ContainsFunc(d.throttle.scopes, func(s Scope) bool {
		return slices.ContainsFunc(s.Limits, func(l Limit) bool { return l.Running })
	})
}

// LaneOf names the lane that a job stands in or was booked from, for maps: jobs with the
// same scope keys have the same. It is empty if the throttle has not said which.
func (d Driver) LaneOf(r Reservation) string { return r.lane }

// lineTimer is what this process knows of when the line is to be pulled.
type lineTimer struct {
	driven atomic.Int64 // when a Driver last pulled, in Unix nanoseconds
	puller sync.Mutex   // of the one who pulls for all that wait in this process
	pulled time.Time    // the last time; for who has the puller

	mu   sync.Mutex
	asOf time.Time // on Redis' clock
	due  time.Time // by the local clock; zero: nothing waits
}

// drivenFor is how long after a Driver's pull the next is waited for.
const drivenFor = 2 * time.Second

func (l *lineTimer) isDriven() bool { return time.Now().UnixNano()-l.driven.Load() < int64(drivenFor) }

// backwards is from what step back on an answer is no late one: Redis' clock was set.
const backwards = time.Second

// heard notes what an answer says; an older one than the last says nothing.
func (l *lineTimer) heard(at wire.Stamp) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, next := instant(at.Now), instant(at.Next)
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
