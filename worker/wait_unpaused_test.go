package worker_test

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestAskedToWait_UnknownScope is a failure like any other: there is no key to pause.
func TestAskedToWait_UnknownScope(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name  string
		scope string
		used  int64
		err   func(err error) error
	}{
		{"no scope of the throttle", "planet", 1, func(err error) error { return err }},
		{"empty", "", 1, func(err error) error { return err }},
		{"optional, and the job has no key", "host", 1, func(err error) error { return err }},
		{"untouched", "planet", 0, worker.Untouched},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			inDomains(t, append(wide[:3:3], throttle.Scope{Name: "host", Optional: true}), func(t *testing.T, w *world) {
				w.once(func(context.Context) error { return row.err(worker.AskedToWait(row.scope, time.Hour, nil)) })
				var user userHears
				cfg := user.config()
				cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return 5 * time.Second }
				w.serve(cfg)
				id := w.mail(0, "acme", "d")
				w.until("it has failed", time.Second, w.in(id, asynq.TaskStateRetry))
				if info := w.task(id); info.Retried != 1 ||
					info.LastErr != "worker: the upstream asks to wait 1h0m0s, scope "+cmp.Or(row.scope, `""`) {
					t.Errorf("retried %d times with %q, want once with the handler's error", info.Retried, info.LastErr)
				}
				for _, key := range [][2]string{{"domain", "d"}, {"tenant", "acme"}, {throttle.Global, ""}} {
					if at := w.state(key[0], key[1]).Paused; !at.IsZero() {
						t.Errorf("%s is paused until %s", key[0], at)
					}
				}
				if used, _ := w.usedOf("domain", "d"); used != row.used {
					t.Errorf("%d units are used, want %d", used, row.used)
				}
				if told := user.told(); len(told) != 1 {
					t.Errorf("the user heard of %v, want one failure", told)
				}
				w.drained(1, time.Minute)
				if w.shaper.Stats().PutBack != 0 {
					t.Errorf("put back %d times, want 0", w.shaper.Stats().PutBack)
				}
			})
		})
	}
}

// TestAskedToWait_NotEnforced: the pause holds no task back. The task is put back all the same
// for as long as the upstream asked, each time.
func TestAskedToWait_NotEnforced(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name string
		mode throttle.Mode
		in   string // the scope whose mode it is
		ask  string // for which the upstream asks
		wait time.Duration
	}{
		{"off, 10s", throttle.Off, "domain", "domain", 10 * time.Second},
		{"off, 1s", throttle.Off, "domain", "domain", time.Second},
		{"off, 100ms", throttle.Off, "domain", "domain", 100 * time.Millisecond},
		{"all off, 10s", throttle.Off, "", "domain", 10 * time.Second},
		{"all off, 1s", throttle.Off, "", "domain", time.Second},
		{"shadow, 10s", throttle.Shadow, "domain", "domain", 10 * time.Second},
		{"shadow, 1s", throttle.Shadow, "domain", "domain", time.Second},
		{"global off, 10s", throttle.Off, throttle.Global, throttle.Global, 10 * time.Second},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			inDomains(t, wide, func(t *testing.T, w *world) {
				const calls = 4
				if err := inspect.New(w.throttle).SetMode(t.Context(), row.in, row.mode); err != nil {
					t.Fatal(err)
				}
				w.result = func(ctx context.Context, _ *asynq.Task) error {
					if id, _ := asynq.GetTaskID(ctx); w.ran(id) < calls {
						return worker.AskedToWait(row.ask, row.wait, nil)
					}
					return nil
				}
				w.serve(asynq.Config{Concurrency: 4})
				id := w.mail(0, "acme", "d", asynq.MaxRetry(0))
				w.until("it is put back", time.Second, w.in(id, asynq.TaskStateRetry))
				shortest := max(row.wait, worker.DefaultBackoff)
				if info := w.task(id); info.Retried != 0 ||
					info.LastErr != fmt.Sprintf("throttled: worker: the upstream asks to wait %s, scope %s", shortest, row.ask) {
					t.Errorf("retried %d times with %q, want 0 and the wait", info.Retried, info.LastErr)
				}
				w.unused("d")
				w.drained(1, calls*(shortest+5*time.Second))
				// asynq has whole seconds and looks twice a second.
				least, most := (calls-1)*shortest, (calls-1)*(shortest+2500*time.Millisecond)+time.Second
				if got := w.startOf(id); got < least || got > most || w.ran(id) != calls {
					t.Errorf("called %d times, the last after %s; want %d times, within %s and %s", w.ran(id), got, calls, least, most)
				}
				if got := w.shaper.Stats().PutBack; got != calls-1 {
					t.Errorf("put back %d times, want %d", got, calls-1)
				}
				w.archived(0)
			})
		})
	}
}

// TestAskedToWait_WithoutTheScope asks to wait for all while the throttle limits only tenants:
// there is nothing to pause, and the task waits all the same.
func TestAskedToWait_WithoutTheScope(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(10, time.Hour), func(t *testing.T, w *world) {
		w.once(func(context.Context) error { return worker.AskedToWait(throttle.Global, 20*time.Second, nil) })
		w.serve(asynq.Config{Concurrency: 4})
		id := w.enqueue(0, "acme", 1)
		w.drained(1, time.Minute)
		if got := w.startOf(id); got < 20*time.Second || got > 23*time.Second || w.ran(id) != 2 {
			t.Errorf("called %d times, the last after %s, want twice and 20s", w.ran(id), got)
		}
		w.archived(0)
	})
}

// TestAskedToWait_KeepsItsCause: if the wait itself puts the task back, a middleware outside of
// the shaper can read what the upstream said.
func TestAskedToWait_KeepsItsCause(t *testing.T) {
	t.Parallel()
	inDomains(t, wide, func(t *testing.T, w *world) {
		if err := inspect.New(w.throttle).SetMode(t.Context(), "domain", throttle.Off); err != nil {
			t.Fatal(err)
		}
		w.once(func(context.Context) error { return worker.AskedToWait("domain", 10*time.Second, errBroken) })
		putBacks := w.serveHearing()
		w.mail(0, "acme", "d")
		w.drained(1, time.Minute)
		if err := <-putBacks; !worker.IsPutBack(err) || !isAny([]error{err}, errBroken) ||
			waitOf(t, err).Delay != 10*time.Second {
			t.Errorf("got %v, want a put-back by the wait and its cause", err)
		}
	})
}
