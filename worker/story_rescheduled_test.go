package worker_test

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestRescheduledTaskKeepsItsTime: to give a task another time, a user of asynq must delete it and
// enqueue it anew under its ID. The new task runs at its new time, not at the slot of the deleted
// task, and the reservation of the deleted task holds no other task up.
func TestRescheduledTaskKeepsItsTime(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	const later = time.Minute // much later than the slot, which is in 10 s
	byAsynq := func(w *world, task *asynq.Task, id string) {
		w.send(task, asynq.TaskID(id), asynq.ProcessIn(later))
	}
	byClient := func(w *world, task *asynq.Task, id string) {
		if _, err := w.newClient().Enqueue(w.t.Context(), task, asynq.TaskID(id), asynq.ProcessIn(later)); err != nil {
			w.t.Fatal(err)
		}
	}
	putBack := func(w *world, id string) {
		w.enqueue(2, "acme", 1, asynq.TaskID(id))
		w.until("the task is put back", time.Second, w.in(id, asynq.TaskStateRetry))
	}
	planned := func(w *world, id string) {
		task := worker.NewTask("mail", nil, headers("acme", 1))
		if _, err := w.newClient().Enqueue(w.t.Context(), task, asynq.TaskID(id)); err != nil {
			w.t.Fatal(err)
		}
		w.until("the task is planned", time.Second, w.in(id, asynq.TaskStateScheduled))
	}
	rows := map[string]struct {
		place func(w *world, id string)
		anew  func(w *world, task *asynq.Task, id string)
	}{
		"put back":                   {putBack, byAsynq},
		"planned":                    {planned, byAsynq},
		"put back, anew by a Client": {putBack, byClient},
		"planned, anew by a Client":  {planned, byClient},
		"planned, with its headers":  {planned, nil},
		"put back, with its headers": {putBack, nil},
	}
	for name, row := range rows {
		for kind, opts := range map[string]*throttle.Options{"booked": {Lookahead: farAhead}, "in line": nil} {
			t.Run(name+", "+kind, func(t *testing.T) {
				inBubbleWith(t, perTenant(1, 10*time.Second), opts, func(t *testing.T, w *world) {
					w.serve(asynq.Config{Concurrency: 4})
					w.enqueue(1, "acme", 1)
					w.drained(1, time.Second)
					const id = "000002"
					row.place(w, id)
					info := w.task(id)
					if err := w.tasks.DeleteTask("default", id); err != nil {
						t.Fatal(err)
					}
					again, anew := time.Now(), row.anew
					task := worker.NewTask("mail", nil, headers("acme", 1))
					if anew == nil {
						task, anew = asynq.NewTaskWithHeaders("mail", nil, info.Headers), byAsynq
					}
					anew(w, task, id)
					other := w.enqueue(3, "acme", 1)
					w.until("another has run", 25*time.Second, func() bool { return w.ran(other) == 1 })
					if w.ran(id) == 1 {
						t.Fatalf("the new task ran after %s, want %s", w.startOf(id)-again.Sub(w.began), later)
					}
					w.drained(3, later+time.Minute)
					if got := w.startOf(id) - again.Sub(w.began); got < later-time.Second || got > later+12*time.Second {
						t.Errorf("the new task ran after %s, want %s", got, later)
					}
					w.checked(3)
				})
			})
		}
	}
}
