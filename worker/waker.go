package worker

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

const (
	wakers      = 16                     // tasks that are woken at the same time
	stillActive = 10 * time.Millisecond  // until asynq has written a put-back
	planAhead   = 100 * time.Millisecond // for a planned task to be enqueued
	asynqsOwn   = time.Second / 2        // before asynq's own time a task is left to asynq
)

// wakeup is a task that was put back until its slot.
type wakeup struct {
	queue, id string
	retried   int // with the queue and the ID, names the attempt
	job       throttle.Job
	lane      string    // as the throttle's driver names it
	slot      time.Time // by the local clock
	at        time.Time // when to wake it
	atSlot    bool      // it is not to come before its slot
	missed    bool      // it was not there once
	turns     bool      // it is to be run from the archive
}

// waker moves put-back tasks to pending shortly before their slots. asynq's retry
// set keeps them too, to the second and durably: what the waker misses, because
// its process ends or Redis is away, comes back by that.
type waker struct {
	shaper  *Shaper
	first   chan struct{} // says that the first of the queue has changed
	done    sync.WaitGroup
	warning seldom

	mu      sync.Mutex
	queue   wakeups
	started bool
	ended   bool
}

func newWaker(s *Shaper) *waker { return &waker{shaper: s, first: make(chan struct{}, 1)} }

// wake takes a task on. The goroutines start with the first one. After Stop it is
// left to asynq's own time: it returns false.
func (w *waker) wake(task wakeup) bool {
	ahead := w.shaper.options.MaxWait
	if task.job.MaxWait > 0 {
		ahead = min(ahead, task.job.MaxWait) // as it will ask
	}
	if task.atSlot {
		ahead = 0
	}
	task.at = task.slot.Add(-ahead / 2)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return false
	}
	if !w.started {
		w.started = true
		for range wakers {
			w.done.Go(w.run)
		}
	}
	w.put(task)
	return true
}

// put adds a task to the queue. The caller holds mu.
func (w *waker) put(task wakeup) {
	heap.Push(&w.queue, task)
	w.signal()
}

// signal lets one sleeping goroutine look at the queue again.
func (w *waker) signal() {
	select {
	case w.first <- struct{}{}:
	default:
	}
}

// end keeps goroutines from being started; those that run end by the shaper's stopped.
// What is left in the queue comes back by asynq's time.
func (w *waker) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
}

func (w *waker) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	stopped := w.shaper.stopped
	for {
		task, due, wait := w.next()
		switch {
		case due:
			w.attend(task)
			continue
		case wait == 0:
			return
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-w.first:
		case <-stopped:
			stopped = nil // next returns what is left to do
		}
	}
}

// next takes the first task whose time has come, or says how long to sleep. Of
// several goroutines each sleeps for the first task; who comes second finds the
// next. After Stop there are only those that turn: without them, there is nothing to
// wait for.
func (w *waker) next() (task wakeup, due bool, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shaper.isStopped() {
		w.queue = slices.DeleteFunc(w.queue, func(task wakeup) bool { return !task.turns })
		heap.Init(&w.queue)
		if len(w.queue) == 0 {
			return task, false, 0
		}
	}
	if len(w.queue) == 0 {
		return task, false, time.Hour
	}
	if wait := time.Until(w.queue[0].at); wait > 0 {
		return task, false, wait
	}
	task, _ = heap.Pop(&w.queue).(wakeup)
	if len(w.queue) > 0 {
		w.signal()
	}
	return task, true, 0
}

// attend wakes one task. Where asynq's own time is near, or past, it is left to
// asynq: running a task that asynq may have finished by then would run it twice.
func (w *waker) attend(task wakeup) {
	s := w.shaper
	info, err := s.inspector.GetTaskInfo(task.queue, task.id)
	switch {
	case task.turns:
		w.bringBack(task, info, err)
		return
	case s.isStopped():
		return
	case err == nil && task.unrun(info):
		err = s.inspector.RunTask(task.queue, task.id)
	case WillNotCome(task.job.ID, info, err) && !task.missed:
		// Who planned it may just be about to enqueue it.
		task.missed, task.at = true, time.Now().Add(planAhead)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.put(task)
		return
	case WillNotCome(task.job.ID, info, err):
		s.puller.missed(task.lane)
		s.giveBack(context.Background(), task.job)
		return
	case err == nil && info.State == asynq.TaskStateActive && time.Since(task.slot) <= asynqsOwn:
		// asynq has not written the put-back yet. Or it waits in its handler.
		task.at = time.Now().Add(stillActive)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.put(task)
		return
	case err == nil && !task.rests(info):
		return // run by hand, perhaps failed since and waiting for its own time
	case err == nil && time.Since(task.slot) > asynqsOwn && time.Until(info.NextProcessAt) < asynqsOwn:
		return
	case err == nil:
		err = s.inspector.RunTask(task.queue, task.id)
	}
	if err != nil {
		if !s.isStopped() && w.warning.due(time.Second) {
			s.log.Warn("worker: tasks cannot be woken, asynq's own time brings them back",
				zap.String("queue", task.queue), zap.String("task", task.id), zap.Error(err))
		}
		return
	}
	s.stats.woken.Add(1)
}

// rests tells whether asynq keeps the task for later, in this attempt.
func (t wakeup) rests(info *asynq.TaskInfo) bool {
	return (info.State == asynq.TaskStateRetry || info.State == asynq.TaskStateScheduled) && info.Retried == t.retried
}

// isPending tells whether it waits for a worker, in this attempt.
func (t wakeup) isPending(info *asynq.TaskInfo) bool {
	return info.State == asynq.TaskStatePending && info.Retried == t.retried
}

// wakeups is a heap by the time to wake.
type wakeups []wakeup

func (q wakeups) Len() int           { return len(q) }
func (q wakeups) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q wakeups) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *wakeups) Push(x any) {
	if task, ok := x.(wakeup); ok {
		*q = append(*q, task)
	}
}

// Pop implements heap.Interface.
func (q *wakeups) Pop() any {
	old := *q
	task := old[len(old)-1]
	*q = old[:len(old)-1]
	return task
}
