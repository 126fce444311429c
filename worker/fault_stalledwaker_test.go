package worker_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap/zapcore"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestWakerStallsBetweenLookAndWake lets the waker stand still after it has seen that its
// task rests, until another process has brought the task and it has ended. A task that asynq
// has forgotten by then is left alone. But a task that asynq keeps, archived or completed
// with a Retention, runs again: RunTask cannot say in which state the task must be.
// So the waker runs a task twice if its process stands still for longer than the rest
// of the wait and the handler take. The second run is charged like any other.
func TestWakerStallsBetweenLookAndWake(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name      string
		opts      []asynq.Option
		brought   func(w *world, id string) // while the waker stands still
		meanwhile int                       // runs
		runs      int                       // in the end
	}{
		{"brought by asynq, forgotten", nil, nil, 1, 1},
		{"run by hand, forgotten", nil, func(w *world, id string) { _ = w.tasks.RunTask("default", id) }, 1, 1},
		{"deleted", nil, func(w *world, id string) { _ = w.tasks.DeleteTask("default", id) }, 0, 0},
		{"archived", nil, func(w *world, id string) { _ = w.tasks.ArchiveTask("default", id) }, 0, 1},
		{"brought by asynq, kept", []asynq.Option{asynq.Retention(time.Hour)}, nil, 1, 2},
		{"run by hand, kept", []asynq.Option{asynq.Retention(time.Hour)},
			func(w *world, id string) { _ = w.tasks.RunTask("default", id) }, 1, 2},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			inBubbleWith(t, perTenant(1, 2*time.Second), &throttle.Options{Lookahead: 5 * time.Second},
				func(t *testing.T, w *world) {
					const stall = 5 * time.Second
					w.handle = time.Millisecond
					opts, logs := watched()
					slow := newWire(w)
					s, err := worker.New(w.throttle, slow.client, jobOf, opts)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(s.Stop)
					w.serveWith(s, asynq.Config{Concurrency: 4})
					var stalled atomic.Bool
					began := make(chan struct{})
					slow.before(func(cmd redis.Cmder) {
						if isRunTask(cmd) && stalled.CompareAndSwap(false, true) {
							close(began)
							time.Sleep(stall)
						}
					})
					id, slot := w.putBack("acme", row.opts...)
					<-began
					if row.brought != nil {
						row.brought(w, id)
					}
					time.Sleep(time.Until(slot) + stall - time.Second)
					if row.meanwhile != w.ran(id) {
						t.Errorf("it ran %d times while the waker stood still, want %d", w.ran(id), row.meanwhile)
					}
					time.Sleep(time.Minute)
					if got := w.ran(id); got != row.runs {
						t.Errorf("it ran %d times, want %d", got, row.runs)
					}
					w.withinLimits()
					w.archived(0)
					if warned := logs.FilterLevelExact(zapcore.WarnLevel).Len(); warned > 1 {
						t.Errorf("warned %d times, want at most once", warned)
					}
				})
		})
	}
}

// isRunTask recognizes asynq's script that moves a task to pending.
func isRunTask(cmd redis.Cmder) bool {
	name, args := cmd.Name(), cmd.Args()
	return (name == "evalsha" || name == "eval") && len(args) > 5 && slices.ContainsFunc(args[3:6], func(arg any) bool {
		key, isText := arg.(string)
		return isText && strings.HasSuffix(key, ":groups")
	})
}
