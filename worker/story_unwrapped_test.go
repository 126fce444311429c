package worker_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap/zaptest/observer"

	"github.com/asynq-throttle/asynq-throttle/worker"
)

// saysUnwrapped counts the lines that say that Wrap was forgotten.
func saysUnwrapped(logs *observer.ObservedLogs) int {
	return logs.Filter(func(e observer.LoggedEntry) bool {
		return strings.Contains(e.Message, "Shaper.Wrap is around no handler")
	}).Len()
}

// TestWrapForgotten: if the Config of a shaper is used and its Wrap is not, the shaper logs that,
// once. It does not if Wrap is used: around a handler, in a mux, or around the handler of another
// kind of task; nor before the first task.
func TestWrapForgotten(t *testing.T) {
	t.Parallel()
	bare := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })
	for name, row := range map[string]struct {
		handler func(s *worker.Shaper) asynq.Handler
		tasks   int
		want    int
	}{
		"forgotten": {func(*worker.Shaper) asynq.Handler { return bare }, 30, 1},
		"no task":   {func(*worker.Shaper) asynq.Handler { return bare }, 0, 0},
		"a handler": {func(s *worker.Shaper) asynq.Handler { return s.Wrap(bare) }, 3, 0},
		"a mux": {func(s *worker.Shaper) asynq.Handler {
			mux := asynq.NewServeMux()
			mux.Use(s.Wrap)
			mux.Handle("mail", bare)
			return mux
		}, 3, 0},
		"other tasks": {func(s *worker.Shaper) asynq.Handler {
			mux := asynq.NewServeMux()
			mux.Handle("mail", bare)
			mux.Handle("call", s.Wrap(bare))
			return mux
		}, 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, perTenant(10, time.Second), func(t *testing.T, w *world) {
				opts, logs := watched()
				s := w.newShaper(opts)
				var based atomic.Int64
				cfg := s.Configure(asynq.Config{Concurrency: 2, BaseContext: func() context.Context {
					based.Add(1)
					return context.Background()
				}})
				w.start(w.client, cfg, row.handler(s))
				for n := range row.tasks {
					id := w.enqueue(n, "acme", 1)
					w.until("the task has run", time.Minute, w.gone(id))
				}
				time.Sleep(time.Minute)
				if got := saysUnwrapped(logs); got != row.want {
					t.Errorf("said %d times, want %d: %v", got, row.want, logs.All())
				}
				if based := int(based.Load()); based < row.tasks {
					t.Errorf("the user's BaseContext was called %d times, want for each of %d tasks", based, row.tasks)
				}
			})
		})
	}
}
