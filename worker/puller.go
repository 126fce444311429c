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
	warning seldom

	mu      sync.Mutex
	started bool
	ended   bool
	suspect map[throttle.Lane]time.Time // until when

	paused map[string]pausedQueue // by its name; of the one goroutine that pulls
}

type pausedQueue struct {
	is    bool
	until time.Time // known
}

func newPuller(s *Shaper) *puller {
	return &puller{
		shaper: s, next: make(chan throttle.Lane, 1),
		suspect: make(map[throttle.Lane]time.Time), paused: make(map[string]pausedQueue),
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

func (p *puller) stop() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.done.Wait()
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
		if err != nil && !errors.Is(err, errStopped) && p.warning.due(time.Second) {
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
		booked, next, err := p.shaper.throttle.Pull(ctx, lane)
		if err != nil {
			return err
		}
		for _, r := range booked {
			p.shaper.stats.pulled.Add(1)
			if !p.bring(ctx, r) && next == "" {
				next = lane // it has room again
			}
		}
		lane = next
	}
	return nil
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
	paused := p.isPaused(queue)
	if !paused && !p.suspects(r.Job.Lane) {
		s.waker.wake(task)
		return true
	}
	info, err := s.inspector.GetTaskInfo(queue, id)
	switch {
	case gone(info, err):
		p.missed(r.Job.Lane)
		s.giveBack(ctx, r.Job)
		return false
	case paused && err == nil && task.rests(info):
		// It waits among the pending, and asks when the queue goes on.
		s.giveBack(ctx, r.Job)
		if err := s.inspector.RunTask(queue, id); err != nil {
			s.log.Debug("worker: a task of a paused queue is not there", zap.String("queue", queue), zap.String("task", id), zap.Error(err))
		}
		return false
	}
	s.waker.wake(task)
	return true
}

// missed notes that a task of a lane was gone: perhaps many are.
func (p *puller) missed(lane throttle.Lane) {
	if lane == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for other, until := range p.suspect {
		if until.Before(now) {
			delete(p.suspect, other)
		}
	}
	p.suspect[lane] = now.Add(suspected)
}

func (p *puller) suspects(lane throttle.Lane) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.suspect[lane].After(time.Now())
}

// isPaused asks asynq, at most once a second for each queue.
func (p *puller) isPaused(queue string) bool {
	known := p.paused[queue]
	if time.Now().Before(known.until) {
		return known.is
	}
	info, err := p.shaper.inspector.GetQueueInfo(queue)
	known = pausedQueue{is: err == nil && info.Paused, until: time.Now().Add(pausedKnown)}
	p.paused[queue] = known
	return known.is
}

// gone tells from asynq's answer that nobody will come for a task's slot: it was
// deleted or archived by hand.
func gone(info *asynq.TaskInfo, err error) bool {
	return errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) ||
		err == nil && info.State == asynq.TaskStateArchived
}
