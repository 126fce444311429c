package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

const (
	// sweepEvery is how often a process looks after the line.
	sweepEvery = 250 * time.Millisecond
	// gather is how long a pull waits for what more starts make room for. It is
	// short beside the lookahead, and the slots are the same.
	gather = 10 * time.Millisecond
	// suspected is how long a lane in which a task was gone has all that is
	// pulled from it looked at.
	suspected = 10 * time.Second
	// pausedKnown is how long it is believed whether a queue is paused.
	pausedKnown = time.Second
)

// puller books the tasks in line, as starts make room and as time goes on, and
// hands them to the waker. What fails is done by the next sweep, of this process
// or another.
type puller struct {
	shaper  *Shaper
	next    chan throttle.Lane
	done    sync.WaitGroup
	weeder  *weeder
	warning seldom

	mu      sync.Mutex
	started bool
	ended   bool
	suspect map[throttle.Lane]suspicion
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
		shaper: s, next: make(chan throttle.Lane, 1), weeder: &weeder{shaper: s},
		suspect: make(map[throttle.Lane]suspicion), paused: make(map[string]pausedQueue),
	}
}

// start starts the goroutine, once.
func (p *puller) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started && !p.ended {
		p.started = true
		p.done.Go(p.run)
	}
}

// end keeps goroutines from being started; those that run end by the shaper's stopped.
func (p *puller) end() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.weeder.end()
}

// hint says which lane may be pulled. One hint is enough: a pull names the next.
func (p *puller) hint(lane throttle.Lane) {
	select {
	case p.next <- lane:
	default:
	}
}

func (p *puller) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	checked, asked := p.check(ctx), time.Now()
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-p.shaper.stopped:
			return
		case lane := <-p.next:
			if err = p.shaper.pause(gather); err == nil {
				err = p.pull(ctx, lane)
			}
		case <-tick.C:
			if err = p.sweep(ctx); err == nil && !checked && time.Since(asked) >= checkAgain {
				checked, asked = p.check(ctx), time.Now()
			}
		}
		if err != nil && !p.shaper.isStopped() && p.warning.due(time.Second) {
			p.shaper.log.Warn("worker: the line cannot be looked after, the next sweep tries again", zap.Error(err))
		}
	}
}

// pull pulls a lane and those that are next, until there is none.
func (p *puller) pull(ctx context.Context, lane throttle.Lane) error {
	for lane != "" {
		if p.shaper.isStopped() {
			return nil
		}
		next, err := p.pullOne(ctx, lane)
		if err != nil {
			return err
		}
		lane = next
	}
	return nil
}

// pullOne pulls a lane and returns the next. One that is being weeded is left alone.
func (p *puller) pullOne(ctx context.Context, lane throttle.Lane) (next throttle.Lane, err error) {
	if p.weeder.has(lane) {
		_, next, err = p.shaper.throttle.Weed(ctx, lane, nil, leftAlone)
		return next, err
	}
	booked, next, err := p.shaper.throttle.Pull(ctx, lane)
	if err != nil {
		return "", err
	}
	for _, r := range booked {
		p.shaper.stats.pulled.Add(1)
		if !p.bring(ctx, r) && next == "" {
			next = lane // it has room again
		}
	}
	if p.missedInRow(lane) >= manyMissed && p.weeder.take(lane) {
		next = lane
	}
	return next, nil
}

// sweep looks for what nobody's start pulls, and for tasks whose process has died.
func (p *puller) sweep(ctx context.Context) error {
	for more := true; more; {
		swept, err := p.shaper.throttle.Sweep(ctx)
		for _, r := range swept.Overdue {
			if p.shaper.isStopped() {
				return nil
			}
			p.bring(ctx, r)
		}
		if err != nil {
			return err
		}
		if err := p.pull(ctx, swept.Next); err != nil {
			return err
		}
		more = swept.More
	}
	return nil
}

// bring has a booked task woken for its slot. Where there is reason to think that
// it will not come, the slot is given back now, for others to use: it returns
// false.
func (p *puller) bring(ctx context.Context, r throttle.Reservation) bool {
	s := p.shaper
	queue, id, retried, isTask := parseJobID(r.Job.ID)
	if !isTask {
		return true // it waits without asynq and asks by itself
	}
	task := wakeup{queue: queue, id: id, retried: retried, job: r.Job, slot: time.Now().Add(r.Start.Sub(r.Now))}
	if !p.suspects(r.Job.Lane) && !p.isPaused(queue) {
		s.waker.wake(task)
		return true
	}
	switch p.prospectOf(task) {
	case missing:
		p.missed(r.Job.Lane)
		s.giveBack(ctx, r.Job)
		return false
	case held:
		p.missed(r.Job.Lane)
		s.giveBack(ctx, r.Job)
		s.leavePending(task)
		return false
	case comes:
		p.came(r.Job.Lane)
	}
	s.waker.wake(task)
	return true
}

// prospect is whether a task in line will come.
type prospect int

const (
	unknown prospect = iota // asynq does not say
	comes
	missing // it was deleted or archived by hand
	held    // by a paused queue
)

func (p *puller) prospectOf(task wakeup) prospect {
	info, err := p.shaper.inspector.GetTaskInfo(task.queue, task.id)
	switch {
	case err == nil && task.unrun(info):
		return comes
	case gone(info, err):
		return missing
	case err != nil:
		return unknown
	case task.rests(info) && p.isPaused(task.queue):
		return held
	}
	return comes
}

// leavePending moves a task of a paused queue, which holds no place any more, to the
// pending ones: it asks when the queue goes on.
func (s *Shaper) leavePending(task wakeup) {
	if err := s.inspector.RunTask(task.queue, task.id); err != nil {
		s.log.Debug("worker: a task of a paused queue is not there", zap.String("queue", task.queue), zap.String("task", task.id), zap.Error(err))
	}
}

// missed notes that a task of a lane was gone: perhaps many are.
func (p *puller) missed(lane throttle.Lane) {
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
func (p *puller) came(lane throttle.Lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, is := p.suspect[lane]; is {
		p.suspect[lane] = suspicion{until: known.until}
	}
}

func (p *puller) suspects(lane throttle.Lane) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.suspect[lane].until.After(time.Now())
}

// missedInRow is how many tasks of a lane were gone, one after the other.
func (p *puller) missedInRow(lane throttle.Lane) int {
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
