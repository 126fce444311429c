package worker

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

const (
	wakers      = 16                     // tasks that are woken at the same time
	stillActive = 10 * time.Millisecond  // asynq has this long to write a put-back; then twice as long
	mostApart   = 50 * time.Millisecond  // bounds that doubling
	planAhead   = 100 * time.Millisecond // a Client has this long to enqueue a task that it planned
	wakeAgain   = time.Second            // asynq's Redis has this long to recover
	asynqsOwn   = time.Second / 2        // this near to asynq's own time, or active this late, a task is left to asynq
	unlistedFor = 10 * time.Second       // after its slot, a task that cannot be found is left to asynq
)

// wakeup is a task that was put back, or planned, and has a slot.
type wakeup struct {
	queue, id string
	retried   int // with the queue and the ID, names the attempt
	job       throttle.Job
	lane      string        // as the throttle's driver names it
	slot      time.Time     // by the local clock
	at        time.Time     // when to wake it
	atSlot    bool          // it must not come before its slot
	missed    bool          // asynq did not have it once
	apart     time.Duration // between the last two questions about a task that was active
}

// waker makes tasks pending shortly before their slots: tasks that were put back or planned. asynq's
// retry or scheduled set also keeps their times, durably and to the second: if the waker misses a
// task, because its process ends or Redis is away, asynq brings it back.
type waker struct {
	shaper  *Shaper
	first   chan struct{} // the first task of the queue has changed
	done    sync.WaitGroup
	warning seldom

	mu      sync.Mutex
	queue   wakeups
	started bool
	ended   bool
}

func newWaker(s *Shaper) *waker { return &waker{shaper: s, first: make(chan struct{}, 1)} }

// wake takes on a task. The goroutines start with the first one. After Stop, tasks are
// left to asynq's own time.
func (w *waker) wake(task wakeup) {
	ahead := w.shaper.options.MaxWait
	if task.job.MaxWait > 0 {
		ahead = min(ahead, task.job.MaxWait) // the task will ask with this MaxWait
	}
	if task.atSlot {
		ahead = 0
	}
	task.at = task.slot.Add(-ahead / 2)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	if !w.started {
		w.started = true
		for range wakers {
			w.done.Go(w.run)
		}
	}
	w.put(task)
}

// put adds a task to the queue. The caller has mu.
func (w *waker) put(task wakeup) {
	heap.Push(&w.queue, task)
	w.signal()
}

// signal makes one sleeping goroutine read the queue again.
func (w *waker) signal() {
	select {
	case w.first <- struct{}{}:
	default:
	}
}

// end keeps goroutines from being started; running ones end when the shaper stops.
// asynq brings the tasks that are left in the queue, at its own time.
func (w *waker) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
}

func (w *waker) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for !w.shaper.isStopped() {
		task, wait := w.next()
		if wait == 0 {
			w.attend(task)
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-w.first:
		case <-w.shaper.stopped:
		}
	}
}

// next takes the first task if its time has come, or returns how long to sleep. All
// goroutines sleep until the first task; the second to wake finds the next task.
func (w *waker) next() (task wakeup, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return task, time.Hour
	}
	if wait := time.Until(w.queue[0].at); wait > 0 {
		return task, wait
	}
	task, _ = heap.Pop(&w.queue).(wakeup)
	if len(w.queue) > 0 {
		w.signal()
	}
	return task, 0
}

// attend wakes one task, if this library put it back or planned it.
func (w *waker) attend(task wakeup) {
	s := w.shaper
	found, info, err := s.inspector.ask(task)
	switch found {
	case resting:
		// If asynq's own time is near, the task is left to asynq, which may have finished it before
		// RunTask: that would run it twice.
		if time.Since(task.slot) > asynqsOwn && time.Until(info.NextProcessAt) < asynqsOwn {
			return
		}
		if err = s.inspector.RunTask(task.queue, task.id); err == nil {
			s.stats.woken.Add(1)
			return
		}
		if found, _, _ = s.inspector.ask(task); found == underway {
			return // asynq, or another process, made it pending meanwhile
		}
	case underway:
		// asynq has not written the put-back yet, or the task waits in its handler. Each question
		// reads the payload too.
		if info.State == asynq.TaskStateActive && time.Since(task.slot) <= asynqsOwn {
			task.apart = min(max(stillActive, 2*task.apart), mostApart)
			w.again(task, task.apart)
		}
		return
	case gone:
		if !task.missed {
			task.missed = true
			w.again(task, planAhead) // a Client may be about to enqueue the task that it planned
			return
		}
		s.puller.prospects.missed(task.lane)
		s.giveBack(context.Background(), task.job)
		return
	case unknown:
		if errors.Is(err, errUnlisted) {
			if time.Since(task.slot) < unlistedFor { // another process may add the queue
				w.again(task, wakeAgain)
			}
			return
		}
	}
	s.puller.unwoken.Store(true)
	w.again(task, wakeAgain)
	if !s.isStopped() && w.warning.due(time.Second) {
		s.log.Warn("worker: tasks cannot be woken, it is tried again",
			zap.String("queue", task.queue), zap.String("task", task.id), zap.Error(err))
	}
}

// again attends to a task once more, after a while.
func (w *waker) again(task wakeup, after time.Duration) {
	task.at = time.Now().Add(after)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.put(task)
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
