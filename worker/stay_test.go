package worker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestWaitInsideWithinTheTimeout: a task without a retry left, which cannot be put back, waits
// in its handler as long as its Timeout lets it. It runs at its slot, or is ended with the
// reason; an ended task runs when a person runs it by hand.
func TestWaitInsideWithinTheTimeout(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		timeout time.Duration
		ended   bool
	}{
		"the slot is within it":  {30 * time.Second, false},
		"the slot is after it":   {15 * time.Second, true},
		"the slot is long after": {time.Second, true},
	}
	for name, row := range rows {
		for kind, opts := range map[string]*throttle.Options{"booked": {Lookahead: farAhead}, "in line": nil} {
			t.Run(name+", "+kind, func(t *testing.T) {
				inBubbleWith(t, perTenant(1, 20*time.Second), opts, func(t *testing.T, w *world) {
					var user asked
					w.serve(asynq.Config{Concurrency: 4, ErrorHandler: user.config().ErrorHandler})
					first := w.enqueue(0, "acme", 1)
					w.drained(1, 5*time.Second)
					id := w.enqueuePlain(1, "acme", 1, asynq.MaxRetry(0), asynq.Timeout(row.timeout))
					if row.ended {
						w.until("it is ended", row.timeout, w.in(id, asynq.TaskStateArchived))
						if got := w.task(id).LastErr; !strings.Contains(got, "no start within its Timeout") {
							t.Errorf("its last error is %q, want the reason", got)
						}
						if w.ran(id) != 0 || w.shaper.Stats().Ended != 1 {
							t.Errorf("it ran %d times, %+v; want 0, and one ended", w.ran(id), w.shaper.Stats())
						}
						if used, booked := w.used("acme"); used != 1 || booked != 0 {
							t.Errorf("used %d and booked %d, want 1 and nothing kept for it", used, booked)
						}
						time.Sleep(time.Until(w.began.Add(20 * time.Second)))
						if err := w.tasks.RunTask("default", id); err != nil {
							t.Fatal(err)
						}
					}
					w.drained(2, 25*time.Second)
					w.until("asynq is done with the task", time.Second, w.gone(id))
					w.checked(2)
					if late := w.startOf(id) - w.startOf(first) - 20*time.Second; late > 700*time.Millisecond {
						t.Errorf("it ran %s behind its slot", late)
					}
					if _, _, errHandler := user.errors(); len(errHandler) != 0 != row.ended {
						t.Errorf("ErrorHandler got %v", errHandler)
					}
				})
			})
		}
	}
}

// TestWaitInsideForRedis: a task waits in its handler without a booking, because Redis cannot
// decide or because the task weighs more than a limit that was set.
func TestWaitInsideForRedis(t *testing.T) {
	t.Parallel()
	const outage = 20 * time.Second
	rows := []struct {
		name string
		hold func(w *world, wire *wire) (release func())
	}{
		{"Redis cannot decide", func(_ *world, wire *wire) func() {
			wire.cut()
			return wire.mend
		}},
		{"blocked by a limit that was set", func(w *world, _ *wire) func() {
			if err := inspect.New(w.throttle).SetLimits(w.t.Context(), "tenant", "acme",
				[]throttle.Limit{throttle.PerMinute(1)}); err != nil {
				w.t.Fatal(err)
			}
			return func() {
				if err := inspect.New(w.throttle).ResetLimits(context.Background(), "tenant", "acme"); err != nil {
					w.t.Error(err)
				}
			}
		}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, perTenant(100, time.Second), func(t *testing.T, w *world) {
				wire := newWire(w)
				th, err := throttle.New("world", wire.client, w.scopes, &throttle.Options{Logger: zap.NewNop()})
				if err != nil {
					t.Fatal(err)
				}
				s, err := worker.New(th, w.client, jobOf, nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(s.Stop)
				w.serveWith(s, asynq.Config{Concurrency: 4})
				time.AfterFunc(outage, row.hold(w, wire))
				id := w.enqueuePlain(0, "acme", 2, asynq.MaxRetry(0), asynq.Timeout(4*outage))
				w.drained(1, 4*outage)
				w.until("asynq is done with the task", time.Second, w.gone(id))
				w.checked(1)
				w.archived(0)
			})
		})
	}
}

// TestWaitInsideAsTheUpstreamAsks lets an upstream ask a task that cannot be put back to
// wait.
func TestWaitInsideAsTheUpstreamAsks(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(100, time.Second), func(t *testing.T, w *world) {
		const asked = 30 * time.Second
		var first time.Time
		w.result = func(context.Context, *asynq.Task) error {
			if first.IsZero() {
				first = time.Now()
				return worker.AskedToWait("tenant", asked, nil)
			}
			return nil
		}
		w.serve(asynq.Config{Concurrency: 4})
		id := w.enqueuePlain(0, "acme", 1, asynq.MaxRetry(0))
		w.drained(1, time.Minute)
		w.until("asynq is done with the task", time.Second, w.gone(id))
		w.archived(0)
		if got := w.ran(id); got != 2 {
			t.Errorf("its handler was called %d times, want twice", got)
		}
		if got := w.startOf(id) - first.Sub(w.began); got < asked-time.Millisecond || got > asked+time.Second {
			t.Errorf("it was called again after %s, want %s", got, asked)
		}
	})
}

// TestLostWhileItWaitsInside cuts a process off for good, as kill -9 does, while tasks without
// a retry wait in its handlers. asynq archives these tasks, as it does without a throttle, and
// other tasks get their slots.
func TestLostWhileItWaitsInside(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	for kind, opts := range map[string]*throttle.Options{"booked": {Lookahead: farAhead}, "in line": nil} {
		t.Run(kind, func(t *testing.T) {
			inBubbleWith(t, perTenant(1, 40*time.Second), opts, func(t *testing.T, w *world) {
				wire := newWire(w)
				killed, err := worker.New(w.throttle, wire.client, jobOf, nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(killed.Stop)
				w.start(wire.client, killed.Configure(asynq.Config{Concurrency: 8}), killed.Wrap(asynq.HandlerFunc(w.process)))
				w.enqueue(0, "acme", 1)
				w.drained(1, time.Second)
				const waiting, others = 4, 4
				for n := range waiting {
					w.enqueuePlain(1+n, "acme", 1, asynq.MaxRetry(0))
				}
				time.Sleep(5 * time.Second)
				wire.cut()
				killed.Stop()
				w.serveWith(w.newShaper(nil), asynq.Config{Concurrency: 8})
				w.until("asynq has archived them", 5*time.Minute, func() bool {
					info, err := w.tasks.GetQueueInfo("default")
					return err == nil && info.Archived == waiting
				})
				for n := range others {
					w.enqueue(1+waiting+n, "acme", 1)
				}
				w.drained(1+others, (waiting+others+1)*40*time.Second)
				w.checked(1 + others)
				w.archived(waiting)
				wire.mend()
			})
		})
	}
}

// TestArchivedByHandStaysArchived cancels a task that waits in its handler, and archives a task that
// is put back: neither runs again.
func TestArchivedByHandStaysArchived(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	inFarAhead(t, perTenant(1, time.Minute), func(t *testing.T, w *world) {
		w.serve(asynq.Config{Concurrency: 4})
		w.enqueue(0, "acme", 1)
		w.drained(1, time.Second)
		cancelled := w.enqueuePlain(1, "acme", 1, asynq.MaxRetry(0))
		w.until("it waits in its handler", time.Second, w.in(cancelled, asynq.TaskStateActive))
		if err := w.tasks.CancelProcessing(cancelled); err != nil {
			t.Fatal(err)
		}
		w.until("it is archived", time.Second, w.in(cancelled, asynq.TaskStateArchived))
		put := w.enqueue(2, "acme", 1, asynq.MaxRetry(0))
		w.until("it is put back", time.Second, w.in(put, asynq.TaskStateRetry))
		if err := w.tasks.ArchiveTask("default", put); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		w.archived(2)
		if w.ran(cancelled)+w.ran(put) != 0 {
			t.Errorf("they ran %d and %d times, want neither", w.ran(cancelled), w.ran(put))
		}
	})
}

// TestMaxWaitLeavesTheTimeout: a task whose start is nearer than MaxWait, but further away than its
// Timeout, is put back.
func TestMaxWaitLeavesTheTimeout(t *testing.T) {
	t.Parallel()
	for _, maxRetry := range []int{0, 3} {
		inFarAhead(t, perTenant(1, 3*time.Second), func(t *testing.T, w *world) {
			w.shaper = w.newShaper(&worker.Options{MaxWait: 5 * time.Second})
			w.serve(asynq.Config{Concurrency: 4})
			w.enqueue(0, "acme", 1)
			w.drained(1, time.Second)
			id := w.enqueue(1, "acme", 1, asynq.MaxRetry(maxRetry), asynq.Timeout(2*time.Second))
			w.drained(2, 10*time.Second)
			w.until("asynq is done with the task", time.Second, w.gone(id))
			w.checked(2)
			w.archived(0)
			if stats := w.shaper.Stats(); stats.PutBack > 3 {
				t.Errorf("put back %d times, want once or twice", stats.PutBack)
			}
			if got := w.startOf(id); got < 3*time.Second || got > 3200*time.Millisecond {
				t.Errorf("it ran after %s, want its slot at 3s", got)
			}
		})
	}
}
