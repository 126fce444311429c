package worker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// TestWrappedTwice: of two wraps of a throttle around a handler, by one shaper or by two, one reserves each task, and
// the mistake is logged once.
func TestWrappedTwice(t *testing.T) {
	t.Parallel()
	for _, shapers := range []int{1, 2} {
		t.Run(fmt.Sprintf("by %d shapers", shapers), func(t *testing.T) {
			t.Parallel()
			inBubble(t, perTenant(2, 10*time.Second), func(t *testing.T, w *world) { w.wrappedTwice(shapers) })
		})
	}
}

func (w *world) wrappedTwice(shapers int) {
	opts, logs := watched()
	outer := w.newShaper(opts)
	inner := outer
	if shapers == 2 {
		inner = w.newShaper(opts)
	}
	mux := asynq.NewServeMux()
	mux.Use(outer.Wrap)
	mux.Handle("mail", inner.Wrap(asynq.HandlerFunc(w.process)))
	const tasks = 5
	for n := range tasks {
		w.enqueue(n, "acme", 1)
	}
	w.start(w.client, inner.Configure(outer.Configure(asynq.Config{Concurrency: 4})), mux)
	w.drained(tasks, time.Minute)
	w.checked(tasks)
	w.archived(0)
	if got := errorsIn(logs); got != 1 {
		w.t.Errorf("logged %d errors, want 1: %v", got, logs.All())
	}
	if got := outer.Stats().Granted; got != tasks {
		w.t.Errorf("granted %d tasks, want %d", got, tasks)
	}
}
