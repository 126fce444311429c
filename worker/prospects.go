package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

const (
	// doubted is how long all that is pulled from a lane is looked at in which a task
	// was gone.
	doubted = 10 * time.Second
	// queueKnown is how long it is believed whether a queue is paused.
	queueKnown = time.Second
	// unserved is how long a queue has pending tasks that nobody takes before it counts as
	// paused: its servers may be restarted.
	unserved = time.Minute
	// manyMissed is how many tasks of a lane are gone, one after the other, before it
	// is cleared: fewer are given back as they are booked.
	manyMissed = 32
	// mostLanes is how many lanes a process clears at most.
	mostLanes = 100
)

// prospects is what this process knows of whether the tasks in line will come. It takes those
// out of line that will not: one by one as they are booked, and where they are many in a
// row, since a backlog was deleted or a queue was paused, by going through their lane.
type prospects struct {
	shaper  *Shaper
	done    sync.WaitGroup
	warning seldom

	mu       sync.Mutex
	lanes    map[string]doubt
	queues   map[string]queueLook
	clearing []string // lanes, of which the first is being cleared
	running  bool     // a goroutine clears lanes
	ended    bool
}

// doubt is what is known of a lane in which a task was gone.
type doubt struct {
	until time.Time // all that is pulled from it is looked at
	row   int       // tasks that were gone, one after the other
}

// queueLook is what asynq said of a queue when it was last asked.
type queueLook struct {
	at     time.Time
	paused bool
	taken  int       // tasks that were, as far as asynq counts them
	idle   time.Time // since when tasks are pending and none is taken; zero if that is not so
}

// holds tells that the tasks of a queue will not come: it is paused, or nobody works it off.
func (q queueLook) holds() bool { return q.paused || !q.idle.IsZero() && q.at.Sub(q.idle) >= unserved }

// after is the look that follows, with asynq's answer.
func (q queueLook) after(info *asynq.QueueInfo) queueLook {
	next := queueLook{at: time.Now(), paused: info.Paused, taken: info.ProcessedTotal}
	if info.Pending > 0 && info.Active == 0 {
		next.idle = next.at
		if !q.idle.IsZero() && q.taken == next.taken && next.at.Sub(q.at) < 10*queueKnown {
			next.idle = q.idle
		}
	}
	return next
}

func newProspects(s *Shaper) *prospects {
	return &prospects{shaper: s, lanes: make(map[string]doubt), queues: make(map[string]queueLook)}
}

// prospect is whether a task in line will come.
type prospect struct {
	fate
	paused bool // its queue is, or nobody works it off, and it is not with a worker
}

// leaves tells that the task will not use its place: it is gone, or its queue is paused.
func (p prospect) leaves() bool { return p.fate == gone || p.paused }

// doubts tells that it is worth looking at a task before it is handed to the waker.
func (p *prospects) doubts(task wakeup) bool {
	p.mu.Lock()
	known := p.lanes[task.lane]
	p.mu.Unlock()
	return known.until.After(time.Now()) || p.isPaused(task.queue)
}

// of asks asynq about tasks, until the shaper stops.
func (p *prospects) of(tasks []wakeup) []prospect {
	seen := make([]prospect, len(tasks))
	inParallel(len(tasks), func(i int) {
		if !p.shaper.isStopped() {
			seen[i] = p.look(tasks[i])
		}
	})
	return seen
}

func (p *prospects) look(task wakeup) prospect {
	info, err := p.shaper.inspector.GetTaskInfo(task.queue, task.id)
	seen := prospect{fate: fateOf(task.retried, info, err)}
	switch seen.fate {
	case resting:
		seen.paused = p.isPaused(task.queue)
	case underway:
		seen.paused = info.State != asynq.TaskStateActive && p.isPaused(task.queue)
	case unknown, gone:
	}
	return seen
}

// leave gives back what tasks have in the throttle that will not use it, and says how many
// there are. Those that rest in a paused queue become pending ones: they ask when it goes on.
func (p *prospects) leave(ctx context.Context, tasks []wakeup, seen []prospect) (left int, err error) {
	var ids []string
	var rest []wakeup
	for i, task := range tasks {
		if seen[i].leaves() {
			ids = append(ids, task.job.ID)
		}
		if seen[i].paused && seen[i].fate == resting {
			rest = append(rest, task)
		}
	}
	if len(ids) == 0 {
		return 0, nil
	}
	_, err = p.shaper.driver.Leave(ctx, ids)
	if err == nil || errors.Is(err, throttle.ErrUnavailable) { // then it may have been done
		inParallel(len(rest), func(i int) { p.leavePending(rest[i]) })
	}
	p.shaper.puller.heard()
	return len(ids), err
}

// leavePending moves a task of a paused queue, which holds no place any more, to the
// pending ones, unless it has gone on meanwhile.
func (p *prospects) leavePending(task wakeup) {
	info, err := p.shaper.inspector.GetTaskInfo(task.queue, task.id)
	if fateOf(task.retried, info, err) == resting {
		err = p.shaper.inspector.RunTask(task.queue, task.id)
	}
	if err != nil {
		p.shaper.log.Debug("worker: a task of a paused queue is not there", zap.String("queue", task.queue),
			zap.String("task", task.id), zap.Error(err))
	}
}

// missed notes that a task of a lane was gone: perhaps many are. If many were, one after the
// other, the lane is cleared.
func (p *prospects) missed(lane string) {
	if lane == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for other, known := range p.lanes {
		if known.until.Before(now) {
			delete(p.lanes, other)
		}
	}
	known := doubt{until: now.Add(doubted), row: p.lanes[lane].row + 1}
	p.lanes[lane] = known
	if known.row >= manyMissed {
		p.clear(lane)
	}
}

// came notes that a task of a lane was there.
func (p *prospects) came(lane string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, is := p.lanes[lane]; is {
		p.lanes[lane] = doubt{until: known.until}
	}
}

// isPaused asks asynq, about once a second for each queue.
func (p *prospects) isPaused(queue string) bool {
	p.mu.Lock()
	known := p.queues[queue]
	p.mu.Unlock()
	if time.Since(known.at) < queueKnown {
		return known.holds()
	}
	if info, err := p.shaper.inspector.GetQueueInfo(queue); err == nil {
		known = known.after(info)
	} else {
		known = queueLook{at: time.Now()}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queues[queue] = known
	return known.holds()
}

// clear has a lane cleared, by a goroutine that runs while there is one. It returns false if
// the lane is being cleared, if too many are, or after end. The caller holds mu.
func (p *prospects) clear(lane string) bool {
	if p.ended || len(p.clearing) >= mostLanes || slices.Contains(p.clearing, lane) {
		return false
	}
	p.clearing = append(p.clearing, lane)
	if !p.running {
		p.running = true
		p.done.Go(p.run)
	}
	return true
}

// end keeps the goroutine from being started; one that runs ends by the shaper's
// stopped. What it has not asked about stays in line.
func (p *prospects) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
}
