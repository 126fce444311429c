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
	// doubted is how long, after a task of a lane was gone, asynq is asked about each task that
	// is pulled from that lane.
	doubted = 10 * time.Second
	// queueKnown is how long asynq's answer about a queue is used again.
	queueKnown = time.Second
	// unserved is how long a queue has pending tasks that no server takes before it counts as
	// paused: its servers may be restarting.
	unserved = time.Minute
	// manyMissed is how many tasks of a lane are gone, one after the other, before the lane
	// is cleared: fewer are given back when they are booked.
	manyMissed = 32
	// mostLanes is how many lanes wait to be cleared, at most.
	mostLanes = 100
)

// prospects is what this process knows about whether the tasks in line will come. Tasks that will
// not come leave the line: one by one when they are booked; if many in a row are gone, since a
// backlog was deleted or a queue paused, prospects clears their lane.
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
	until time.Time // asynq is asked about each task that is pulled from it
	row   int       // tasks that were gone, one after the other
}

// queueLook is asynq's last answer about a queue.
type queueLook struct {
	at     time.Time
	paused bool
	taken  int       // tasks that servers took, as far as asynq counts them
	idle   time.Time // since when tasks are pending and no server takes one; zero if one does
}

// isStill reports whether the tasks of a queue will not come: it is paused, or no server works it
// off.
func (q queueLook) isStill() bool {
	return q.paused || !q.idle.IsZero() && q.at.Sub(q.idle) >= unserved
}

// after returns the queueLook that follows this one with asynq's next answer.
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
	paused bool // its queue is paused, or no server works it off, and no worker has the task
}

// leaves reports whether the task will not use its reservation: it is gone, or its queue is paused.
func (p prospect) leaves() bool { return p.fate == gone || p.paused }

// doubts reports whether asynq is asked about a task before the waker gets it.
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
	found, info, _ := p.shaper.inspector.ask(task)
	seen := prospect{fate: found}
	switch found {
	case resting:
		seen.paused = p.isPaused(task.queue)
	case underway:
		seen.paused = info.State != asynq.TaskStateActive && p.isPaused(task.queue)
	case unknown, gone:
	}
	return seen
}

// leave gives back the reservations of tasks that will not use them, and returns the number of
// these tasks. Tasks that rest in a paused queue become pending: they ask when the queue goes on.
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
	if err == nil || errors.Is(err, throttle.ErrUnavailable) { // Redis may have carried it out all the same
		inParallel(len(rest), func(i int) { p.leavePending(rest[i]) })
	}
	p.shaper.puller.answered()
	return len(ids), err
}

// leavePending moves a task of a paused queue, which has left the line, to pending, unless it has
// gone on meanwhile.
func (p *prospects) leavePending(task wakeup) {
	found, _, err := p.shaper.inspector.ask(task)
	if found == resting {
		err = p.shaper.inspector.RunTask(task.queue, task.id)
	}
	if err != nil {
		p.shaper.log.Debug("worker: a task of a paused queue is not there", zap.String("queue", task.queue),
			zap.String("task", task.id), zap.Error(err))
	}
}

// missed notes that a task of a lane was gone. After many in a row the lane is cleared.
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

// isPaused reports whether the tasks of a queue will not come (isStill). It asks asynq about once
// a second for each queue.
func (p *prospects) isPaused(queue string) bool {
	p.mu.Lock()
	known := p.queues[queue]
	p.mu.Unlock()
	if time.Since(known.at) < queueKnown {
		return known.isStill()
	}
	if info, err := p.shaper.inspector.GetQueueInfo(queue); err == nil {
		known = known.after(info)
	} else {
		known = queueLook{at: time.Now()}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queues[queue] = known
	return known.isStill()
}

// clear hands a lane to the goroutine that clears lanes, and starts it. It returns false if
// the lane is being cleared, if too many lanes are, or after end. The caller has mu.
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

// end keeps the goroutine from being started; one that runs ends when the shaper stops. Tasks
// that it has not asked about stay in line.
func (p *prospects) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
}
