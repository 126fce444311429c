package throttle

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"
)

// mostAtOnce is how many jobs one call of reserve decides: few enough that others do
// not wait long for Redis meanwhile.
const mostAtOnce = 64

// A job alone costs Redis three times as much as one of eight. So where several ask at
// about the same time, a call waits for more of them: until there are enough, or for as
// long after the last answer.
const (
	enoughAtOnce = 8
	gatherFor    = time.Millisecond
)

// givenBackAtOnce is how many grants are given back at the same time: beside the calls of
// those who ask, and before a call those of its own jobs.
const givenBackAtOnce = 8

// batcher sends the jobs of a process together. One call is under way at a time; the
// jobs that come meanwhile go with the next, so that nobody waits when it is idle. Who
// asks alone never waits; see gather.
//
// A call whose answer was lost may have been done. Before anything else is asked, a call
// of the same number is made until it is answered, without jobs: if the first one was
// done, Redis answers as it did then; if not, nothing is done, and never will be. The
// callers have gone, and their jobs may have run elsewhere; what they were granted is kept
// for those who ask again.
type batcher struct {
	throttle *Throttle

	mu         sync.Mutex
	queue      []*asked
	running    bool
	askers     int           // how many ask at about the same time
	answered   time.Time     // the last call
	enough     chan struct{} // says that the queue may be long enough for a call
	nonces     int64         // how many were drawn
	asking     int64         // the number of the last call
	unresolved *call         // nil: none
	kept       keptGrants
	late       []Reservation // grants that came too late to be used, to be given back
	giving     bool          // a goroutine gives them back
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
	late   []Reservation // what some of them were granted before, too late to be used
	sent   time.Time     // first
}

func newBatcher(t *Throttle) *batcher {
	return &batcher{throttle: t, enough: make(chan struct{}, 1), kept: make(keptGrants)}
}

// nonce draws one for a job that has none.
func (b *batcher) nonce() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nonces++
	return b.throttle.asker + "." + strconv.FormatInt(b.nonces, 10)
}

// ask has jobs decided, in their order, and returns an answer for each: an error where
// Redis did not answer within Options.Timeout, or the context ended before.
func (b *batcher) ask(ctx context.Context, orders ...*order) []Answer {
	jobs := b.enqueue(orders)
	timeout := time.NewTimer(b.throttle.options.Timeout)
	defer timeout.Stop()
	answers := make([]Answer, len(jobs))
	var ended error
	for i, a := range jobs {
		if ended == nil {
			ended = a.wait(ctx, timeout.C)
		}
		if ended != nil {
			b.leave(a, ended)
		}
		answers[i] = a.answer
	}
	return answers
}

// wait returns when the answer is there, or with the error of what ended before.
func (a *asked) wait(ctx context.Context, timeout <-chan time.Time) error {
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timeout:
		return context.DeadlineExceeded
	}
}

func (b *batcher) enqueue(orders []*order) []*asked {
	jobs := make([]*asked, len(orders))
	for i, o := range orders {
		jobs[i] = &asked{order: o, done: make(chan struct{})}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, jobs...)
	if b.isEnough() {
		select {
		case b.enough <- struct{}{}:
		default:
		}
	}
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
	for {
		b.gather()
		c, repeated := b.next()
		if c == nil {
			return
		}
		answers, err := b.send(c, repeated)
		b.resolve(c, repeated, answers, err)
	}
}

// gather waits for the others if one of several asks: soon after an answer they are
// likely to ask too.
func (b *batcher) gather() {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := time.Until(b.answered.Add(gatherFor))
	if len(b.queue) == 0 || left <= 0 {
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	for !b.isEnough() {
		b.mu.Unlock()
		select {
		case <-b.enough:
			b.mu.Lock()
		case <-timer.C:
			b.mu.Lock()
			b.askers = max(b.askers/2, len(b.queue))
			return
		}
	}
}

// isEnough tells that the queue has all who ask, or as many as are worth a call. The
// caller holds mu.
func (b *batcher) isEnough() bool { return len(b.queue) >= min(b.askers, enoughAtOnce) }

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
			if len(c.late) < givenBackAtOnce {
				c.late = append(c.late, r)
			} else {
				b.noteLate(r)
			}
		}
		c.jobs = append(c.jobs, a)
	}
	return c
}

// send makes a call under the throttle's own timeout, whatever becomes of the callers. What some
// of its jobs were granted before is given back first, since they may need that room; of many
// that would take too long for those who ask. It returns no answers if a repeated call had not
// been done.
func (b *batcher) send(c *call, repeated bool) ([]Answer, error) {
	t, ctx := b.throttle, context.Background()
	if later := b.takeAllBack(c.late); len(later) > 0 {
		b.mu.Lock()
		b.noteLate(later...)
		b.mu.Unlock()
	}
	c.late = nil
	orders := make([]*order, len(c.jobs))
	for i, a := range c.jobs {
		orders[i] = a.order
	}
	asked := orders
	if repeated {
		asked = nil
	}
	reply, err := t.redis.run(ctx, reserveScript, t.reserveArguments(c.asking, asked...))
	if err != nil || repeated && isUndone(reply) {
		return nil, err
	}
	return t.decisions(reply, orders)
}

// noteLate notes grants that are to be given back; those beyond mostKept stay charged. The caller
// holds mu.
func (b *batcher) noteLate(grants ...Reservation) {
	b.late = append(b.late, grants[:min(len(grants), max(0, mostKept-len(b.late)))]...)
}

// giveBack gives late grants back, once Redis has answered: beside the calls of those who ask,
// who would wait for it else, be gone, and leave more such grants. The caller holds mu.
func (b *batcher) giveBack() {
	if len(b.late) > 0 && !b.giving {
		b.giving = true
		go b.takeLateBack()
	}
}

// takeLateBack takes late grants back until there are none. If one cannot be taken back now,
// the next answer of Redis has it go on: a grant is refunded once only.
func (b *batcher) takeLateBack() {
	var failed []Reservation
	for {
		b.mu.Lock()
		b.noteLate(failed...)
		late := b.late[:min(len(b.late), givenBackAtOnce)]
		if len(late) == 0 || len(failed) > 0 {
			b.giving = false
			b.mu.Unlock()
			return
		}
		b.late = slices.Clone(b.late[len(late):])
		b.mu.Unlock()
		failed = b.takeAllBack(late)
	}
}

// takeAllBack takes grants back at the same time, and returns those that are to be taken back
// later.
func (b *batcher) takeAllBack(grants []Reservation) (later []Reservation) {
	errs := make([]error, len(grants))
	var done sync.WaitGroup
	for i, r := range grants {
		done.Go(func() { _, errs[i] = b.throttle.takeBack(context.Background(), r) })
	}
	done.Wait()
	for i, err := range errs {
		if isLost(err) || isPassing(err) {
			later = append(later, grants[i])
		}
	}
	return later
}

// resolve gives the answers of a call to its callers.
func (b *batcher) resolve(c *call, repeated bool, answers []Answer, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answered, b.askers = time.Now(), max(b.askers, len(c.jobs)+len(b.queue))
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

// give hands out answers, and keeps the grants of callers who have gone. Jobs that the call has left
// undecided, since it took long, go with the next.
func (b *batcher) give(c *call, answers []Answer) {
	now := time.Now()
	if forgotten := b.kept.forget(now); b.throttle.options.Fallback == FallbackClosed { // else the job may have run
		b.noteLate(forgotten...)
	}
	b.giveBack()
	b.queue = append(c.jobs[len(answers):len(c.jobs):len(c.jobs)], b.queue...)
	for i, answer := range answers {
		switch a, r := c.jobs[i], answer.Reservation; {
		case !a.gone:
			a.give(answer)
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
func (b *batcher) takeKept(job Job) (keptGrant, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept, is := b.kept[job.Nonce]
	if !is || kept.reservation.Job.ID != job.ID {
		return keptGrant{}, false
	}
	delete(b.kept, job.Nonce)
	return kept, true
}

// keep has a grant kept again.
func (b *batcher) keep(kept keptGrant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept[kept.reservation.Job.Nonce] = kept
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
