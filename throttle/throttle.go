package throttle

import (
	"context"
	"crypto/rand"
	"strconv"
	"time"
)

// Throttle decides for the jobs of one named set of scopes. Most callers want:
//
//   - Reserve, when they can put a job aside until its slot, as a queue can;
//     for asynq the package worker does it;
//   - Wait, when they would block until the job may start;
//   - Peek and Usage, to look without taking.
//
// A Throttle is safe for use by many goroutines. It starts none that outlives
// a call by more than the client's own timeouts, and needs no closing.
type Throttle struct {
	name    string
	keys    keys
	scopes  []Scope
	keyed   map[string]struct{} // the names of scopes that jobs give a key for
	options Options
	redis   *caller
	local   *localShare      // nil unless FallbackLocal
	logged  *rateLimitedLog  // fallbacks
	now     func() time.Time // nil in production: Redis' own clock
}

// Name returns the throttle's name.
func (t *Throttle) Name() string { return t.name }

// Reserve decides for a job: granted, if all its limits have room within
// MaxWait, or booked, with the slot at which to ask again. A job that is asked
// for again is found by its ID: before its slot the answer is the same slot, at
// its slot it is granted if what really started leaves room, else booked anew.
//
// Reserve blocks for one round trip to Redis, at most Options.Timeout. Its
// errors: *InvalidJobError and *NeverFitsError before anything is written,
// *DeadlineError, *UnavailableError (see Options.Fallback), the context's error,
// ErrState.
func (t *Throttle) Reserve(ctx context.Context, job Job) (Reservation, error) {
	call, err := t.newCall(ctx, job)
	if err != nil {
		return Reservation{}, err
	}
	if job.Nonce == "" {
		job.Nonce = rand.Text()
	}
	latest := ""
	if !job.Deadline.IsZero() {
		latest = micros(max(0, t.until(job.Deadline)))
	}
	reply, err := t.redis.run(ctx, reserveScript, call.keys, call.args(t.nowArgument(), job.Nonce, call.ledgers,
		integers(job.Weight, job.MaxWait.Microseconds(), t.options.Grace.Microseconds())+" "+latest))
	if err != nil {
		return t.fallBack(ctx, job, call, err)
	}
	return call.reservation(job, reply)
}

// Peek says what Reserve would answer if the job came now for the first time,
// and changes nothing. It blocks and fails as Reserve does, without fallback.
func (t *Throttle) Peek(ctx context.Context, job Job) (Reservation, error) {
	call, err := t.newCall(ctx, job)
	if err != nil {
		return Reservation{}, err
	}
	reply, err := t.redis.run(ctx, peekScript, call.keys[1:], call.args(
		t.nowArgument(), strconv.FormatInt(job.Weight, 10), micros(t.options.Grace)))
	if err != nil {
		return Reservation{}, withJob(err, job)
	}
	if len(reply) != 5 {
		return Reservation{}, badReply("peek", reply)
	}
	outcome := int64(Granted)
	if reply[1] > reply[0]+job.MaxWait.Microseconds() {
		outcome = int64(Booked)
	}
	return call.reservation(job, []int64{outcome, reply[0], reply[1], reply[2], reply[3], reply[4], 0})
}

// Cancel gives the job's reservation back: a booking, or a grant whose start is
// still ahead if job.Nonce is that grant's. What it held is free at once. It
// returns false if there was nothing to give back. Blocks and fails as Reserve
// does, without fallback.
func (t *Throttle) Cancel(ctx context.Context, job Job) (bool, error) {
	return t.giveBack(ctx, job, "0")
}

// Release turns a grant whose start is still ahead back into a booking of the
// same start, for a caller that has to stop before it: asked for again, the job
// finds its place. The job is Reservation.Job, with its nonce. It returns false
// if the start is past or the grant is not known; the charge then stays. Blocks
// and fails as Reserve does, without fallback.
func (t *Throttle) Release(ctx context.Context, job Job) (bool, error) {
	return t.giveBack(ctx, job, "1")
}

func (t *Throttle) giveBack(ctx context.Context, job Job, keep string) (bool, error) {
	call, err := t.newCall(ctx, job)
	if err != nil {
		return false, err
	}
	reply, err := t.redis.run(ctx, cancelScript, call.keys, call.args(
		t.nowArgument(), job.Nonce, keep, micros(t.options.Grace), call.ledgers))
	if err != nil {
		return false, withJob(err, job)
	}
	if len(reply) != 3 {
		return false, badReply("cancel", reply)
	}
	return reply[0] == 1, nil
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
