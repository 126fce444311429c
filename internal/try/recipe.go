package try

import (
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

const (
	// forwardEvery is asynq's DelayedTaskCheckInterval, as the project's measurements set it; by default it is 5 s.
	forwardEvery = time.Second
	// forwardAt is when in each second asynq looks for due tasks. It is not the whole second, since the clock of asynq
	// and the clocks of the programs that enqueue are not the same.
	forwardAt = forwardEvery / 2
	// mostPutBacks bounds the work.
	mostPutBacks = 600_000
)

// bucket is a limit of one scope key as redis_rate keeps it: the time at which all that it has allowed has leaked.
type bucket struct{ empty time.Duration }

// gate is a bucket that a job asks. The burst is the limit's units, which leak within the window.
type gate struct {
	*bucket
	window time.Duration // 0 of a limit without units: nothing is allowed
	takes  time.Duration // within which the job's units leak
}

func gateOf(b *bucket, limit throttle.Limit, weight int64) gate {
	if limit.Units == 0 {
		return gate{bucket: b}
	}
	return gate{b, limit.Window, time.Duration(float64(limit.Window) * float64(weight) / float64(limit.Units))}
}

// allow takes the job's units, or returns after how long to ask again.
func (g gate) allow(now time.Duration) (retryIn time.Duration) {
	if g.window == 0 {
		return mostSpan
	}
	empty := max(g.empty, now) + g.takes
	if retryIn = empty - g.window - now; retryIn > 0 {
		return retryIn
	}
	g.empty = empty
	return 0
}

// recipe plays a plan as asynq's documentation advises: the handler asks a limiter for each limit, and returns an error
// with the time after which asynq retries. Asynq keeps that time in whole seconds, and looks once a second which tasks
// are due. As in the project's measurements the limiter is redis_rate, which knows windows alone.
type recipe struct {
	*plan
	gates   [][]gate        // of each job, in the order in which its handler asks
	retries map[int64][]int // jobs by the second at which asynq brings them again, after the beginning
	waiting int             // how many jobs are in retries
	played
}

// recipe plays a plan by asynq's recipe.
func (p *plan) recipe() played {
	r := &recipe{plan: p, gates: p.gates(), retries: make(map[int64][]int)}
	came := 0
	for second := int64(0); came < len(p.jobs) || r.waiting > 0; second++ {
		now := time.Duration(second)*forwardEvery + forwardAt
		for ; came < len(p.jobs) && p.jobs[came].comes < now; came++ {
			r.run(p.jobs[came].comes, came)
		}
		due := r.retries[second]
		delete(r.retries, second)
		r.waiting -= len(due)
		for _, index := range due {
			r.run(now, index)
		}
		if now >= mostSpan || r.putBacks >= mostPutBacks {
			p.note("The recipe's side ends with %d jobs not started: it put back %d times in %s.", len(p.jobs)-len(r.starts),
				r.putBacks, now)
			break
		}
	}
	return r.played
}

// gates returns what each job asks for: its narrower limits first, those of all jobs last.
func (p *plan) gates() [][]gate {
	type name struct {
		scope, key string
		limit      int // its index
	}
	buckets, gates := make(map[name]*bucket), make([][]gate, len(p.jobs))
	for i := range p.jobs {
		j := &p.jobs[i]
		for _, scope := range slices.Backward(p.scopes) {
			for n, limit := range scope.Limits {
				if !isWindow(limit) {
					continue
				}
				of := name{scope.Name, j.Keys[scope.Name], n}
				if buckets[of] == nil {
					buckets[of] = new(bucket)
				}
				gates[i] = append(gates[i], gateOf(buckets[of], limit, j.Weight))
			}
		}
	}
	return gates
}

// run is what a handler does with a job.
func (r *recipe) run(now time.Duration, index int) {
	retryIn := r.refused(now, index)
	if retryIn == 0 {
		r.starts = append(r.starts, start{job: index, at: now})
		return
	}
	r.putBacks++
	r.waiting++
	second := int64((now + retryIn) / forwardEvery)
	if time.Duration(second)*forwardEvery+forwardAt <= now {
		second++
	}
	r.retries[second] = append(r.retries[second], index)
}

// refused asks for each limit in turn. Where one has no room, what the others gave is lost. The upstream's incident
// says when it ends.
func (r *recipe) refused(now time.Duration, index int) (retryIn time.Duration) {
	if now >= r.closed.from && now < r.closed.until && r.closed.concerns(&r.jobs[index]) {
		return r.closed.until - now
	}
	for _, g := range r.gates[index] {
		if retryIn := g.allow(now); retryIn > 0 {
			return retryIn
		}
	}
	return 0
}

// isWindow reports whether a limit counts in a sliding window.
func isWindow(limit throttle.Limit) bool {
	return limit.Window > 0 && limit.Units != throttle.Unlimited
}
