package throttle

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"
)

// mostAtOnce is how many jobs one call of reserve decides: few enough that other callers of
// Redis do not wait long.
const mostAtOnce = 64

// A job that is decided alone costs Redis three times as much as one that is decided with seven
// others. If several callers ask at about the same time, a call waits for more jobs: until it has
// enoughAtOnce, or until gatherFor after the last answer.
const (
	enoughAtOnce = 8
	gatherFor    = time.Millisecond
)

// givenBackAtOnce is how many grants are given back in parallel, in the background or before a
// call that asks for the same jobs again.
const givenBackAtOnce = 8

// batcher sends the jobs of a process together (group commit). One call is under way at a
// time; jobs that arrive meanwhile go with the next one. A caller that asks alone never waits;
// see gather.
//
// A call whose answer was lost may have been carried out. Before the batcher sends another
// call, it repeats the number of the lost call, without jobs, until Redis answers: if the lost
// call was carried out, Redis repeats its answer; if not, Redis never carries it out. The callers
// have stopped waiting by then, and their jobs may have run elsewhere; the batcher keeps the grants
// for callers that ask again.
type batcher struct {
	throttle *Throttle

	mu         sync.Mutex
	queue      []*asked
	running    bool
	askers     int           // how many callers ask at about the same time
	answered   time.Time     // when the last call was answered
	enough     chan struct{} // signals that the queue may be long enough for a call
	nonces     int64         // how many nonces were drawn
	asking     int64         // the number of the last call
	unresolved *call         // the call whose answer was lost; nil if there is none
	resolving  bool          // the unresolved call is repeated although no job waits for a call
	kept       keptGrants
	late       []Reservation // orphaned grants, which must be given back
	giving     bool          // a goroutine gives them back
}

// asked is a job whose caller waits for the answer.
type asked struct {
	order    *order
	done     chan struct{} // closed when the answer is there
	answer   Answer
	answered bool
	gone     bool // the caller has stopped waiting
}

// call is one call of reserve.
type call struct {
	asking int64
	jobs   []*asked
	late   []Reservation // earlier grants of its jobs, too old to be used
	sent   time.Time     // when it was sent first
}

func newBatcher(t *Throttle) *batcher {
	return &batcher{throttle: t, enough: make(chan struct{}, 1), kept: make(keptGrants)}
}

// nonce returns a new nonce, which no job of any process has.
func (b *batcher) nonce() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nonces++
	return b.throttle.asker + "." + strconv.FormatInt(b.nonces, 10)
}

// ask sends jobs to be decided, in their order, and returns an answer for each. The answer is an
// error where Redis did not answer within Options.Timeout, or where the context ended first.
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

// wait returns when the answer is there, or an error if the context or the timeout ended first.
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

// leave marks that the caller has stopped waiting, unless the answer has just come.
func (b *batcher) leave(a *asked, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !a.answered {
		a.gone = true
		a.answer.Err = &UnavailableError{Failure: failureTimeout, Err: err}
	}
}

// tidy gives orphaned grants back for which no caller has asked in time, and repeats an unresolved call, which may have
// made more of them. It is called after each pull: while all jobs wait for what these grants occupy, no job asks.
func (b *batcher) tidy() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.noteLate(b.kept.forget(time.Now())...)
	b.giveBack()
	b.resolving = b.unresolved != nil
	if b.resolving && !b.running {
		b.running = true
		go b.run()
	}
}

// run makes calls as long as a caller waits.
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

// gather waits for other callers if several have asked lately: soon after an answer they are
// likely to ask again.
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

// isEnough reports whether the queue has the jobs of all callers, or enough for a call. The
// caller holds mu.
func (b *batcher) isEnough() bool { return len(b.queue) >= min(b.askers, enoughAtOnce) }

// next returns the call to make and whether it is a repetition; nil ends the goroutine.
func (b *batcher) next() (c *call, repeated bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		b.dropGone()
		resolving := b.resolving
		b.resolving = false
		switch {
		case b.unresolved != nil && (resolving || len(b.queue) > 0):
			return b.unresolved, true
		case len(b.queue) == 0:
			b.running = false
			return nil, false
		}
		if c := b.newCall(); len(c.jobs) > 0 {
			return c, false
		}
	}
}

// dropGone removes jobs that were not sent and whose callers have stopped waiting.
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

// newCall takes jobs from the queue. A job whose grant is kept is answered at once.
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

// send makes a call under the throttle's own timeout, whether or not the callers still wait.
// It first gives earlier grants of the jobs back, since the jobs may need that room, but not
// so many that the callers would wait too long. It returns no answers if a repeated call had
// not been carried out.
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

// noteLate notes grants that must be given back; those beyond mostKept stay charged. The caller
// holds mu.
func (b *batcher) noteLate(grants ...Reservation) {
	b.late = append(b.late, grants[:min(len(grants), max(0, mostKept-len(b.late)))]...)
}

// giveBack gives late grants back in the background, once Redis has answered. Callers that
// waited for it would time out and leave more late grants. The caller holds mu.
func (b *batcher) giveBack() {
	if len(b.late) > 0 && !b.giving {
		b.giving = true
		go b.takeLateBack()
	}
}

// takeLateBack gives late grants back until there are none. It stops when one cannot be given
// back, and is started again after the next answer of Redis. A second attempt does no harm: Redis
// refunds a grant only once.
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

// takeAllBack gives grants back in parallel and returns the grants that it could not give back.
func (b *batcher) takeAllBack(grants []Reservation) (later []Reservation) {
	errs := make([]error, len(grants))
	var done sync.WaitGroup
	for i, r := range grants {
		done.Go(func() { _, errs[i] = b.throttle.takeBack(context.Background(), r) })
	}
	done.Wait()
	for i, err := range errs {
		if isLost(err) || isTransient(err) {
			later = append(later, grants[i])
		}
	}
	return later
}

// resolve hands the answers of a call to its callers.
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
	case isLost(err) || isTransient(err):
		b.unresolved = c
		fail(b.queue, err) // no call can be made for the queued jobs
		b.queue = nil
	}
}

// give hands out answers and keeps the grants of callers that have stopped waiting. Jobs that the
// call left undecided, since it had used up its steps, go with the next call.
func (b *batcher) give(c *call, answers []Answer) {
	now := time.Now()
	b.noteLate(b.kept.forget(now)...)
	b.giveBack()
	b.queue = append(c.jobs[len(answers):len(c.jobs):len(c.jobs)], b.queue...)
	for i, answer := range answers {
		switch a, r := c.jobs[i], answer.Reservation; {
		case !a.gone:
			a.give(answer)
		case r.Outcome == Granted:
			b.kept.put(a.order, r, c.sent, now, b.throttle.options.Grace)
		}
	}
}

func (a *asked) give(answer Answer) {
	a.answer, a.answered = answer, true
	close(a.done)
}

// fail returns an error to the callers that still wait. Each gets its own copy, which names its job.
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

// ranUnchecked notes that a fallback has started a job.
func (b *batcher) ranUnchecked(o *order) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o.unchecked = true
}

// takeKept takes the grant that is kept under the job's nonce.
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

// keep puts a grant back that takeKept has taken.
func (b *batcher) keep(kept keptGrant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept[kept.reservation.Job.Nonce] = kept
}

// isLost reports whether a call was sent and not answered: it may have been carried out.
func isLost(err error) bool {
	var unavailable *UnavailableError
	return errors.As(err, &unavailable) && !unavailable.replied && unavailable.Failure != failureBreaker
}

// isTransient reports whether the same call is worth repeating.
func isTransient(err error) bool {
	var unavailable *UnavailableError
	return errors.As(err, &unavailable) && unavailable.Failure != failureOther
}
