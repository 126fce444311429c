package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

const (
	// manyMissed is how many tasks of a lane are gone, one after the other, before it
	// is weeded: fewer are given back one by one before others notice.
	manyMissed = 32
	// mostWeeding is how many lanes a process takes on at most.
	mostWeeding = 100
	// leftAlone is how long a lane is not pulled, from each page on. A process that
	// dies holds it up no longer.
	leftAlone = time.Second
	// lookers are how many tasks asynq is asked about at the same time.
	lookers = 8
)

// weeder takes the tasks out of line that will not come, where they are many in a row:
// a backlog was deleted, a queue was paused. The puller, which all wait for, would
// book and give back one after the other; it leaves such a lane alone and goes on with
// others, while the weeder asks asynq about the lane's tasks, a page at a time, until
// it finds one that comes. A goroutine runs while there is a lane.
type weeder struct {
	shaper  *Shaper
	done    sync.WaitGroup
	warning seldom

	mu      sync.Mutex
	lanes   []throttle.Lane // the first is being weeded
	running bool
	ended   bool
}

// take takes a lane on. It returns false if there are too many, or after stop.
func (w *weeder) take(lane throttle.Lane) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || len(w.lanes) >= mostWeeding {
		return false
	}
	w.lanes = append(w.lanes, lane)
	if !w.running {
		w.running = true
		w.done.Go(w.run)
	}
	return true
}

// has tells whether a lane is taken on and not to be pulled.
func (w *weeder) has(lane throttle.Lane) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.lanes, lane)
}

// end keeps the goroutine from being started; one that runs ends by the shaper's
// stopped. What it has not asked about stays in line.
func (w *weeder) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
}

func (w *weeder) run() {
	for {
		lane, is := w.first()
		if !is {
			return
		}
		if err := w.weed(context.Background(), lane); err != nil && !w.shaper.isStopped() && w.warning.due(time.Second) {
			w.shaper.log.Warn("worker: the line cannot be looked after, the next sweep tries again", zap.Error(err))
		}
		w.drop(lane)
	}
}

// first is the lane to weed; none ends the goroutine.
func (w *weeder) first() (lane throttle.Lane, is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.lanes) == 0 || w.shaper.isStopped() {
		w.running = false
		return "", false
	}
	return w.lanes[0], true
}

// drop leaves a lane to the puller again.
func (w *weeder) drop(lane throttle.Lane) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lanes = slices.DeleteFunc(w.lanes, func(other throttle.Lane) bool { return other == lane })
}

// weed takes out of a lane what will not come, as far as the first task that may.
func (w *weeder) weed(ctx context.Context, lane throttle.Lane) error {
	aside, last, taken := leftAlone, false, 0
	var seen page
	for {
		front, next, err := w.shaper.throttle.Weed(ctx, lane, seen.gone, aside)
		switch {
		case errors.Is(err, throttle.ErrUnavailable) && w.shaper.pause(sweepEvery) == nil:
			continue // it may have been done, and what a paused queue holds has no place then
		case err != nil:
			return err
		}
		inParallel(len(seen.held), func(i int) { w.shaper.leavePending(seen.held[i]) })
		if last {
			if next != "" {
				w.shaper.puller.hint(next)
			}
			return nil
		}
		seen = w.look(front)
		taken += len(seen.gone)
		if last = len(seen.gone) < len(front) || len(front) == 0; last {
			w.drop(lane)
			// Where nothing can be found out, it is tried again later.
			if seen.comes || taken > 0 {
				aside = 0
				w.shaper.puller.came(lane)
			}
		}
	}
}

// page is what asynq knows of the tasks at the front of a lane.
type page struct {
	gone  []throttle.Job // of those that will not come
	held  []wakeup       // of these, those that a paused queue holds
	comes bool           // one does
}

// look asks asynq about tasks. What it does not say, or is not asked for since the
// shaper stops, may come.
func (w *weeder) look(front []throttle.Job) (seen page) {
	tasks, prospects := make([]wakeup, len(front)), make([]prospect, len(front))
	inParallel(len(front), func(i int) {
		queue, id, retried, isTask := parseJobID(front[i].ID)
		tasks[i] = wakeup{queue: queue, id: id, retried: retried, job: front[i]}
		switch {
		case !isTask:
			prospects[i] = comes
		case !w.shaper.isStopped():
			prospects[i] = w.shaper.puller.prospectOf(tasks[i])
		}
	})
	for i, p := range prospects {
		switch p {
		case comes:
			seen.comes = true
		case held:
			seen.held = append(seen.held, tasks[i])
			seen.gone = append(seen.gone, front[i])
		case missing:
			seen.gone = append(seen.gone, front[i])
		}
	}
	return seen
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
