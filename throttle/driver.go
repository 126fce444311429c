package throttle

import (
	"context"
	"time"
)

// How many jobs one pull books, and looks at, at most. It takes a few milliseconds of Redis' time.
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
	// Booked are the jobs that this pull has booked, and jobs that were booked before whose slots are
	// near: planned ones (Job.Plan), and heavy ones that were booked beyond the Lookahead. The slot of a
	// job is its Start: call Reserve for the job then. Only a job's ID, Keys and Priority are known; of a
	// very long key, only the hash is known, which begins with ~.
	Booked []Reservation
	// Overdue are booked jobs that did not come to their slot within Options.Grace: the
	// process that should have delivered them may have died. Their units no longer count. A job whose
	// slot was taken over by a later one of its lane is reported at the same time.
	// Waiting jobs are overdue too if they weigh more than a limit that was set after they came:
	// Reserve for such a job says which limit. An overdue job is reported again, ever less often, for
	// ten minutes, until it comes or leaves.
	Overdue []Reservation
	// Next is when to pull again, on Redis' clock; zero if nothing waits.
	Next time.Time
	// Full is true if the pull has done as much as one pull may: more may be due.
	Full bool
	// Held reports, for each ended job that Pull was given, whether the job occupied its places
	// until now; Done reports the same.
	Held []bool
}

// Pull books the waiting jobs whose turn has come and that have room within Options.Lookahead,
// and returns them with the jobs whose booked slots are near, at most 50. Call it at the time
// of Due, at most every 50 to 100 ms, or sooner after a full pull.
//
// Pull first gives back the places of the granted jobs that have ended, as Done does. The jobs that
// get these places next are among the booked jobs.
//
// Pull blocks for one round trip, which gives back the places of up to 64 jobs, and for one more for each further 64.
// It fails as Done does; the ended jobs may be passed again then. If the answer of a pull is lost, a later pull
// returns the booked jobs as overdue.
func (d Driver) Pull(ctx context.Context, ended ...Reservation) (Pulled, error) {
	if ctx == nil {
		return Pulled{}, errNoContext
	}
	d.throttle.line.driven.Store(time.Now().UnixNano())
	return d.throttle.pull(ctx, true, ended...)
}

func (t *Throttle) pull(ctx context.Context, delivers bool, ended ...Reservation) (Pulled, error) {
	g, err := t.grantsOf(ctx, false, ended)
	for err == nil && len(g.asked) > g.atOnce {
		err = t.send(ctx, false, g)
	}
	if err != nil {
		return Pulled{}, err
	}
	some := g.next()
	reply, err := t.redis.run(ctx, pullScript, t.pullArguments(mostBookings, mostLooks, delivers, some))
	if err != nil {
		return Pulled{}, err
	}
	pulled, err := t.pulled(ctx, reply, len(some))
	if err != nil {
		return Pulled{}, err
	}
	t.batch.tidy()
	t.means.ended(some, pulled.Now)
	g.answered(pulled.Held)
	pulled.Held, pulled.Full = g.occupied, pulled.Full || len(pulled.Booked) >= mostBookings
	return pulled, nil
}

// Due returns when to pull next, by the local clock, according to the last answer to any call of this
// throttle. It is zero if no job waited then. Other processes may have changed that since, so pull
// about once a second anyway.
func (d Driver) Due() time.Time { return d.throttle.line.next() }

// Release turns a grant whose start is still ahead back into a booking, for a caller that has to stop before the
// start. The slot of the booking is a microsecond after the start of the grant; the job has this slot when it asks
// again. Release returns false if the start is past or the grant was settled; the charge then stays. Release blocks
// for one round trip and fails as Reserve does, without fallback.
func (d Driver) Release(ctx context.Context, granted Reservation) (bool, error) {
	return d.throttle.settle(ctx, granted, func(*charge) int64 { return 0 }, true)
}

// Started reports that a granted job begins now; answered is when its grant arrived, by the local clock. The
// Observer receives how late the job is; Check reports jobs that are later than a margin. Started does
// not block.
func (d Driver) Started(granted Reservation, answered time.Time) {
	d.throttle.started(granted, answered)
}

// End publishes that this process ends, so that its configuration is no longer compared with that of
// others. A throttle that is used on publishes its configuration again after a minute at least. End
// blocks for two round trips, or four if the configuration is just being published, each for
// Options.Timeout at most. It fails as Reserve does, without fallback; the process then counts as alive
// for up to 25 minutes.
func (d Driver) End(ctx context.Context) error {
	if ctx == nil {
		return errNoContext
	}
	return d.throttle.end(ctx)
}

// started reports to the Observer that a granted job begins now, whose grant arrived at the time answered. It also
// adds the job's delay to the delays that this process publishes.
func (t *Throttle) started(granted Reservation, answered time.Time) {
	delay := max(0, time.Since(answered)-granted.Delay())
	if t.delays != nil && t.delays.note(t.scopes, granted, delay) {
		t.sign.hasten(time.Now())
	}
	if t.options.Observer != nil {
		t.options.Observer.Started(Lateness{Throttle: t.name, Reservation: granted, Late: delay})
	}
}
