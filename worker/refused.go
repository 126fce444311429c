package worker

import (
	"sync"
	"time"
)

// mostRefused is how many tasks of an outage are remembered: the first, among which are
// those that came for their slots.
const mostRefused = 1000

// refused are the tasks that were put back since Redis could not decide. Some of them have
// bookings, whose room nobody else is given until they come. So they are woken when Redis
// decides again, before asynq's own time.
type refused struct {
	mu    sync.Mutex
	tasks map[string]wakeup // by the job's ID: a long outage refuses a task again and again
}

func (r *refused) add(task wakeup) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tasks == nil {
		r.tasks = make(map[string]wakeup)
	}
	if _, known := r.tasks[task.job.ID]; known || len(r.tasks) < mostRefused {
		r.tasks[task.job.ID] = task
	}
}

// wake hands them to the waker.
func (r *refused) wake(w *waker) {
	r.mu.Lock()
	tasks := r.tasks
	r.tasks = nil
	r.mu.Unlock()
	now := time.Now()
	for _, task := range tasks {
		task.slot = now
		w.wake(task)
	}
}
