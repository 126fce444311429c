package worker

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

const (
	// pullEvery is how often a process pulls at most, except after a full pull or after a place was
	// given back. It is short compared with the lookahead, so slots are the same as if a process
	// pulled all the time. pullSpread keeps processes from pulling in step.
	pullEvery  = 50 * time.Millisecond
	pullSpread = 10 * time.Millisecond
	// pullAnyway is how often a process pulls even if no answer said that a pull is due: the
	// answer may have gone to another process, which has died.
	pullAnyway = 500 * time.Millisecond
	// pullAgain is how soon a process pulls again after a failed pull: the tasks in line wait for
	// that. While Redis is away the throttle's breaker refuses the pull without asking Redis.
	pullAgain = 100 * time.Millisecond
)

// puller pulls the line when an answer of the throttle says that a pull is due, and hands the tasks
// that the pull has booked to the waker. If a pull fails, the next one, of this process or
// another, does its work.
type puller struct {
	shaper    *Shaper
	sooner    chan struct{} // the line is due sooner than planned
	hurried   atomic.Bool   // a place was given back: the next pull comes at once
	unwoken   atomic.Bool   // a wake-up has failed since asynq's Redis last answered
	planned   atomic.Int64  // the next pull, in Unix nanoseconds; 0 while one is under way
	done      sync.WaitGroup
	prospects *prospects
	warning   seldom
	giving    giving

	mu      sync.Mutex
	started bool
	ended   bool
}

func newPuller(s *Shaper) *puller {
	return &puller{shaper: s, sooner: make(chan struct{}, 1), prospects: newProspects(s)}
}

// start starts the goroutines, once.
func (p *puller) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started && !p.ended {
		p.started = true
		p.done.Go(func() { p.shaper.deployment.run(p.shaper) })
		p.done.Go(p.run)
	}
}

// end keeps goroutines from being started; running ones end when the shaper stops.
func (p *puller) end() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.shaper.deployment.waitNoMore()
	p.prospects.end()
}

// answered is called after each answer of the throttle, which may have said when the line
// is due.
func (p *puller) answered() {
	if due := p.shaper.driver.Due(); !due.IsZero() && due.UnixNano() < p.planned.Load() {
		select {
		case p.sooner <- struct{}{}:
		default:
		}
	}
}

// hurry is called in place of answered after a place was given back.
func (p *puller) hurry() {
	p.hurried.Store(true)
	p.answered()
}

func (p *puller) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	checked, asked := p.check(ctx), time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	last, apart, failed := time.Now().Add(-pullAnyway), time.Duration(0), false
	for {
		others := p.shaper.deployment.others(ctx) != nil
		if others || p.wakesNobody() {
			failed = failed || others
			if p.shaper.pause(pullAnyway) != nil {
				return
			}
			continue
		}
		timer.Reset(time.Until(p.plan(last, apart, failed)))
		select {
		case <-p.shaper.stopped:
			return
		case <-p.sooner:
			continue
		case <-timer.C:
		}
		p.planned.Store(0)
		p.hurried.Store(false)
		last = time.Now()
		full, err := p.pull(ctx)
		if err == nil {
			p.recovered(failed)
		}
		failed = err != nil
		if apart = pullEvery + rand.N(pullSpread); full {
			apart = min(apart, 2*time.Since(last)) // others have Redis for as long as this pull had it
		}
		switch {
		case failed && !p.shaper.isStopped() && p.warning.due(time.Second):
			p.shaper.log.Warn("worker: the line cannot be pulled, it is tried again", zap.Error(err))
		case !failed && !checked && time.Since(asked) >= checkAgain:
			checked, asked = p.check(ctx), time.Now()
		}
	}
}

// wakesNobody reports whether a wake-up has failed and asynq's Redis has not answered since: then
// booked tasks could not be woken, and their bookings would be forgotten in the end.
func (p *puller) wakesNobody() bool {
	if p.unwoken.Load() && p.shaper.inspector.answers() {
		p.unwoken.Store(false)
	}
	return p.unwoken.Load()
}

// recovered ends an outage. If pulls had failed too, Redis was away, and the tasks that were put
// back since then come back at once. If only other calls had failed, asynq brings them at its own
// time.
func (p *puller) recovered(failed bool) {
	tasks := p.shaper.outage.over()
	if !failed {
		return
	}
	for _, task := range tasks {
		p.shaper.waker.wake(task)
	}
}

// plan returns when to pull next: at least apart after the last pull, unless the pull is hurried.
func (p *puller) plan(last time.Time, apart time.Duration, failed bool) time.Time {
	at := last.Add(pullAnyway)
	if failed {
		at = last.Add(pullAgain)
	}
	p.planned.Store(at.UnixNano()) // before Due is asked, so that a later answer is not missed
	if due := p.shaper.driver.Due(); !failed && !due.IsZero() && due.Before(at) {
		at = due
		if earliest := last.Add(apart); at.Before(earliest) && !p.hurried.Load() {
			at = earliest
		}
		p.planned.Store(at.UnixNano())
	}
	return at
}

// pull pulls once, and brings the tasks. full is true if more may be due.
func (p *puller) pull(ctx context.Context) (full bool, err error) {
	pulled, err := p.shaper.driver.Pull(ctx)
	if err != nil {
		return false, err
	}
	return pulled.Full, p.take(ctx, pulled)
}

// take brings the tasks of a pull. It asks asynq about tasks that may not come, and gives the
// slots of tasks that will not come to others.
func (p *puller) take(ctx context.Context, pulled throttle.Pulled) error {
	p.shaper.stats.pulled.Add(int64(len(pulled.Booked)))
	var doubtful []wakeup
	for _, r := range pulled.Booked {
		if task, is := p.taskOf(r); !is {
			continue // the job waits without asynq and asks by itself
		} else if p.prospects.doubts(task) {
			doubtful = append(doubtful, task)
		} else {
			p.shaper.waker.wake(task)
		}
	}
	for _, r := range pulled.Overdue {
		if task, is := p.taskOf(r); is {
			doubtful = append(doubtful, task)
		}
	}
	return p.bring(ctx, doubtful)
}

// taskOf is the task of a booked job, if the job is asynq's.
func (p *puller) taskOf(r throttle.Reservation) (task wakeup, is bool) {
	task = wakeup{job: r.Job, lane: r.Lane, slot: time.Now().Add(r.Start.Sub(r.Now))}
	task.queue, task.id, task.retried, is = parseJobID(r.Job.ID)
	return task, is
}

func (p *puller) bring(ctx context.Context, tasks []wakeup) error {
	if len(tasks) == 0 || p.shaper.isStopped() {
		return nil
	}
	seen := p.prospects.of(tasks)
	for i, task := range tasks {
		if seen[i].leaves() {
			p.prospects.missed(task.lane)
			continue
		}
		if seen[i].fate != unknown {
			p.prospects.came(task.lane)
		}
		p.shaper.waker.wake(task)
	}
	_, err := p.prospects.leave(ctx, tasks, seen)
	return err
}
