package worker

import (
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// mostBackoff is half of the longest time that a task is put back for while Redis cannot decide,
	// unless Options.Backoff is longer.
	mostBackoff = 30 * time.Second
	// mostRefused is how many tasks of an outage are remembered: the first ones, among them the
	// tasks that came for their slots.
	mostRefused = 10_000
)

// outage is a time in which Redis cannot decide. The tasks that are put back meanwhile are
// woken when Redis decides again, before asynq's own time: some of them are booked, and no
// other job gets their room until they come.
type outage struct {
	mu    sync.Mutex
	since time.Time         // when the first task was put back; zero if none was
	tasks map[string]wakeup // by the job's ID: a long outage refuses a task again and again
}

// refuse remembers a task, and returns for how long it is put back if no process wakes it: for as
// long as the outage has lasted, within bounds, and up to as long again, so that the tasks do
// not all come together.
func (o *outage) refuse(task wakeup, least time.Duration) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tasks == nil {
		o.since, o.tasks = time.Now(), make(map[string]wakeup)
	}
	if _, known := o.tasks[task.job.ID]; known || len(o.tasks) < mostRefused {
		o.tasks[task.job.ID] = task
	}
	delay := max(least, min(time.Since(o.since), mostBackoff))
	return delay + rand.N(delay)
}

// over ends the outage, and returns its tasks: their slots are now.
func (o *outage) over() []wakeup {
	o.mu.Lock()
	defer o.mu.Unlock()
	tasks := make([]wakeup, 0, len(o.tasks))
	for _, task := range o.tasks {
		task.slot = time.Now()
		tasks = append(tasks, task)
	}
	o.tasks = nil
	return tasks
}
