package throttle

import (
	"context"
	"crypto/rand"
	"strconv"
	"sync/atomic"
	"time"
)

// Throttle decides for the jobs of one named set of scopes. Most callers want:
//
//   - Reserve, when they can put a job aside until its slot, as a queue can;
//     for asynq the package worker does it;
//   - Wait, when they would block until the job may start;
//   - Peek, Usage and Lines, to look without taking;
//   - Pull and Sweep, when they bring the jobs of a queue of their own.
//
// A Throttle is safe for use by many goroutines. It starts none that outlives
// a call by more than the client's own timeouts, and needs no closing.
type Throttle struct {
	name     string
	keys     keys
	scopes   []Scope
	fair     string // the fair scope's name, empty for one line for all
	shares   shares
	kept     time.Duration       // how long the line's keys live
	keyed    map[string]struct{} // the names of scopes that jobs give a key for
	options  Options
	redis    *caller
	controls *controls
	local    *localShare // nil unless FallbackLocal
	logged   *rateLimitedLog
	swept    atomic.Int64     // when Wait last swept, in Unix nanoseconds
	now      func() time.Time // nil in production: Redis' own clock
}

// Name returns the throttle's name.
func (t *Throttle) Name() string { return t.name }

// Reserve decides for a job: granted, if all its limits have room within
// MaxWait; booked, with the slot at which to ask again; or waiting, in line behind
// others, until Pull books it. A job that is asked for again is found by its ID:
// in line it keeps its place, before its slot the answer is the same slot, at its
// slot it is granted if what really started leaves room, else placed anew.
//
// Reserve blocks for one round trip to Redis, at most Options.Timeout; for a few more
// where limits have just been set at run time. Its errors: *InvalidJobError,
// *NeverFitsError and *BlockedError before anything is written,
// *DeadlineError, *UnavailableError (see Options.Fallback), the context's error,
// ErrState.
func (t *Throttle) Reserve(ctx context.Context, job Job) (Reservation, error) {
	if t.options.Observer != nil {
		return t.reserveObserved(ctx, job)
	}
	return t.reserve(ctx, job)
}

func (t *Throttle) reserve(ctx context.Context, job Job) (Reservation, error) {
	a, err := t.asking(ctx, job)
	if err != nil {
		return Reservation{}, err
	}
	return t.decide(ctx, a)
}

// asking is a job that reserve.lua is to decide for.
type asking struct {
	job     Job
	call    *call
	weighed string // the job's numbers
}

// asking checks a job and makes it ready to be asked for.
func (t *Throttle) asking(ctx context.Context, job Job) (*asking, error) {
	call, err := t.newCall(ctx, job)
	if err != nil {
		return nil, err
	}
	if job.Nonce == "" {
		job.Nonce = rand.Text()
	}
	latest := ""
	if !job.Deadline.IsZero() {
		latest = micros(max(0, t.until(job.Deadline)))
	}
	weighed := integers(job.Weight, job.MaxWait.Microseconds(), t.options.Grace.Microseconds()) + " " + latest + " " +
		integers(t.options.Lookahead.Microseconds(), t.kept.Milliseconds(), flag(job.Plan), int64(len(call.held)))
	return &asking{job: job, call: call, weighed: weighed}, nil
}

// shape are the keys and arguments of reserve.lua.
func (a *asking) shape(t *Throttle) ([]string, []any) {
	c := a.call
	return c.keysFrom(0), c.args(t.nowArgument(), c.names, c.belief, a.job.Nonce, c.ledgers, a.weighed, string(c.lane), a.job.ID)
}

// decide asks Redis, or falls back.
func (t *Throttle) decide(ctx context.Context, a *asking) (Reservation, error) {
	reply, err := t.ask(ctx, reserveScript, a.call, func() ([]string, []any) { return a.shape(t) })
	if err != nil {
		return t.fallBack(ctx, a.job, a.call, err)
	}
	return t.reservation("reserve", a.call, a.job, reply)
}

// Peek says what Reserve would answer if the job came now for the first time,
// and changes nothing. For a job that would wait in line Start is what Forecast says,
// zero for never. It blocks and fails as Reserve does, then as Forecast does, without
// fallback.
func (t *Throttle) Peek(ctx context.Context, job Job) (Reservation, error) {
	call, err := t.newCall(ctx, job)
	if err != nil {
		return Reservation{}, err
	}
	reply, err := t.ask(ctx, peekScript, call, func() ([]string, []any) {
		return call.keysFrom(1), call.args(t.nowArgument(), call.names, call.belief, strconv.FormatInt(job.Weight, 10),
			micros(t.options.Grace), micros(job.MaxWait), micros(t.options.Lookahead), string(call.lane), int64(len(call.held)))
	})
	if err != nil {
		return Reservation{}, withJob(err, job)
	}
	r, err := t.reservation("peek", call, job, reply)
	if err != nil || r.Outcome != Waiting {
		return r, err
	}
	forecast, err := t.Forecast(ctx, []Job{job})
	if err != nil {
		return Reservation{}, withJob(err, job)
	}
	if r.Start = forecast.Starts[0]; r.Hold != nil {
		r.Hold.Until = r.Start
	}
	return r, nil
}

// Cancel gives back what the job holds: a place in line, a booking, or a grant
// whose start is still ahead if job.Nonce is that grant's. It is free at once. It
// returns false if there was nothing to give back. Blocks and fails as Reserve
// does, without fallback.
func (t *Throttle) Cancel(ctx context.Context, job Job) (bool, error) {
	return t.giveBack(ctx, job, 0)
}

// Release turns a grant whose start is still ahead back into a booking of the
// same start, for a caller that has to stop before it: asked for again, the job
// finds its place. The job is Reservation.Job, with its nonce. It returns false
// if the start is past or the grant is not known; the charge then stays. Blocks
// and fails as Reserve does, without fallback.
func (t *Throttle) Release(ctx context.Context, job Job) (bool, error) {
	return t.giveBack(ctx, job, 1)
}

func (t *Throttle) giveBack(ctx context.Context, job Job, keep int64) (bool, error) {
	call, err := t.callFor(ctx, job)
	if err != nil {
		return false, err
	}
	reply, err := t.ask(ctx, cancelScript, call, func() ([]string, []any) {
		return call.keys, call.args(t.nowArgument(), call.names, call.belief, job.Nonce, call.ledgers,
			integers(job.Weight, keep, t.options.Grace.Microseconds(), t.kept.Milliseconds(), t.shares.of(call.lane.fairKey()),
				t.options.SettleWithin.Microseconds()),
			string(call.lane), job.ID)
	})
	if err != nil {
		return false, withJob(err, job)
	}
	if !reply.is("ii") {
		return false, badReply("cancel", reply)
	}
	return reply.integer(0) == 1, nil
}

func flag(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// nowArgument is empty in production: the script then reads Redis' clock.
func (t *Throttle) nowArgument() string {
	if t.now == nil {
		return ""
	}
	return strconv.FormatInt(t.now().UnixMicro(), 10)
}

// until is how far off a deadline is by the local clock, the only one that the
// caller can have meant it by.
func (t *Throttle) until(deadline time.Time) time.Duration {
	if t.now == nil {
		return time.Until(deadline)
	}
	return deadline.Sub(t.now())
}
