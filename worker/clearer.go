package worker

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

const (
	// clearedAtOnce is about how many jobs of a lane are read before reading begins again at
	// its front.
	clearedAtOnce = 5_000
	// lookers is how many tasks asynq is asked about at the same time.
	lookers = 16
)

// run clears lanes: a pull finds a task that will not come only when that task's turn comes. run
// asks asynq about a lane's tasks, some at a time from the front on, until more of these will come
// than leave.
func (p *prospects) run() {
	for {
		lane, is := p.first()
		if !is {
			return
		}
		if err := p.clearLane(context.Background(), lane); err != nil && !p.shaper.isStopped() && p.warning.due(time.Second) {
			p.shaper.log.Warn("worker: tasks that will not come are still in line, it is tried again", zap.Error(err))
		}
		p.drop(lane)
	}
}

// first returns the lane to clear. If there is none, the goroutine ends.
func (p *prospects) first() (lane string, is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.clearing) == 0 || p.shaper.isStopped() {
		p.running = false
		return "", false
	}
	return p.clearing[0], true
}

// drop takes a lane off the list, so that it may be cleared again later.
func (p *prospects) drop(lane string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clearing = slices.DeleteFunc(p.clearing, func(other string) bool { return other == lane })
}

// clearLane takes out of a lane the tasks that will not come, until more tasks will come than leave.
// Bookings made meanwhile move the unread jobs forward, so that clearLane may miss some: the puller
// finds these.
func (p *prospects) clearLane(ctx context.Context, lane string) error {
	for !p.shaper.isStopped() {
		tasks, last, err := p.read(ctx, lane)
		if err != nil {
			return err
		}
		left := 0
		for some := range slices.Chunk(tasks, clearedAtOnce/10) {
			n, err := p.leave(ctx, some, p.of(some))
			if err != nil {
				return err
			}
			left += n
		}
		if last || left < len(tasks)/2 {
			p.came(lane) // the count begins anew
			return nil
		}
	}
	return nil
}

// read reads tasks from the front of a lane. last is true if the lane has no more.
func (p *prospects) read(ctx context.Context, lane string) (tasks []wakeup, last bool, err error) {
	for from := ""; len(tasks) < clearedAtOnce && !last; {
		jobs, next, err := p.shaper.looks.Jobs(ctx, lane, from)
		if err != nil {
			return nil, false, err
		}
		for _, r := range jobs {
			if task, is := p.shaper.puller.taskOf(r); is {
				tasks = append(tasks, task)
			}
		}
		from, last = next, next == ""
	}
	return tasks, last, nil
}

// inParallel calls do n times, in some goroutines.
func inParallel(n int, do func(i int)) {
	var begun atomic.Int64
	var done sync.WaitGroup
	for range min(lookers, n) {
		done.Go(func() {
			for i := int(begun.Add(1)) - 1; i < n; i = int(begun.Add(1)) - 1 {
				do(i)
			}
		})
	}
	done.Wait()
}
