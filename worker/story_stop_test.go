package worker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestStopReturnsSleepers_F35 stops a process while tasks sleep in its handlers
// for the rest of their wait: they go back with their slots, and another process
// starts them there.
func TestStopReturnsSleepers_F35(t *testing.T) {
	t.Parallel()
	inBubbleWith(t, perTenant(1, 3*time.Second), &throttle.Options{Lookahead: 5 * time.Second},
		func(t *testing.T, w *world) {
			const tenants = 8
			first := w.newShaper(&worker.Options{MaxWait: 5 * time.Second})
			server := w.serveWith(first, asynq.Config{Concurrency: 2 * tenants})
			for n := range tenants {
				w.enqueue(n, fmt.Sprintf("t%d", n), 1)
			}
			w.drained(tenants, time.Second)
			var sleepers []string
			for n := range tenants {
				sleepers = append(sleepers, w.enqueue(tenants+n, fmt.Sprintf("t%d", n), 1))
			}
			for _, id := range sleepers {
				w.until("the task sleeps in its handler", time.Second, w.in(id, asynq.TaskStateActive))
			}
			slot := w.slotOf("t0")
			if used, booked := w.used("t0"); used != 1 || booked != 1 {
				t.Fatalf("used %d and booked %d while it sleeps until it is granted, want 1 and 1", used, booked)
			}
			before := time.Now()
			first.Stop()
			server.Shutdown()
			if took := time.Since(before); took >= time.Second {
				t.Errorf("Stop and Shutdown took %s, want less than 1s", took)
			}
			for _, id := range sleepers {
				if info := w.task(id); info == nil || info.State != asynq.TaskStateRetry || info.Retried != 0 {
					t.Errorf("task %s is %+v, want it waiting in the retry set, not retried", id, info)
				}
			}
			if used, booked := w.used("t0"); used != 1 || booked != 1 {
				t.Errorf("used %d and booked %d after Stop, want 1 and 1: the grant is a booking again", used, booked)
			}
			second := w.newShaper(&worker.Options{MaxWait: 5 * time.Second})
			w.serveWith(second, asynq.Config{Concurrency: 2 * tenants})
			w.drained(2*tenants, time.Minute)
			w.checked(2 * tenants)
			w.archived(0)
			for _, start := range w.starts[tenants:] {
				if late := start.At.Sub(slot); late < -100*time.Millisecond || late > 2*time.Second {
					t.Errorf("started %s after its slot, want asynq's time at most", late)
				}
			}
			if used, booked := w.used("t0"); used != 1 || booked != 0 {
				t.Errorf("used %d and booked %d, want 1 and 0: charged once", used, booked)
			}
		})
}

// TestAllInLineAtTheStart_F35 stops all processes while every task stands in line. A new process,
// to which asynq brings no task, goes on as soon as there is room: after the window, or when the
// limit is raised.
func TestAllInLineAtTheStart_F35(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	inBubble(t, perTenant(5, time.Hour), func(t *testing.T, w *world) {
		const tasks = 20
		server := w.serve(asynq.Config{Concurrency: 8})
		for n := range tasks {
			w.enqueue(n, "t", 1)
		}
		w.drained(5, time.Second)
		w.until("the others have been put back", 2*time.Second, func() bool {
			info, err := w.tasks.GetQueueInfo("default")
			return err == nil && info.Retry == tasks-5
		})
		w.shaper.Stop()
		server.Shutdown()
		time.Sleep(59 * time.Minute)
		w.serveWith(w.newShaper(nil), asynq.Config{Concurrency: 8})
		w.drained(10, 2*time.Minute)
		if got := w.makespan(); got > time.Hour+2*time.Second {
			t.Errorf("the tenth started after %s, want an hour: the window's end", got)
		}
		w.withinLimits()
		raised := time.Now()
		if err := inspect.New(w.throttle).SetLimits(t.Context(), "tenant", "t",
			[]throttle.Limit{throttle.PerHour(100)}); err != nil {
			t.Fatal(err)
		}
		w.drained(tasks, 10*time.Second)
		if got := time.Since(raised); got > 2*time.Second {
			t.Errorf("the last ended %s after the limit was raised, want at once", got)
		}
		w.archived(0)
	})
}

// TestMaxRetry0SurvivesShutdown_F35 stops a process whose handlers hold tasks that
// cannot go back: asynq requeues them after its ShutdownTimeout.
func TestMaxRetry0SurvivesShutdown_F35(t *testing.T) {
	t.Parallel()
	for _, stop := range []bool{true, false} {
		t.Run(fmt.Sprintf("Stop called %t", stop), func(t *testing.T) {
			inBubble(t, perTenant(1, 20*time.Second), func(t *testing.T, w *world) {
				server := w.serve(asynq.Config{Concurrency: 8, ShutdownTimeout: 2 * time.Second})
				const tasks = 6
				for n := range tasks {
					w.enqueuePlain(n, fmt.Sprintf("t%d", n%3), 1, asynq.MaxRetry(0))
				}
				w.drained(3, time.Second)
				before := time.Now()
				if stop {
					w.shaper.Stop()
				}
				server.Shutdown()
				if took := time.Since(before); took > 4*time.Second {
					t.Errorf("Shutdown took %s, want the ShutdownTimeout of 2s", took)
				}
				pending, err := w.tasks.ListPendingTasks("default")
				if err != nil || len(pending) != tasks-3 {
					t.Fatalf("%d tasks are pending (%v), want the %d that waited", len(pending), err, tasks-3)
				}
				time.Sleep(time.Second) // their handlers, left behind, end
				w.serveWith(w.newShaper(nil), asynq.Config{Concurrency: 8})
				w.drained(tasks, time.Minute)
				w.checked(tasks)
				w.archived(0)
				if got := w.makespan(); got > 20300*time.Millisecond {
					t.Errorf("the last started after %s, want its slot at 20s and the first poll", got)
				}
				for n := range 3 {
					if used, booked := w.used(fmt.Sprintf("t%d", n)); used != 1 || booked != 0 {
						t.Errorf("used %d and booked %d, want 1 and 0: each charged once", used, booked)
					}
				}
			})
		})
	}
}

// TestStopIsSafeAtAnyTime stops shapers that have not begun, twice, by several
// goroutines, and while tasks are being put back.
func TestStopIsSafeAtAnyTime(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(5, time.Second), func(t *testing.T, w *world) {
		idle := w.newShaper(nil)
		idle.Stop()
		idle.Stop()

		for round := range 4 {
			s := w.newShaper(nil)
			for n := range 60 {
				w.enqueue(100*round+n, fmt.Sprintf("t%d", n%3), 1)
			}
			server := w.serveWith(s, asynq.Config{Concurrency: 16})
			w.until("tasks come", 10*time.Second, func() bool { st := s.Stats(); return st.PutBack+st.Granted > int64(3*round) })
			var stops sync.WaitGroup
			for range 3 {
				stops.Go(s.Stop)
			}
			stops.Wait()
			server.Shutdown()
		}
		w.serveWith(w.newShaper(nil), asynq.Config{Concurrency: 16})
		w.drained(240, 5*time.Minute)
		w.checked(240)
		w.archived(0)
	})
}

// TestStopPublishesTheEnd: a process that was stopped is not compared with its successors.
func TestStopPublishesTheEnd(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(5, time.Second), func(t *testing.T, w *world) {
		w.serve(asynq.Config{Concurrency: 4})
		w.enqueue(0, "acme", 1)
		w.drained(1, time.Minute)
		alive := func() (alive, ended int) {
			all, err := inspect.New(w.throttle).Processes(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range all {
				if p.Alive {
					alive++
				}
				if p.Ended {
					ended++
				}
			}
			return alive, ended
		}
		if alive, ended := alive(); alive != 1 || ended != 0 {
			t.Errorf("%d processes live and %d have ended before Stop, want 1 and 0", alive, ended)
		}
		w.shaper.Stop()
		if alive, ended := alive(); alive != 0 || ended != 1 {
			t.Errorf("%d processes live and %d have ended after Stop, want 0 and 1", alive, ended)
		}
	})
}

// TestStoppedWakerWakesNobody: after Stop only asynq's own time brings tasks back.
func TestStoppedWakerWakesNobody(t *testing.T) {
	t.Parallel()
	inFarAhead(t, perTenant(1, 10*time.Second), func(t *testing.T, w *world) {
		w.serve(asynq.Config{Concurrency: 4})
		id, slot := w.putBack("acme")
		w.shaper.Stop()
		time.Sleep(time.Until(slot) + 10*time.Millisecond)
		if !w.in(id, asynq.TaskStateRetry)() {
			t.Errorf("the task is %s at its slot, want it left to asynq", w.task(id).State)
		}
		w.drained(2, 2*time.Second)
		w.checked(2)
		if got := w.shaper.Stats().Woken; got != 0 {
			t.Errorf("woken %d times, want 0", got)
		}
	})
}

// TestEndedContextGivesTheSlotBack cancels tasks that wait in their handler: the room of
// their bookings is free for others.
func TestEndedContextGivesTheSlotBack(t *testing.T) {
	t.Parallel()
	inFarAhead(t, []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.Per(1, 10*time.Second)}}},
		func(t *testing.T, w *world) {
			w.serve(asynq.Config{Concurrency: 4,
				RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour }})
			w.enqueue(0, "acme", 1)
			w.drained(1, time.Second)
			waits := w.enqueuePlain(1, "acme", 1, asynq.MaxRetry(0))
			w.until("the task waits in its handler", time.Second,
				func() bool { _, booked := w.used("acme"); return booked == 1 })
			if err := w.tasks.CancelProcessing(waits); err != nil {
				t.Fatal(err)
			}
			w.until("its slot is free", time.Second, func() bool { _, booked := w.used("acme"); return booked == 0 })
			if w.ran(waits) != 0 {
				t.Error("its handler was called")
			}
			w.archived(1) // asynq's own rule for a cancelled task without a retry
		})
}

// TestGrantIsInTheContext calls Grant inside and outside of a handler.
func TestGrantIsInTheContext(t *testing.T) {
	t.Parallel()
	if r, ok := worker.Grant(context.Background()); ok {
		t.Errorf("got a grant outside of a handler: %+v", r)
	}
	inBubble(t, perTenant(10, time.Second), func(t *testing.T, w *world) {
		var got throttle.Reservation
		w.result = func(ctx context.Context, _ *asynq.Task) error {
			got, _ = worker.Grant(ctx) // read after drained has seen the end
			return nil
		}
		w.serve(asynq.Config{Concurrency: 1})
		w.enqueue(0, "acme", 3)
		w.drained(1, time.Second)
		if got.Outcome != throttle.Granted || got.Job.Weight != 3 || got.Job.Keys["tenant"] != "acme" ||
			got.Job.ID != "asynq:default/000000/0" {
			t.Errorf("got the grant %+v, want weight 3 of acme, charged to asynq:default/000000/0", got)
		}
	})
}

// TestStopGivesPlacesBack: a program stops as soon as its last handler has returned, and closes its
// client. The task's place is given back, although Redis is slow.
func TestStopGivesPlacesBack(t *testing.T) {
	t.Parallel()
	scopes := []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.Running(1)}}}
	inBubble(t, scopes, func(t *testing.T, w *world) {
		link := newWire(w)
		th, err := throttle.New("world", link.client, scopes, nil)
		if err != nil {
			t.Fatal(err)
		}
		shaper, err := worker.New(th, w.client, jobOf, nil)
		if err != nil {
			t.Fatal(err)
		}
		handler := asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			link.before(func(redis.Cmder) { time.Sleep(30 * time.Millisecond) })
			return nil
		})
		server := w.start(w.client, shaper.Configure(asynq.Config{Concurrency: 1}), shaper.Wrap(handler))
		id := w.enqueue(0, "acme", 1)
		w.until("the task has run", time.Second, func() bool { return w.task(id) == nil })
		shaper.Stop()
		server.Shutdown()
		if err := link.client.Close(); err != nil {
			t.Error(err)
		}
		if used, booked := w.used("acme"); used+booked != 0 {
			t.Errorf("used %d, booked %d, want the place free", used, booked)
		}
		time.Sleep(time.Second) // what the throttle says of itself beside its calls has arrived, or failed
	})
}
