package worker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestAskedToWait_PutsTheTaskBehindThePause follows one task: being asked to wait costs the task no retry and
// no units, and the task runs when the pause is over.
func TestAskedToWait_PutsTheTaskBehindThePause(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{300 * time.Millisecond, time.Second, 1500 * time.Millisecond,
		30 * time.Second, 2 * time.Minute} {
		t.Run(wait.String(), func(t *testing.T) {
			t.Parallel()
			inDomains(t, wide, func(t *testing.T, w *world) {
				var asked time.Time
				w.once(func(context.Context) error {
					asked = time.Now().Truncate(time.Microsecond) // Redis' clock; read after the task was put back
					return fmt.Errorf("send: %w", worker.AskedToWait("domain", wait, errBroken))
				})
				var user userHears
				w.serve(user.config())
				id := w.mail(0, "acme", "d", asynq.MaxRetry(0))
				w.until("it is put back", time.Second, w.in(id, asynq.TaskStateRetry))
				if got := w.state("domain", "d").Paused.Sub(asked); got < wait || got > wait+10*time.Millisecond {
					t.Errorf("paused for %s, want %s", got, wait)
				}
				if used, _ := w.usedOf("domain", "d"); used != 0 {
					t.Errorf("%d units are used, want 0", used)
				}
				if info := w.task(id); info.Retried != 0 ||
					!strings.HasPrefix(info.LastErr, "throttled: domain paused, starts about ") {
					t.Errorf("retried %d times with %q, want 0 and the pause", info.Retried, info.LastErr)
				}
				w.drained(1, wait+time.Minute)
				if late := w.began.Add(w.startOf(id)).Sub(asked) - wait; late < 0 || late > 300*time.Millisecond {
					t.Errorf("runs %s after the end of the pause, want at most 300ms", late)
				}
				if used, _ := w.usedOf("domain", "d"); used != 1 || w.ran(id) != 2 {
					t.Errorf("%d units are used and the task ran %d times, want 1 and 2", used, w.ran(id))
				}
				if st := w.shaper.Stats(); st.PutBack != 1 || st.Granted != 2 {
					t.Errorf("stats %+v, want 1 put-back and 2 grants", st)
				}
				if told := user.told(); len(told) != 0 {
					t.Errorf("the user got failures: %v", told)
				}
				w.archived(0)
			})
		})
	}
}

// userHears is like the type asked, but has no RetryDelayFunc of its own.
type userHears struct{ asked }

func (u *userHears) told() []error {
	_, _, errHandler := u.errors()
	return errHandler
}

// TestAskedToWait_PausesTheKeyForAll compares a drain by two processes, in which one handler
// is asked to wait for a domain, with a drain in which no handler is.
func TestAskedToWait_PausesTheKeyForAll(t *testing.T) {
	t.Parallel()
	const pause = 20 * time.Second
	tasks := longtest.Of(90, 180)
	limit := func(units int64) throttle.Limit { return throttle.Per(units, 5*time.Second) }
	drain := func(t *testing.T, wait bool) (last map[string]time.Duration) {
		last = make(map[string]time.Duration)
		inDomains(t, domains(limit(60), limit(40), limit(12)), func(t *testing.T, w *world) {
			th, err := throttle.New("world", w.client, w.scopes, nil)
			if err != nil {
				t.Fatal(err)
			}
			second, err := worker.New(th, w.client, domainJob, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(second.Stop)
			for n := range tasks {
				w.mail(n, fmt.Sprintf("t%d", n%2), fmt.Sprintf("d%d", n/2%3))
			}
			var log grants
			asked := false
			w.result = func(ctx context.Context, _ *asynq.Task) error {
				grant, _ := worker.Grant(ctx)
				log.mu.Lock()
				defer log.mu.Unlock()
				if !asked && wait && grant.Job.Keys["domain"] == "d0" && time.Since(w.began) > 4*time.Second {
					asked = true
					log.pauses = append(log.pauses, paused{"d0", time.Now().Add(time.Millisecond), time.Now().Add(pause)})
					return worker.AskedToWait("domain", pause, nil)
				}
				log.kept = append(log.kept, grant)
				return nil
			}
			w.began = time.Now()
			w.serve(asynq.Config{Concurrency: 8})
			w.serveWith(second, asynq.Config{Concurrency: 8})
			w.drained(tasks, 10*time.Minute)
			log.check(w)
			for _, grant := range log.kept {
				domain := grant.Job.Keys["domain"]
				last[domain] = max(last[domain], grant.Start.Sub(w.began))
			}
			if one, two := w.shaper.Stats().Granted, second.Stats().Granted; one < int64(tasks)/4 || two < int64(tasks)/4 {
				t.Errorf("the processes ran %d and %d tasks, want both to take part", one, two)
			}
			if wait != asked {
				t.Error("no handler asked to wait")
			}
			w.archived(0)
		})
		return last
	}
	without, with := drain(t, false), drain(t, true)
	t.Logf("the last start to each domain: without the pause %v, with it %v", without, with)
	for _, domain := range []string{"d1", "d2"} {
		if late := with[domain] - without[domain]; late.Abs() > time.Second {
			t.Errorf("the last task to %s starts %s later because of another domain's pause, want at most 1s", domain, late)
		}
	}
	if got := with["d0"] - without["d0"]; got < pause-5*time.Second-time.Second || got > pause+time.Second {
		t.Errorf("the last task to the paused domain starts %s later, want about the pause of %s", got, pause)
	}
}

// TestAskedToWait_Together: all tasks of a lane are asked to wait while they run. Each is put
// back once, with a slot after the pause, and none runs before the pause is over.
func TestAskedToWait_Together(t *testing.T) {
	t.Parallel()
	inDomains(t, wide, func(t *testing.T, w *world) {
		const tasks, wait = 20, time.Minute
		w.handle = time.Second
		w.once(func(context.Context) error { return worker.AskedToWait("domain", wait, nil) })
		w.serve(asynq.Config{Concurrency: tasks})
		for n := range tasks {
			w.mail(n, "acme", "d")
		}
		w.until("all are put back", 3*time.Second, func() bool { return w.shaper.Stats().PutBack == tasks })
		ends := w.state("domain", "d").Paused
		time.Sleep(100 * time.Millisecond) // until asynq has written the tasks to Redis
		for n := range tasks {
			info := w.task(fmt.Sprintf("%06d", n))
			if !strings.HasPrefix(info.LastErr, "throttled: domain paused, starts about ") || info.NextProcessAt.Before(ends) {
				t.Errorf("task %d comes back %s after the end of the pause: %q", n, info.NextProcessAt.Sub(ends), info.LastErr)
			}
		}
		w.drained(tasks, 2*time.Minute)
		for n := range tasks {
			if late := w.began.Add(w.startOf(fmt.Sprintf("%06d", n))).Sub(ends); late < 0 || late > 500*time.Millisecond {
				t.Errorf("task %d starts %s after the end of the pause, want at most 500ms", n, late)
			}
		}
		if st := w.shaper.Stats(); st.PutBack != tasks || st.Granted != 2*tasks {
			t.Errorf("stats %+v, want each of %d put back once and granted twice", st, tasks)
		}
		w.archived(0)
	})
}

// TestAskedToWait_Global pauses the global scope: no task of any key starts before the pause is over.
func TestAskedToWait_Global(t *testing.T) {
	t.Parallel()
	inDomains(t, wide, func(t *testing.T, w *world) {
		w.once(func(ctx context.Context) error {
			if id, _ := asynq.GetTaskID(ctx); id == "000000" {
				return worker.AskedToWait(throttle.Global, 20*time.Second, nil)
			}
			return nil
		})
		w.serve(asynq.Config{Concurrency: 4})
		ids := []string{w.mail(0, "acme", "d")}
		w.until("it is put back", time.Second, w.in(ids[0], asynq.TaskStateRetry))
		ends := w.state(throttle.Global, "").Paused
		for n := range 10 {
			ids = append(ids, w.mail(n+1, fmt.Sprintf("t%d", n), fmt.Sprintf("d%d", n)))
		}
		w.drained(len(ids), time.Minute)
		for _, id := range ids {
			if late := w.began.Add(w.startOf(id)).Sub(ends); late < 0 || late > 500*time.Millisecond {
				t.Errorf("task %s starts %s after the end of the pause, want at most 500ms", id, late)
			}
		}
		if info := w.state("domain", "d"); !info.Paused.IsZero() {
			t.Errorf("the domain is paused until %s, want only %s", info.Paused, throttle.Global)
		}
		w.archived(0)
	})
}
