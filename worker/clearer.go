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
	// manyMissed is how many tasks of a lane are gone, one after the other, before it
	// is cleared: fewer are given back as they are booked.
	manyMissed = 32
	// mostLanes is how many lanes a process takes on at most.
	mostLanes = 100
	// clearedAtOnce is about how many jobs of a lane are looked at before the next are
	// read from its front.
	clearedAtOnce = 5_000
	// lookers are how many tasks asynq is asked about at the same time.
	lookers = 16
)

// clearer takes the tasks out of line that will not come, where they are many in a row:
// a backlog was deleted, a queue was paused. A pull would book them only as fast as
// their turn comes. It asks asynq about the lane's tasks, from the front on, until more
// of them come than are gone. A goroutine runs while there is a lane.
type clearer struct {
	shaper  *Shaper
	done    sync.WaitGroup
	warning seldom

	mu      sync.Mutex
	lanes   []string // the first is being cleared
	running bool
	ended   bool
}

// take takes a lane on. It returns false if it has it, if there are too many, or after
// stop.
func (w *clearer) take(lane string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || len(w.lanes) >= mostLanes || slices.Contains(w.lanes, lane) {
		return false
	}
	w.lanes = append(w.lanes, lane)
	if !w.running {
		w.running = true
		w.done.Go(w.run)
	}
	return true
}

// end keeps the goroutine from being started; one that runs ends by the shaper's
// stopped. What it has not asked about stays in line.
func (w *clearer) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
}

func (w *clearer) run() {
	for {
		lane, is := w.first()
		if !is {
			return
		}
		if err := w.clearLane(context.Background(), lane); err != nil && !w.shaper.isStopped() && w.warning.due(time.Second) {
			w.shaper.log.Warn("worker: what will not come is still in line, it is tried again", zap.Error(err))
		}
		w.drop(lane)
	}
}

// first is the lane to clear; none ends the goroutine.
func (w *clearer) first() (lane string, is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.lanes) == 0 || w.shaper.isStopped() {
		w.running = false
		return "", false
	}
	return w.lanes[0], true
}

// drop lets a lane be taken on again.
func (w *clearer) drop(lane string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lanes = slices.DeleteFunc(w.lanes, func(other string) bool { return other == lane })
}

// clearLane takes out of a lane what will not come, as far as more of it comes. What is
// booked meanwhile moves the jobs that are not read yet forward, and some may be missed:
// the puller finds them.
func (w *clearer) clearLane(ctx context.Context, lane string) error {
	p := w.shaper.puller
	for !w.shaper.isStopped() {
		tasks, last, err := w.read(ctx, lane)
		if err != nil {
			return err
		}
		gone := 0
		for some := range slices.Chunk(tasks, clearedAtOnce/10) {
			n, err := p.leave(ctx, some, p.look(some))
			if err != nil {
				return err
			}
			gone += n
		}
		if last || gone < len(tasks)/2 {
			p.came(lane) // it begins to count anew
			return nil
		}
	}
	return nil
}

// read reads tasks from the front of a lane, and tells whether it has no more.
func (w *clearer) read(ctx context.Context, lane string) (tasks []wakeup, last bool, err error) {
	for from := ""; len(tasks) < clearedAtOnce && !last; {
		jobs, next, err := w.shaper.driver.LaneJobs(ctx, lane, from)
		if err != nil {
			return nil, false, err
		}
		for _, r := range jobs {
			if task, is := w.shaper.puller.taskOf(r); is {
				tasks = append(tasks, task)
			}
		}
		from, last = next, next == ""
	}
	return tasks, last, nil
}

// inParallel does something n times, by some goroutines.
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
