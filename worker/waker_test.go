package worker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap/zapcore"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// putBack runs one task, which takes all of a window, and waits until the next is put back
// until its slot.
func (w *world) putBack(tenant string, opts ...asynq.Option) (id string, slot time.Time) {
	w.t.Helper()
	w.mu.Lock()
	n := len(w.ended)
	w.mu.Unlock()
	w.enqueue(1000+n, tenant, 1)
	w.drained(n+1, time.Second)
	id = w.enqueue(2000+n, tenant, 1, opts...)
	w.until("the task is put back", time.Second, w.in(id, asynq.TaskStateRetry))
	return id, w.slotOf(tenant)
}

// slotOf returns a tenant's next booked start, if the window holds one unit.
func (w *world) slotOf(tenant string) time.Time {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, start := range slices.Backward(w.starts) {
		if start.Keys["tenant"] == tenant {
			return start.At.Add(w.scopes[0].Limits[0].Window)
		}
	}
	w.t.Fatal("the tenant has no start")
	return time.Time{}
}

// TestStartsAreOnTheSlot measures how long after its granted start a handler is called, with
// idle workers: virtual time shows only the waiting of asynq and of this library.
func TestStartsAreOnTheSlot(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	rows := []struct {
		name    string
		maxWait time.Duration
		cfg     asynq.Config
	}{
		{"defaults", 0, asynq.Config{Concurrency: 16}},
		{"a long MaxWait", time.Second, asynq.Config{Concurrency: 32}},
		{"asynq looks late: a MaxWait above its interval", time.Second,
			asynq.Config{Concurrency: 32, TaskCheckInterval: 250 * time.Millisecond}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, perTenant(1, 1700*time.Millisecond), func(t *testing.T, w *world) {
				const tenants, each = 10, 20
				opts := &worker.Options{MaxWait: row.maxWait}
				s := w.newShaper(opts)
				for n := range tenants * each {
					w.enqueue(n, fmt.Sprintf("t%d", n%tenants), 1)
				}
				w.serveWith(s, row.cfg)
				w.drained(tenants*each, time.Minute)
				w.checked(tenants * each)
				slices.Sort(w.late)
				t.Logf("behind the granted start: min %s p50 %s max %s", w.late[0], w.late[len(w.late)/2], w.late[len(w.late)-1])
				if got := w.late[len(w.late)-1]; got > 3*time.Millisecond {
					t.Errorf("a handler was called %s after its start, want at most 3ms", got)
				}
				// No window is left unused: each tenant's starts follow each other by exactly one.
				best := time.Duration(each-1) * 1700 * time.Millisecond
				if got := w.makespan(); got > best+300*time.Millisecond {
					t.Errorf("makespan %s, want %s and the first poll", got, best)
				}
				if st := s.Stats(); st.Woken != st.PutBack || st.PutBack != tenants*(each-1) {
					t.Errorf("woken %d times of %d put-backs, want all of %d", st.Woken, st.PutBack, tenants*(each-1))
				}
			})
		})
	}
}

// TestRunByHandKeepsItsSlot_F29 lets an operator run a waiting task before its slot: long
// before it, and within the last second.
func TestRunByHandKeepsItsSlot_F29(t *testing.T) {
	t.Parallel()
	for _, early := range []time.Duration{9 * time.Second, time.Second, 300 * time.Millisecond, 120 * time.Millisecond} {
		t.Run(early.String(), func(t *testing.T) {
			inBubble(t, perTenant(1, 10*time.Second), func(t *testing.T, w *world) {
				w.serve(asynq.Config{Concurrency: 4})
				id, slot := w.putBack("acme")
				time.Sleep(time.Until(slot) - early)
				before := w.shaper.Stats().PutBack
				if err := w.tasks.RunTask("default", id); err != nil {
					t.Fatal(err)
				}
				w.drained(2, time.Minute)
				w.checked(2)
				if got := w.starts[1].At; !got.Equal(slot) {
					t.Errorf("started at %s, want its slot %s", got, slot)
				}
				if got := w.shaper.Stats().PutBack - before; got > 1 {
					t.Errorf("put back %d more times, want at most once", got)
				}
				if used, booked := w.used("acme"); used != 1 || booked != 0 {
					t.Errorf("used %d and booked %d, want 1 and 0", used, booked)
				}
			})
		})
	}
}

// TestGoneTaskGivesItsSlotBack_F36 deletes or archives a waiting task: no task comes for its
// slot, and a task that asks at that time gets the room.
func TestGoneTaskGivesItsSlotBack_F36(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name string
		end  func(w *world, id string) error
	}{
		{"deleted", func(w *world, id string) error { return w.tasks.DeleteTask("default", id) }},
		{"archived", func(w *world, id string) error { return w.tasks.ArchiveTask("default", id) }},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, perTenant(1, 10*time.Second), func(t *testing.T, w *world) {
				w.serve(asynq.Config{Concurrency: 4})
				id, slot := w.putBack("acme")
				if err := row.end(w, id); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Until(slot) + 10*time.Millisecond)
				if _, booked := w.used("acme"); booked != 0 {
					t.Errorf("%d units are still booked at the slot", booked)
				}
				other := w.enqueue(1, "acme", 1)
				w.drained(2, time.Minute)
				if got := w.startOf(other) - slot.Sub(w.began); got > 200*time.Millisecond {
					t.Errorf("another task started %s after the slot that nobody used", got)
				}
				time.Sleep(time.Minute)
				w.withinLimits()
				if w.ran(id) != 0 {
					t.Errorf("the %s task ran", row.name)
				}
				if info := w.task(id); info != nil && info.State != asynq.TaskStateArchived {
					t.Errorf("the %s task is now %s", row.name, info.State)
				}
			})
		})
	}
}

// lateWaker starts a server. From the call of late on, the answers to its waker's questions
// come later by delay.
func (w *world) lateWaker(cfg asynq.Config) (late func(delay time.Duration)) {
	w.t.Helper()
	slow := newWire(w)
	s, err := worker.New(w.throttle, slow.client, jobOf, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(s.Stop)
	w.serveWith(s, cfg)
	return func(delay time.Duration) { slow.before(func(redis.Cmder) { time.Sleep(delay) }) }
}

// TestCompletedTaskIsNotRunAgain lets the waker look at a task that a person has run, and that
// is completed and kept (Retention): RunTask would run it a second time.
func TestCompletedTaskIsNotRunAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, 2*time.Second), func(t *testing.T, w *world) {
		w.handle = time.Millisecond
		late := w.lateWaker(asynq.Config{Concurrency: 4})
		id, slot := w.putBack("acme", asynq.Retention(time.Hour))
		late(150 * time.Millisecond)
		time.Sleep(time.Until(slot) - 150*time.Millisecond)
		if err := w.tasks.RunTask("default", id); err != nil {
			t.Fatal(err)
		}
		w.drained(2, time.Second)
		time.Sleep(time.Minute)
		w.checked(2)
		if !w.in(id, asynq.TaskStateCompleted)() {
			t.Errorf("the task is %s, want completed", w.task(id).State)
		}
		if got := w.starts[1].At; !got.Equal(slot) {
			t.Errorf("started at %s, want its slot %s", got, slot)
		}
	})
}

// TestWakeUpIsOfOneAttempt lets the waker look at a task that a person has run, and that has
// failed: the task comes back at the time of its retry.
func TestWakeUpIsOfOneAttempt(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, 2*time.Second), func(t *testing.T, w *world) {
		w.handle = time.Millisecond
		w.result = func(ctx context.Context, _ *asynq.Task) error {
			retried, _ := asynq.GetRetryCount(ctx)
			if id, _ := asynq.GetTaskID(ctx); id == "002000" && retried == 0 { // as putBack names it
				return errBroken
			}
			return nil
		}
		late := w.lateWaker(asynq.Config{Concurrency: 4,
			RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 20 * time.Second }})
		id, slot := w.putBack("acme")
		late(150 * time.Millisecond)
		time.Sleep(time.Until(slot) - 150*time.Millisecond)
		if err := w.tasks.RunTask("default", id); err != nil {
			t.Fatal(err)
		}
		w.until("the task has failed", 10*time.Second, func() bool { return w.task(id).Retried == 1 })
		time.Sleep(10 * time.Second)
		if got := w.ran(id); got != 1 {
			t.Errorf("its handler was called %d times within 10s, want once: it comes back after 20s", got)
		}
		w.drained(2, time.Minute)
		w.withinLimits()
	})
}

// TestQueuePausedOverTheSlots_F37 pauses the queue until all slots and their grace have
// passed: when the queue goes on, its tasks must not all start at once.
func TestQueuePausedOverTheSlots_F37(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	inBubble(t, quotas(2*time.Second, throttle.Exact), func(t *testing.T, w *world) {
		const tasks = 600
		for n := range tasks {
			w.enqueue(n, fmt.Sprintf("t%d", n%8), 1)
		}
		w.serve(asynq.Config{Concurrency: 16})
		w.until("all are put back", 10*time.Second, func() bool { return w.shaper.Stats().PutBack >= tasks-200 })
		if err := w.tasks.PauseQueue("default"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		before := w.shaper.Stats().PutBack
		if err := w.tasks.UnpauseQueue("default"); err != nil {
			t.Fatal(err)
		}
		resumed := time.Now()
		w.drained(tasks, time.Minute)
		w.checked(tasks)
		w.archived(0)
		took, putBack := time.Since(resumed), w.shaper.Stats().PutBack-before
		t.Logf("drained %s after the pause, %d put back again", took, putBack)
		if took > 6*time.Second {
			t.Errorf("drained %s after the pause, want as fast as the limits allow", took)
		}
		if putBack > tasks-200 {
			t.Errorf("%d put back after the pause, want at most once each", putBack)
		}
	})
}

// TestWakerLost ends the process that put the tasks back before it can wake them. Another
// process goes on, and asynq's own time brings the tasks to it.
func TestWakerLost(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	inFarAhead(t, quotas(2*time.Second, throttle.Exact), func(t *testing.T, w *world) {
		const tasks = 600
		for n := range tasks {
			w.enqueue(n, fmt.Sprintf("t%d", n%8), 1)
		}
		denier := w.serve(asynq.Config{Concurrency: 16})
		w.until("all are put back", 10*time.Second, func() bool { return w.shaper.Stats().PutBack >= tasks-200 })
		slots := w.slots(tasks)
		w.shaper.Stop()
		denier.Shutdown()
		other := w.newShaper(nil)
		w.serveWith(other, asynq.Config{Concurrency: 16})
		w.drained(tasks, time.Minute)
		w.checked(tasks)
		w.archived(0)
		var late []time.Duration
		for id, slot := range slots {
			at := w.began.Add(w.startOf(id))
			if at.Before(slot) {
				t.Errorf("task %s started %s before its slot", id, slot.Sub(at))
			}
			late = append(late, at.Sub(slot))
		}
		t.Logf("%d tasks behind their slots: p50 %s max %s; put back again %d", len(late), percentile(late, 0.5),
			slices.Max(late), other.Stats().PutBack)
		if got := slices.Max(late); got > 2*time.Second {
			t.Errorf("a task started %s after its slot, want at most 2s", got)
		}
	})
}

// slots reads from the put-backs' texts, to the second, when the waiting tasks will start.
func (w *world) slots(tasks int) map[string]time.Time {
	w.t.Helper()
	slots := make(map[string]time.Time)
	waiting, err := w.tasks.ListRetryTasks("default", asynq.PageSize(tasks))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, info := range waiting {
		_, text, _ := strings.Cut(info.LastErr, "starts ")
		slot, err := time.Parse(time.RFC3339, text)
		if err != nil {
			w.t.Fatal(err)
		}
		slots[info.ID] = slot
	}
	return slots
}

// TestWakerWithoutRedis cuts the waker from asynq's Redis over the slots of many
// tasks: asynq's own time brings them back, and the log is not flooded.
func TestWakerWithoutRedis(t *testing.T) {
	t.Parallel()
	inFarAhead(t, perTenant(50, 5*time.Second), func(t *testing.T, w *world) {
		opts, logs := watched()
		wire := newWire(w)
		s, err := worker.New(w.throttle, wire.client, jobOf, opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		w.serveWith(s, asynq.Config{Concurrency: 16})
		const tasks = 150
		for n := range tasks {
			w.enqueue(n, "acme", 1)
		}
		w.until("all but the first are put back", time.Second, func() bool { return s.Stats().PutBack == tasks-50 })
		wire.cut()
		w.drained(100, 10*time.Second)
		if got := s.Stats().Woken; got != 0 {
			t.Errorf("woken %d times without Redis", got)
		}
		wire.mend()
		w.drained(tasks, 10*time.Second)
		w.checked(tasks)
		w.archived(0)
		if got := s.Stats().Woken; got == 0 {
			t.Error("nobody was woken after Redis came back")
		}
		if got := logs.FilterLevelExact(zapcore.WarnLevel).Len(); got < 1 || got > 3 {
			t.Errorf("warned %d times, want at least once and at most once a second", got)
		}
	})
}

// TestWokenBeforeThePutBackIsWritten lets asynq's put-back arrive late: while asynq still has
// the task as active, it cannot be woken.
func TestWokenBeforeThePutBackIsWritten(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name  string
		delay time.Duration // asynq sends the script twice, by its hash and whole
		woken int64
	}{
		{"just after the wake-up", 125 * time.Millisecond, 1},
		{"after the slot", 200 * time.Millisecond, 1},
		{"so late that asynq's own time is near", 450 * time.Millisecond, 0},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, perTenant(1, 300*time.Millisecond), func(t *testing.T, w *world) {
				w.handle = 0
				slow := newWire(w)
				var written atomic.Int64
				slow.before(func(cmd redis.Cmder) {
					if wasPutBack(cmd) {
						time.Sleep(row.delay)
						written.Store(int64(time.Since(w.began)))
					}
				})
				w.start(slow.client, w.shaper.Configure(asynq.Config{Concurrency: 4}), w.shaper.Wrap(asynq.HandlerFunc(w.process)))
				w.enqueue(0, "acme", 1)
				w.drained(1, time.Second)
				id := w.enqueue(1, "acme", 1)
				w.drained(2, 5*time.Second)
				w.checked(2)
				if st := w.shaper.Stats(); st.PutBack != 1 || st.Woken != row.woken {
					t.Errorf("put back %d times and woken %d times, want once and %d", st.PutBack, st.Woken, row.woken)
				}
				slot := w.starts[0].At.Add(300 * time.Millisecond).Sub(w.began)
				t.Logf("written %s and started %s after its slot", time.Duration(written.Load())-slot, w.startOf(id)-slot)
				possible := max(slot, time.Duration(written.Load()))
				if row.woken == 0 {
					possible += time.Second
				}
				// The waker looks again after 100 ms, and asynq some milliseconds after that.
				if late := w.startOf(id) - possible; late > 150*time.Millisecond {
					t.Errorf("started %s later than it could have", late)
				}
			})
		})
	}
}

// TestAnotherWakesTheTask: between the waker's look at a task and its call, another process makes the task pending.
// That is no trouble to tell of.
func TestAnotherWakesTheTask(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, 10*time.Second), func(t *testing.T, w *world) {
		wire := newWire(w)
		opts, logs := watched()
		s, err := worker.New(w.throttle, wire.client, jobOf, opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		const tasks = 4
		wire.before(func(cmd redis.Cmder) {
			if id, is := madePending(cmd); is {
				if err := w.tasks.RunTask("default", id); err != nil {
					t.Errorf("the other process cannot wake %s: %v", id, err)
				}
			}
		})
		w.serveWith(s, asynq.Config{Concurrency: tasks})
		for n := range tasks {
			w.enqueue(n, "acme", 1)
		}
		w.drained(tasks, time.Minute)
		w.checked(tasks)
		if got := s.Stats(); got.Woken != 0 || got.PutBack != tasks-1 {
			t.Errorf("woken %d times and put back %d times, want 0 and %d", got.Woken, got.PutBack, tasks-1)
		}
		if got := logs.FilterLevelExact(zapcore.WarnLevel); got.Len() != 0 {
			t.Errorf("warned: %v", got.All())
		}
	})
}

// madePending returns the ID of the task that a command of asynq's Inspector is about to make pending.
func madePending(cmd redis.Cmder) (id string, is bool) {
	args := cmd.Args()
	if cmd.Name() != "evalsha" || len(args) < 7 {
		return "", false
	}
	if groups, _ := args[5].(string); !strings.HasSuffix(groups, ":groups") {
		return "", false
	}
	id, is = args[6].(string)
	return id, is
}

// wasPutBack recognizes asynq's script that moves a task to the retry set.
func wasPutBack(cmd redis.Cmder) bool {
	name := cmd.Name()
	return (name == "evalsha" || name == "eval") && slices.ContainsFunc(cmd.Args(), func(arg any) bool {
		key, isText := arg.(string)
		return isText && strings.HasSuffix(key, ":retry")
	}) && len(cmd.Args()) > 10
}

// TestWakerReadsAnActiveTaskSeldom: asynq returns the state of a task along with its payload. A task
// without a retry left waits for its slot in its handler, where the waker finds it active. The waker
// looks at it ever less often.
func TestWakerReadsAnActiveTaskSeldom(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, 2*time.Second), func(t *testing.T, w *world) {
		const tasks = 4
		w.handle = time.Second
		wire := newWire(w)
		var reads atomic.Int64
		wire.before(func(cmd redis.Cmder) {
			if isGetTaskInfo(cmd) {
				reads.Add(1)
			}
		})
		s, err := worker.New(w.throttle, wire.client, jobOf, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		for n := range tasks {
			w.enqueuePlain(n, "acme", 1, asynq.MaxRetry(0))
		}
		w.serveWith(s, asynq.Config{Concurrency: tasks})
		w.drained(tasks, time.Minute)
		w.checked(tasks)
		if got := reads.Load(); got > 16*tasks {
			t.Errorf("%d tasks that waited in their handlers were read %d times, want at most 16 times each", tasks, got)
		}
	})
}

// isGetTaskInfo recognizes asynq's script that reads a task.
func isGetTaskInfo(cmd redis.Cmder) bool {
	args := cmd.Args()
	if (cmd.Name() != "evalsha" && cmd.Name() != "eval") || len(args) != 7 {
		return false
	}
	key, isText := args[3].(string)
	return isText && strings.Contains(key, ":t:") && key == fmt.Sprint(args[6], "t:", args[4])
}
