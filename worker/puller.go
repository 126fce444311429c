package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

const (
	// pullEvery is how often a process pulls at most, but after a full pull; it is short
	// beside the lookahead, and the slots are the same. pullSpread keeps processes from
	// pulling in step.
	pullEvery  = 50 * time.Millisecond
	pullSpread = 10 * time.Millisecond
	// pullAnyway is how often it pulls also if no answer said that it is time: other
	// processes may have been told so, and have died.
	pullAnyway = 500 * time.Millisecond
	// pullAgain is when it pulls again after a pull that failed: soon, since those in line
	// wait for it. While Redis is away the throttle's breaker refuses without asking.
	pullAgain = 100 * time.Millisecond
	// suspected is how long all that is pulled from a lane is looked at in which a task
	// was gone.
	suspected = 10 * time.Second
	// pausedKnown is how long it is believed whether a queue is paused.
	pausedKnown = time.Second
)

// puller books the tasks in line, when an answer of the throttle says that it is time,
// and hands them to the waker. What fails is done by the next pull, of this process or
// another.
type puller struct {
	shaper  *Shaper
	sooner  chan struct{} // says that the line is due before planned
	hurried atomic.Bool   // a place was given back: who waits for it is not kept waiting
	planned atomic.Int64  // the next pull, in Unix nanoseconds; 0 while one is under way
	done    sync.WaitGroup
	clearer *clearer
	warning seldom
	giving  giving

	mu      sync.Mutex
	started bool
	ended   bool
	suspect map[string]suspicion   // by the lane
	paused  map[string]pausedQueue // by its name
}

// suspicion is what is known of a lane in which a task was gone.
type suspicion struct {
	until time.Time // all that is pulled from it is looked at
	row   int       // tasks that were gone, one after the other
}

type pausedQueue struct {
	is    bool
	until time.Time // known
}

func newPuller(s *Shaper) *puller {
	return &puller{
		shaper: s, sooner: make(chan struct{}, 1), clearer: &clearer{shaper: s},
		suspect: make(map[string]suspicion), paused: make(map[string]pausedQueue),
	}
}

// start starts the goroutine, once.
func (p *puller) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started && !p.ended {
		p.started = true
		p.done.Go(func() { p.shaper.deployment.run(p.shaper) })
		p.done.Go(p.run)
	}
}

// end keeps goroutines from being started; those that run end by the shaper's stopped.
func (p *puller) end() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.shaper.deployment.waitNoMore()
	p.clearer.end()
}

// heard is called after each answer of the throttle, which may have said when the line
// is due.
func (p *puller) heard() {
	if due := p.shaper.driver.Due(); !due.IsZero() && due.UnixNano() < p.planned.Load() {
		select {
		case p.sooner <- struct{}{}:
		default:
		}
	}
}

// hurry is heard after a place was given back.
func (p *puller) hurry() {
	p.hurried.Store(true)
	p.heard()
}

func (p *puller) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	checked, asked := p.check(ctx), time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	last, apart, failed := time.Now().Add(-pullAnyway), time.Duration(0), false
	for {
		if p.shaper.deployment.others(ctx) != nil {
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
		if failed && err == nil {
			p.shaper.refused.wake(p.shaper.waker)
		}
		failed = err != nil
		if apart = pullEvery + rand.N(pullSpread); full {
			apart = min(apart, 2*time.Since(last)) // Redis is left as long to others
		}
		switch {
		case failed && !p.shaper.isStopped() && p.warning.due(time.Second):
			p.shaper.log.Warn("worker: the line cannot be pulled, it is tried again", zap.Error(err))
		case !failed && !checked && time.Since(asked) >= checkAgain:
			checked, asked = p.check(ctx), time.Now()
		}
	}
}

// plan is when to pull after the last time, not sooner than apart from it.
func (p *puller) plan(last time.Time, apart time.Duration, failed bool) time.Time {
	at := last.Add(pullAnyway)
	if failed {
		at = last.Add(pullAgain)
	}
	p.planned.Store(at.UnixNano()) // before Due is asked, so that what is heard after it is not missed
	if due := p.shaper.driver.Due(); !failed && !due.IsZero() && due.Before(at) {
		at = due
		if earliest := last.Add(apart); at.Before(earliest) && !p.hurried.Load() {
			at = earliest
		}
		p.planned.Store(at.UnixNano())
	}
	return at
}

// pull pulls once, and brings what it finds. full tells that there may be more.
func (p *puller) pull(ctx context.Context) (full bool, err error) {
	pulled, err := p.shaper.driver.Pull(ctx)
	if err != nil {
		return false, err
	}
	return pulled.Full, p.take(ctx, pulled)
}

// take brings what a pull has found.
func (p *puller) take(ctx context.Context, pulled throttle.Pulled) error {
	p.shaper.stats.pulled.Add(int64(len(pulled.Booked)))
	var doubtful []wakeup
	for _, r := range pulled.Booked {
		if task, is := p.taskOf(r); !is {
			continue // it waits without asynq and asks by itself
		} else if p.suspects(task.lane) || p.isPaused(task.queue) {
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

// taskOf is the task of a booked job, if it is one of asynq.
func (p *puller) taskOf(r throttle.Reservation) (task wakeup, is bool) {
	task = wakeup{job: r.Job, lane: p.shaper.driver.LaneOf(r), slot: time.Now().Add(r.Start.Sub(r.Now))}
	task.queue, task.id, task.retried, is = parseJobID(r.Job.ID)
	return task, is
}

// bring has booked tasks woken for their slots that asynq has, and gives the slots of
// the others back, for others to use.
func (p *puller) bring(ctx context.Context, tasks []wakeup) error {
	if len(tasks) == 0 || p.shaper.isStopped() {
		return nil
	}
	seen := p.look(tasks)
	for i, task := range tasks {
		switch seen[i] {
		case missing, waits, pends:
			p.missed(task.lane)
		case comes:
			p.came(task.lane)
			p.shaper.waker.wake(task)
		default:
			p.shaper.waker.wake(task)
		}
	}
	if _, err := p.leave(ctx, tasks, seen); err != nil {
		return err
	}
	for _, task := range tasks {
		if p.missedInRow(task.lane) >= manyMissed {
			p.clearer.take(task.lane)
		}
	}
	return nil
}

// leave gives back what tasks have in the throttle that will not come, and says how many
// there are. Those that a paused queue holds become pending ones, if they are not: they ask
// when it goes on.
func (p *puller) leave(ctx context.Context, tasks []wakeup, seen []prospect) (gone int, err error) {
	var ids []string
	var pending []wakeup
	for i, task := range tasks {
		switch seen[i] {
		case waits:
			pending = append(pending, task)
			ids = append(ids, task.job.ID)
		case missing, pends:
			ids = append(ids, task.job.ID)
		}
	}
	if len(ids) == 0 {
		return 0, nil
	}
	_, err = p.shaper.driver.Leave(ctx, ids)
	if err == nil || errors.Is(err, throttle.ErrUnavailable) { // then it may have been done
		inParallel(len(pending), func(i int) { p.shaper.leavePending(pending[i]) })
	}
	p.heard()
	return len(ids), err
}

// prospect is whether a task in line will come.
type prospect int

const (
	unknown prospect = iota // asynq does not say
	comes
	missing // it was deleted or archived by hand, has completed, or is at a later attempt
	waits   // in a paused queue
	pends   // there, for a worker
)

// look asks asynq about tasks, until the shaper stops.
func (p *puller) look(tasks []wakeup) []prospect {
	seen := make([]prospect, len(tasks))
	inParallel(len(tasks), func(i int) {
		if !p.shaper.isStopped() {
			seen[i] = p.prospectOf(tasks[i])
		}
	})
	return seen
}

func (p *puller) prospectOf(task wakeup) prospect {
	info, err := p.shaper.inspector.GetTaskInfo(task.queue, task.id)
	switch {
	case err == nil && task.unrun(info):
		return comes
	case WillNotCome(task.job.ID, info, err):
		return missing
	case err != nil:
		return unknown
	case task.rests(info) && p.isPaused(task.queue):
		return waits
	case task.isPending(info) && p.isPaused(task.queue):
		return pends
	}
	return comes
}

// leavePending moves a task of a paused queue, which holds no place any more, to the
// pending ones, unless it has gone on meanwhile.
func (s *Shaper) leavePending(task wakeup) {
	info, err := s.inspector.GetTaskInfo(task.queue, task.id)
	if err == nil && task.rests(info) {
		err = s.inspector.RunTask(task.queue, task.id)
	}
	if err != nil {
		s.log.Debug("worker: a task of a paused queue is not there", zap.String("queue", task.queue), zap.String("task", task.id), zap.Error(err))
	}
}

// missed notes that a task of a lane was gone: perhaps many are.
func (p *puller) missed(lane string) {
	if lane == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for other, suspicion := range p.suspect {
		if suspicion.until.Before(now) {
			delete(p.suspect, other)
		}
	}
	p.suspect[lane] = suspicion{until: now.Add(suspected), row: p.suspect[lane].row + 1}
}

// came notes that a task of a lane was there.
func (p *puller) came(lane string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, is := p.suspect[lane]; is {
		p.suspect[lane] = suspicion{until: known.until}
	}
}

func (p *puller) suspects(lane string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.suspect[lane].until.After(time.Now())
}

// missedInRow is how many tasks of a lane were gone, one after the other.
func (p *puller) missedInRow(lane string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.suspect[lane].row
}

// isPaused asks asynq, about once a second for each queue.
func (p *puller) isPaused(queue string) bool {
	p.mu.Lock()
	known := p.paused[queue]
	p.mu.Unlock()
	if time.Now().Before(known.until) {
		return known.is
	}
	info, err := p.shaper.inspector.GetQueueInfo(queue)
	known = pausedQueue{is: err == nil && info.Paused, until: time.Now().Add(pausedKnown)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused[queue] = known
	return known.is
}

// gone tells from asynq's answer that nobody will come for a task's slot: it was
// deleted or archived by hand.
func gone(info *asynq.TaskInfo, err error) bool {
	return errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) ||
		err == nil && info.State == asynq.TaskStateArchived
}
