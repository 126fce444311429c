package worker_test

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// rarely is a server that looks for tasks seldom, so that virtual hours pass soon.
var rarely = asynq.Config{Concurrency: 4, TaskCheckInterval: 2 * time.Second, DelayedTaskCheckInterval: 10 * time.Second}

// TestWaitInsideIsLongerThanTheTimeout lets tasks without a retry left, which cannot be
// put back, wait longer in their handlers than their Timeout, or the 30 minutes that asynq
// gives those without one. They run once, at their slot, with most of a Timeout left.
func TestWaitInsideIsLongerThanTheTimeout(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name    string
		window  time.Duration
		timeout time.Duration // 0 is asynq's own
		late    time.Duration // behind the slot, at most
		cfg     asynq.Config
	}{
		{"no Timeout", 32 * time.Minute, 0, 3 * time.Second, rarely},
		{"Timeout 1s", 5 * time.Second, time.Second, 700 * time.Millisecond, asynq.Config{Concurrency: 4}},
		{"Timeout 4s", 15 * time.Second, 4 * time.Second, 700 * time.Millisecond, asynq.Config{Concurrency: 4}},
	}
	for _, row := range rows {
		for kind, opts := range map[string]*throttle.Options{"booked": {Lookahead: farAhead}, "in line": nil} {
			t.Run(row.name+", "+kind, func(t *testing.T) {
				inBubbleWith(t, perTenant(1, row.window), opts, func(t *testing.T, w *world) {
					w.handle = 0
					var left time.Duration
					w.result = func(ctx context.Context, _ *asynq.Task) error {
						deadline, _ := ctx.Deadline()
						left = time.Until(deadline)
						return nil
					}
					var user asked
					cfg := row.cfg
					cfg.ErrorHandler = user.config().ErrorHandler
					w.serve(cfg)
					w.enqueue(0, "acme", 1)
					w.drained(1, 5*time.Second)
					began := w.startOf("000000")
					enqueued := []asynq.Option{asynq.MaxRetry(0)}
					if row.timeout > 0 {
						enqueued = append(enqueued, asynq.Timeout(row.timeout))
					}
					id := w.enqueuePlain(1, "acme", 1, enqueued...)
					w.drained(2, 2*row.window)
					w.until("asynq is done with the task", time.Second, w.gone(id))
					w.checked(2)
					w.archived(0)
					if late := w.startOf(id) - began - row.window; late > row.late {
						t.Errorf("it ran %s behind its slot, want %s at most", late, row.late)
					}
					if whole := cmp.Or(row.timeout, 30*time.Minute); left < whole/3 {
						t.Errorf("%s were left to the handler, want a third of %s", left, whole)
					}
					if _, _, errHandler := user.heard(); len(errHandler) != 0 {
						t.Errorf("ErrorHandler heard of %v, want nothing", errHandler)
					}
				})
			})
		}
	}
}

// TestWaitInsideForRedisIsLongerThanTheTimeout has nothing booked: Redis cannot decide,
// or a limit that was set has no room for the task's weight.
func TestWaitInsideForRedisIsLongerThanTheTimeout(t *testing.T) {
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
			if err := w.throttle.SetLimits(w.t.Context(), "tenant", "acme", []throttle.Limit{throttle.PerMinute(1)}); err != nil {
				w.t.Fatal(err)
			}
			return func() {
				if err := w.throttle.ResetLimits(context.Background(), "tenant", "acme"); err != nil {
					w.t.Error(err)
				}
			}
		}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, perTenant(100, time.Second), func(t *testing.T, w *world) {
				wire := newWire(w)
				th, err := throttle.New("world", wire.client, w.scopes, nil)
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
				id := w.enqueuePlain(0, "acme", 2, asynq.MaxRetry(0), asynq.Timeout(4*time.Second))
				w.drained(1, 4*outage)
				w.until("asynq is done with the task", time.Second, w.gone(id))
				w.checked(1)
				w.archived(0)
			})
		})
	}
}

// TestWaitInsideAsTheUpstreamAsks lets an upstream ask to wait for longer than the
// Timeout of a task that cannot be put back.
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
		id := w.enqueuePlain(0, "acme", 1, asynq.MaxRetry(0), asynq.Timeout(4*time.Second))
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

// TestStopAmidTurns stops processes, again and again, whose waiting tasks leave their
// handlers all the time since their Timeout is short: none is left behind in the archive.
func TestStopAmidTurns(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, 30*time.Second), func(t *testing.T, w *world) {
		const tasks = 8
		w.serve(asynq.Config{Concurrency: 4})
		for n := range tasks {
			w.enqueue(n, string(rune('a'+n)), 1)
		}
		w.drained(tasks, 5*time.Second)
		for n := range tasks {
			w.enqueuePlain(tasks+n, string(rune('a'+n)), 1, asynq.MaxRetry(0), asynq.Timeout(12*time.Second))
		}
		w.shaper.Stop()
		for round := range 3 {
			s := w.newShaper(nil)
			server := w.serveWith(s, asynq.Config{Concurrency: tasks, ShutdownTimeout: time.Second})
			// The turns come six seconds after the start: now before, now amid, now after them.
			time.Sleep(5995*time.Millisecond + time.Duration(round)*10*time.Millisecond)
			s.Stop()
			server.Shutdown()
			w.archived(0)
		}
		w.serveWith(w.newShaper(nil), asynq.Config{Concurrency: tasks})
		w.drained(2*tasks, 2*time.Minute)
		w.checked(2 * tasks)
		w.archived(0)
	})
}

// TestWaitInsideOutlivesTheProcess cuts a process off for good, as kill -9 does, while
// tasks without a retry wait in its handlers: booked, in line, and behind others. asynq
// archives them, which another process undoes: their places say that they have not run.
func TestWaitInsideOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	for kind, opts := range map[string]*throttle.Options{"booked": {Lookahead: farAhead}, "in line": nil} {
		t.Run(kind, func(t *testing.T) {
			inBubbleWith(t, perTenant(1, 20*time.Second), opts, func(t *testing.T, w *world) {
				wire := newWire(w)
				th, err := throttle.New("world", wire.client, w.scopes, opts)
				if err != nil {
					t.Fatal(err)
				}
				killed, err := worker.New(th, wire.client, jobOf, nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(killed.Stop)
				server := w.start(wire.client, killed.Configure(asynq.Config{Concurrency: 8}), killed.Wrap(asynq.HandlerFunc(w.process)))
				w.enqueue(0, "acme", 1)
				w.drained(1, time.Second)
				const waiting = 4
				for n := range waiting {
					w.enqueuePlain(1+n, "acme", 1, asynq.MaxRetry(0))
				}
				time.Sleep(5 * time.Second)
				wire.cut()
				w.serveWith(w.newShaper(nil), asynq.Config{Concurrency: 8})
				w.drained(1+waiting, 10*time.Minute)
				w.checked(1 + waiting)
				w.archived(0)
				wire.mend()
				killed.Stop()
				server.Shutdown()
			})
		})
	}
}

// TestArchivedByHandStaysArchived archives what has waited in its handler by hand, and
// cancels it: neither is run again.
func TestArchivedByHandStaysArchived(t *testing.T) {
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

// TestMaxWaitLeavesTheTimeout puts a task back whose start is nearer than MaxWait, and
// further than its Timeout.
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
			if stats := w.shaper.Stats(); stats.Denied > 3 {
				t.Errorf("put back %d times, want once or twice", stats.Denied)
			}
			if got := w.startOf(id); got < 3*time.Second || got > 3200*time.Millisecond {
				t.Errorf("it ran after %s, want its slot at 3s", got)
			}
		})
	}
}
