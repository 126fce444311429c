package throttle

import (
	"context"
	"time"

	"github.com/sony/gobreaker/v2"
)

// mostAtOnce is how many jobs ReserveAll sends in one round trip: few enough that
// others do not wait long for Redis meanwhile.
const mostAtOnce = 100

// Answer is what ReserveAll says of one job.
type Answer struct {
	Reservation Reservation
	Err         error // of Reserve
}

// ReserveAll is Reserve for many jobs, in their order, with few round trips: it
// blocks for one per hundred jobs. Each job has an answer or an error of its own, at
// its place. Where the context ends, the rest has its error: those that may have been
// decided an *UnavailableError with the nonce. A job whose limits have been set or
// configured anew is asked for again behind the others of its hundred.
func (t *Throttle) ReserveAll(ctx context.Context, jobs []Job) []Answer {
	answers := make([]Answer, len(jobs))
	for first := 0; first < len(jobs); first += mostAtOnce {
		last := min(first+mostAtOnce, len(jobs))
		t.reserveSome(ctx, jobs[first:last], answers[first:last])
	}
	return answers
}

func (t *Throttle) reserveSome(ctx context.Context, jobs []Job, answers []Answer) {
	began := time.Now()
	var all []*asking
	var places []int
	for i, job := range jobs {
		a, err := t.asking(ctx, job)
		if err != nil {
			answers[i].Err = err
			continue
		}
		all, places = append(all, a), append(places, i)
	}
	replies, lost := t.askAtOnce(ctx, all)
	for i, a := range all {
		answer := &answers[places[i]]
		switch {
		case replies[i] != nil:
			answer.Reservation, answer.Err = t.reservation("reserve", a.call, a.job, replies[i])
		case lost:
			answer.Err = withJob(&UnavailableError{Failure: FailureTimeout, Err: ctx.Err()}, a.job)
		default:
			answer.Reservation, answer.Err = t.decide(ctx, a)
		}
	}
	if t.options.Observer != nil {
		for i := range answers {
			t.observeDecision(jobs[i], answers[i], time.Since(began))
		}
	}
}

// askAtOnce asks for jobs in one round trip. A reply that is nil is to be asked for one
// by one, unless it is lost: the context has ended meanwhile. While the breaker leaves
// Redis alone, nothing is asked.
func (t *Throttle) askAtOnce(ctx context.Context, all []*asking) (replies []reply, lost bool) {
	if len(all) == 0 || ctx.Err() != nil || t.redis.breaker.State() != gobreaker.StateClosed {
		return make([]reply, len(all)), false
	}
	replies = t.redis.runAll(ctx, reserveScript, len(all), func(i int) ([]string, []any) { return all[i].shape(t) })
	return replies, ctx.Err() != nil
}
