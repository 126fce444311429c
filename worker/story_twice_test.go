package worker_test

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// TestWrappedTwice: a shaper that wraps a handler twice reserves each task once, and logs
// the mistake once.
func TestWrappedTwice(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(2, 10*time.Second), func(t *testing.T, w *world) {
		opts, logs := watched()
		s := w.newShaper(opts)
		mux := asynq.NewServeMux()
		mux.Use(s.Wrap)
		mux.Handle("mail", s.Wrap(asynq.HandlerFunc(w.process)))
		const tasks = 5
		for n := range tasks {
			w.enqueue(n, "acme", 1)
		}
		w.start(w.client, s.Configure(asynq.Config{Concurrency: 4}), mux)
		w.drained(tasks, time.Minute)
		w.checked(tasks)
		w.archived(0)
		if got := errorsIn(logs); got != 1 {
			t.Errorf("logged %d errors, want 1: %v", got, logs.All())
		}
		if got := s.Stats().Granted; got != tasks {
			t.Errorf("granted %d tasks, want %d", got, tasks)
		}
	})
}
