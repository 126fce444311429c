package throttle

import (
	"context"
	"time"
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
// its place. Where the context ends, the rest has its error.
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
	replies := t.redis.runAll(ctx, reserveScript, len(all), func(i int) ([]string, []any) { return all[i].shape(t) })
	for i, a := range all {
		answer := &answers[places[i]]
		if replies[i] == nil {
			answer.Reservation, answer.Err = t.decide(ctx, a)
		} else {
			answer.Reservation, answer.Err = t.reservation("reserve", a.call, a.job, replies[i])
		}
	}
	if t.options.Observer != nil {
		for i := range answers {
			t.observeDecision(jobs[i], answers[i], time.Since(began))
		}
	}
}
