package throttle

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"sync"
	"time"
)

// mostAtOnce is how many jobs one call of reserve decides: few enough that others do
// not wait long for Redis meanwhile.
const mostAtOnce = 64

// batcher sends the jobs of a process together. One call is under way at a time; the
// jobs that come meanwhile go with the next, so that nobody waits when it is idle.
//
// A call whose answer was lost may have been done. Before anything else is asked, the
// very same call is made again until it is answered: Redis knows its number and then
// answers as before. Its callers may have gone; what they were granted is kept for
// those who ask again.
type batcher struct {
	throttle *Throttle
	asker    string // names this batcher in Redis

	mu         sync.Mutex
	queue      []*asked
	running    bool
	nonces     int64 // how many were drawn
	asking     int64 // the number of the last call
	unresolved *call // nil: none
	kept       keptGrants
}

// asked is a job whose caller waits for the answer.
type asked struct {
	order    *order
	done     chan struct{} // closed when the answer is there
	answer   Answer
	answered bool
	gone     bool // the caller
}

// call is one call of reserve.
type call struct {
	asking int64
	jobs   []*asked
	late   []Reservation // grants of the same nonces that are too old to be used
	args   []any
	sent   time.Time // first
}

func newBatcher(t *Throttle) *batcher {
	return &batcher{throttle: t, asker: rand.Text()[:16], kept: make(keptGrants)}
}

// nonce draws one for a job that has none.
func (b *batcher) nonce() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nonces++
	return b.asker + "." + strconv.FormatInt(b.nonces, 10)
}

// ask has jobs decided, in their order, and returns an answer for each: an error where
// Redis did not answer within Options.Timeout, or the context ended before.
func (b *batcher) ask(ctx context.Context, orders ...*order) []Answer {
	jobs := b.enqueue(orders)
	bounded, cancel := context.WithTimeout(ctx, b.throttle.options.Timeout)
	defer cancel()
	answers := make([]Answer, len(jobs))
	for i, a := range jobs {
		select {
		case <-a.done:
		case <-bounded.Done():
			b.leave(a, bounded.Err())
		}
		answers[i] = a.answer
	}
	return answers
}

func (b *batcher) enqueue(orders []*order) []*asked {
	jobs := make([]*asked, len(orders))
	for i, o := range orders {
		jobs[i] = &asked{order: o, done: make(chan struct{})}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, jobs...)
	if !b.running && len(jobs) > 0 {
		b.running = true
		go b.run()
	}
	return jobs
}

// leave is for a caller whose time is up, unless the answer has just come.
func (b *batcher) leave(a *asked, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !a.answered {
		a.gone = true
		a.answer.Err = &UnavailableError{Failure: failureTimeout, Err: err}
	}
}

// run makes calls as long as anybody waits.
func (b *batcher) run() {
	for c, repeated := b.next(); c != nil; c, repeated = b.next() {
		answers, err := b.send(c)
		b.resolve(c, repeated, answers, err)
	}
}

// next is the call to make, and whether it was made before; nil ends the goroutine.
func (b *batcher) next() (c *call, repeated bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		b.dropGone()
		switch {
		case len(b.queue) == 0:
			b.running = false
			return nil, false
		case b.unresolved != nil:
			return b.unresolved, true
		}
		if c := b.newCall(); len(c.jobs) > 0 {
			return c, false
		}
	}
}

// dropGone forgets the jobs that were never sent and whose callers have gone.
func (b *batcher) dropGone() {
	waiting := b.queue[:0]
	for _, a := range b.queue {
		if !a.gone {
			waiting = append(waiting, a)
		}
	}
	clear(b.queue[len(waiting):])
	b.queue = waiting
}

// newCall takes jobs from the queue. Who asks for a grant that is kept has it at once.
func (b *batcher) newCall() *call {
	n := min(len(b.queue), mostAtOnce)
	jobs := b.queue[:n]
	b.queue = append([]*asked(nil), b.queue[n:]...)
	b.asking++
	c := &call{asking: b.asking, sent: time.Now(), jobs: make([]*asked, 0, n)}
	for _, a := range jobs {
		if b.kept.isOf(a.order) {
			r, age := b.kept.take(a.order.job.Nonce, c.sent)
			if age == keptFresh {
				a.give(Answer{Reservation: r})
				continue
			}
			c.late = append(c.late, r)
		}
		c.jobs = append(c.jobs, a)
	}
	return c
}

// send makes a call under the throttle's own timeout, whatever becomes of the callers.
func (b *batcher) send(c *call) ([]Answer, error) {
	t, ctx := b.throttle, context.Background()
	for _, r := range c.late {
		if _, err := t.Refund(ctx, r); err != nil {
			t.options.Logger.Debug("throttle: a grant that came too late stays charged")
		}
	}
	c.late = nil
	orders := make([]*order, len(c.jobs))
	for i, a := range c.jobs {
		orders[i] = a.order
	}
	if c.args == nil {
		c.args = t.reserveArguments(b.asker, c.asking, orders...)
	}
	reply, err := t.redis.run(ctx, reserveScript, c.args)
	if err != nil {
		return nil, err
	}
	return t.decisions(reply, orders)
}

// resolve gives the answers of a call to its callers.
func (b *batcher) resolve(c *call, repeated bool, answers []Answer, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unresolved = nil
	switch {
	case err == nil:
		b.give(c, answers)
	case !repeated:
		if isLost(err) {
			b.unresolved = c
		}
		fail(c.jobs, err)
	case isLost(err) || isPassing(err):
		b.unresolved = c
		fail(b.queue, err) // nothing can be asked for them
		b.queue = nil
	}
}

// give hands out answers, and keeps the grants of callers who have gone.
func (b *batcher) give(c *call, answers []Answer) {
	now := time.Now()
	b.kept.forget(now)
	for i, a := range c.jobs {
		switch r := answers[i].Reservation; {
		case !a.gone:
			a.give(answers[i])
		case r.Outcome == Granted:
			b.kept.put(r, c.sent, now, b.throttle.options.Grace)
		}
	}
}

func (a *asked) give(answer Answer) {
	a.answer, a.answered = answer, true
	close(a.done)
}

// fail gives an error to the callers who are still there: each has one of its own, to
// write its job in.
func fail(jobs []*asked, err error) {
	for _, a := range jobs {
		if a.gone {
			continue
		}
		var unavailable *UnavailableError
		if errors.As(err, &unavailable) {
			own := *unavailable
			a.give(Answer{Err: &own})
		} else {
			a.give(Answer{Err: err})
		}
		a.gone = true
	}
}

// takeKept takes what was granted to a job under its nonce after its caller had gone.
func (b *batcher) takeKept(job Job) (Reservation, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kept[job.Nonce].reservation.Job.ID != job.ID {
		return Reservation{}, false
	}
	r, age := b.kept.take(job.Nonce, time.Now())
	return r, age != keptNone
}

// isLost tells that a call was sent and not answered: it may have been done.
func isLost(err error) bool {
	var unavailable *UnavailableError
	return errors.As(err, &unavailable) && !unavailable.replied && unavailable.Failure != failureBreaker
}

// isPassing tells that a call will be answered when something has passed.
func isPassing(err error) bool {
	var unavailable *UnavailableError
	return errors.As(err, &unavailable) && unavailable.Failure != failureOther
}
