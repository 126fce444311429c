package throttle

import (
	"context"
	"maps"
	"slices"
	"time"
)

// Throttle decides for the jobs of one named set of scopes. Most callers want:
//
//   - Reserve, when they can put a job off until its slot, as a queue can;
//     for asynq the package worker does it;
//   - Wait, when they would block until the job may start;
//   - Peek, to ask without being charged;
//   - the package inspect, to look at limits and at what waits, and to change limits at run time;
//   - Driver, when they deliver the jobs of a queue of their own.
//
// A Throttle is safe for use by many goroutines and needs no closing. Each goroutine that it starts ends
// by itself, when its calls to Redis have ended.
type Throttle struct {
	*setup
	batch    *batcher
	advances *advances   // nil without Options.Advance
	local    *localShare // nil unless FallbackLocal
	sign     signOfLife  // when the configuration is published next
	noting   noting      // when the backlog is noted next
}

// newThrottle builds a throttle of checked parts.
func newThrottle(s *setup) *Throttle {
	t := &Throttle{setup: s, advances: newAdvances(s.options), sign: signOfLife{turn: make(chan struct{}, 1)}}
	t.batch = newBatcher(t)
	t.redis.answered = func(at time.Time) {
		t.publishIfDue(at)
		t.noteIfDue(at)
	}
	if s.options.Fallback == FallbackLocal {
		t.local = newLocalShare(s.options.LocalShare)
	}
	return t
}

// Reserve decides for a job: granted, if all its limits have room within MaxWait; booked, with
// the slot at which to ask again; or waiting, in line behind others, until a pull books it. A
// job that asks again is found by its ID. In line, the job keeps its position. Before its slot, it gets
// the same slot again. At its slot, it is granted if the jobs that really started leave room;
// otherwise it gets another slot or the front of its lane.
//
// Reserve blocks for one round trip to Redis, at most Options.Timeout, or not at all for a job that starts out of an
// advance (Options.Advance). Jobs that come while a call is under way are sent together in the next call.
//
// Reserve returns one of these errors:
//
//   - *InvalidJobError, *NeverFitsError, *BlockedError, *DeadlineError and, for a Bounded job, *LineFullError:
//     nothing was written;
//   - *UnavailableError (see Options.Fallback), also if the context ends while the job is decided: ask again with the
//     error's Nonce;
//   - the context's own error, if the context had ended before;
//   - ErrState.
func (t *Throttle) Reserve(ctx context.Context, job Job) (Reservation, error) {
	var answer [1]Answer
	t.reserve(ctx, []Job{job}, answer[:])
	return answer[0].Reservation, answer[0].Err
}

// Answer is the answer of ReserveAll for one job.
type Answer struct {
	Reservation Reservation
	Err         error // of Reserve

	advance broughtAdvance
}

// ReserveAll is Reserve for many jobs, in their order, with few round trips: it blocks for one round trip
// per 64 jobs. The answers have the order of the jobs; each has a reservation or an error of
// its own. If the context ends, jobs that may have been decided get an *UnavailableError with the
// nonce; the remaining jobs get the context's error.
func (t *Throttle) ReserveAll(ctx context.Context, jobs []Job) []Answer {
	answers := make([]Answer, len(jobs))
	first := 0
	for some := range slices.Chunk(jobs, mostAtOnce) {
		t.reserve(ctx, some, answers[first:first+len(some)])
		first += len(some)
	}
	return answers
}

// reserve decides for jobs in one round trip.
func (t *Throttle) reserve(ctx context.Context, jobs []Job, answers []Answer) {
	began := time.Now()
	orders, indexes := make([]*order, 0, len(jobs)), make([]int, 0, len(jobs))
	for i, job := range jobs {
		o, err := t.order(ctx, job)
		if err == nil {
			err = notEnded(ctx)
		}
		if err != nil {
			answers[i].Err = err
			continue
		}
		if r, started := t.advances.start(o); started {
			answers[i].Reservation = r
			continue
		}
		if job.Nonce == "" {
			o.job.Nonce = t.batch.nonce()
		}
		// the batcher may keep a grant, and so its job's maps, after the caller has stopped waiting
		o.job.Keys, o.job.Costs = maps.Clone(job.Keys), maps.Clone(job.Costs)
		orders, indexes = append(orders, o), append(indexes, i)
	}
	if len(orders) > 0 {
		for i, answer := range t.batch.ask(ctx, orders...) {
			t.advances.heard(orders[i], answer, began)
			if answer.Err != nil {
				if answer.Reservation, answer.Err = t.fallBack(ctx, orders[i], answer.Err); answer.Err == nil {
					t.batch.ranUnchecked(orders[i])
				}
			}
			if answer.Err == nil {
				answer.Reservation.Job.Nonce = jobs[indexes[i]].Nonce // a drawn nonce serves only to find a lost answer
			}
			answers[indexes[i]] = answer
		}
	}
	if t.options.Observer != nil {
		for i := range answers {
			t.observeDecision(jobs[i], answers[i], time.Since(began))
		}
	}
}

// Peek returns what Reserve would answer if the job came now for the first time. It changes
// nothing. It blocks and fails as Reserve does, without fallback.
func (t *setup) Peek(ctx context.Context, job Job) (Reservation, error) {
	o, err := t.order(ctx, job)
	if err != nil {
		return Reservation{}, err
	}
	reply, err := t.redis.run(ctx, reserveScript, t.reserveArguments(peeking, o))
	if err != nil {
		return Reservation{}, withJob(err, o.job)
	}
	answers, err := t.decisions(reply, []*order{o})
	if err != nil {
		return Reservation{}, err
	}
	return answers[0].Reservation, answers[0].Err
}

// Cancel takes a job out of line, or gives its booking back; the room is free at once. It
// returns false if the job neither waits nor is booked. A grant is given back by Refund, with
// one exception: Cancel gives back a grant whose answer was lost, if job.Nonce is its nonce and
// this Throttle has learned of the grant since. The job needs no more than its ID.
//
// It blocks for one round trip, or for two to give back a grant under a running limit, and fails as Reserve does,
// without fallback.
func (t *Throttle) Cancel(ctx context.Context, job Job) (bool, error) {
	if kept, is := t.batch.takeKept(job); is {
		done, err := t.takeBack(ctx, kept.reservation)
		if err != nil {
			t.batch.keep(kept) // to be cancelled again
		}
		return done, err
	}
	left, err := t.leave(ctx, job.ID)
	if err != nil {
		return false, withJob(err, job)
	}
	return left[0], nil
}
