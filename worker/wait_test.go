package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/upstream"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// domainJob reads a job that has a domain too from a task's headers.
func domainJob(ctx context.Context, task *asynq.Task) (throttle.Job, error) {
	job, err := jobOf(ctx, task)
	job.Keys["domain"] = task.Headers()["domain"]
	return job, err
}

// domains returns limits for all, for each tenant and for each domain.
func domains(global, tenant, domain throttle.Limit) []throttle.Scope {
	return []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{global}},
		{Name: "tenant", Limits: []throttle.Limit{tenant}},
		{Name: "domain", Limits: []throttle.Limit{domain}},
	}
}

// wide are limits that hold no task back in the tests of waits.
var wide = domains(throttle.PerHour(1000), throttle.PerHour(1000), throttle.PerHour(1000))

// inDomains runs a test with tasks that have a domain.
func inDomains(t *testing.T, scopes []throttle.Scope, test func(t *testing.T, w *world)) {
	t.Helper()
	inBubble(t, scopes, func(t *testing.T, w *world) {
		w.shaper = w.newShaperOf(domainJob, nil)
		test(t, w)
	})
}

// mail returns a task for a domain.
func mail(n int, tenant, domain string, opts ...asynq.Option) (task *asynq.Task, id string) {
	id = fmt.Sprintf("%06d", n)
	return worker.NewTask("mail", nil, mailHeaders(tenant, domain), append(opts, asynq.TaskID(id))...), id
}

func mailHeaders(tenant, domain string) map[string]string {
	h := headers(tenant, 1)
	h["domain"] = domain
	return h
}

// mail enqueues a task for a domain.
func (w *world) mail(n int, tenant, domain string, opts ...asynq.Option) string {
	w.t.Helper()
	task, id := mail(n, tenant, domain, opts...)
	w.send(task)
	return id
}

// state returns the state of a scope key.
func (w *world) state(scope, key string) inspect.Usage {
	w.t.Helper()
	state, err := inspect.New(w.throttle).Usage(w.t.Context(), scope, key)
	if err != nil {
		w.t.Fatal(err)
	}
	return state
}

// usedOf returns how many units a scope key has used and how many it has booked.
func (w *world) usedOf(scope, key string) (used, booked int64) {
	w.t.Helper()
	usage, err := inspect.New(w.throttle).Usage(w.t.Context(), scope, key)
	if err != nil {
		w.t.Fatal(err)
	}
	return usage.Limits[0].Used, usage.Limits[0].Booked
}

// unused fails the test if a job to this domain has anything charged or booked.
func (w *world) unused(domain string) {
	w.t.Helper()
	for _, key := range [][2]string{{"domain", domain}, {"tenant", "acme"}, {throttle.Global, ""}} {
		if used, booked := w.usedOf(key[0], key[1]); used != 0 || booked != 0 {
			w.t.Errorf("%d units of %s are used and %d booked, want 0", used, key[0], booked)
		}
	}
}

// TestAskedToWait_PutsTheTaskBehindThePause follows one task: it costs no retry and no
// units, and runs when the pause is over.
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
					t.Errorf("%d units are used and it ran %d times, want 1 and 2", used, w.ran(id))
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

// userHears is an asked without a RetryDelayFunc of its own.
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
			t.Errorf("the last to %s starts %s later because of another domain's pause, want at most 1s", domain, late)
		}
	}
	if got := with["d0"] - without["d0"]; got < pause-5*time.Second-time.Second || got > pause+time.Second {
		t.Errorf("the last to the paused domain starts %s later, want about the pause of %s", got, pause)
	}
}

// TestAskedToWait_ShorterThanMaxWait: a task is put back even if it could wait for the end of
// the pause inside its handler.
func TestAskedToWait_ShorterThanMaxWait(t *testing.T) {
	t.Parallel()
	inDomains(t, wide, func(t *testing.T, w *world) {
		const wait = worker.DefaultMaxWait / 2
		w.once(func(context.Context) error { return worker.AskedToWait("domain", wait, nil) })
		putBacks := w.serveHearing()
		id := w.mail(0, "acme", "d")
		w.drained(1, time.Minute)
		var putBack *worker.PutBackError
		if err := <-putBacks; !errors.As(err, &putBack) || putBack.Err != nil || putBack.Hold == nil || !putBack.Hold.Paused {
			t.Errorf("got %v, want a put-back by the pause", err)
		}
		if w.ran(id) != 2 || w.startOf(id) < wait || w.startOf(id) > time.Second {
			t.Errorf("called %d times, the last after %s; want twice, %s after the first", w.ran(id), w.startOf(id), wait)
		}
	})
}

// serveHearing is serve with a middleware outside of the shaper that hears of errors.
func (w *world) serveHearing() <-chan error {
	heard := make(chan error, 10)
	inner := w.shaper.Wrap(asynq.HandlerFunc(w.process))
	w.start(w.client, w.shaper.Configure(asynq.Config{Concurrency: 4}),
		asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			err := inner.ProcessTask(ctx, task)
			heard <- err
			return err
		}))
	return heard
}

// TestAskedToWait_Together: all tasks of a lane are asked to wait while they run. Each is put
// back once, with a slot after the pause, and none comes before.
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
		time.Sleep(100 * time.Millisecond) // until asynq has written it
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

// TestAskedToWait_Global pauses all.
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
					info.LastErr != "worker: the upstream asks to wait 1h0m0s, scope "+row.scope {
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

// TestAskedToWait_OnTheLastRetry: a task that asynq would archive waits inside its handler.
func TestAskedToWait_OnTheLastRetry(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name string
		mode throttle.Mode
		wait error
		want time.Duration
	}{
		{"enforced", throttle.Enforce, worker.AskedToWait("domain", 30*time.Second, nil), 30 * time.Second},
		{"off", throttle.Off, worker.AskedToWait("domain", 30*time.Second, nil), 30 * time.Second},
		{"does not say how long, off", throttle.Off, &worker.WaitError{Scope: "domain"}, worker.DefaultAskedWait},
		{"skips retries", throttle.Enforce, worker.AskedToWait("domain", 30*time.Second, asynq.SkipRetry), 30 * time.Second},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			inDomains(t, wide, func(t *testing.T, w *world) {
				const calls = 3
				if err := inspect.New(w.throttle).SetMode(t.Context(), "domain", row.mode); err != nil {
					t.Fatal(err)
				}
				w.result = func(ctx context.Context, _ *asynq.Task) error {
					if id, _ := asynq.GetTaskID(ctx); w.ran(id) < calls {
						return row.wait
					}
					return nil
				}
				w.serve(asynq.Config{Concurrency: 4})
				id := "plain"
				w.send(asynq.NewTaskWithHeaders("mail", nil, mailHeaders("acme", "d"), asynq.TaskID(id), asynq.MaxRetry(0)))
				w.until("it has asked", time.Second, func() bool { return w.ran(id) == 1 })
				time.Sleep(row.want / 2)
				if !w.in(id, asynq.TaskStateActive)() || w.ran(id) != 1 {
					t.Errorf("it is %s and ran %d times, want it to wait in its handler", w.task(id).State, w.ran(id))
				}
				if row.mode == throttle.Enforce {
					w.unused("d") // while it waits
				}
				w.drained(1, 10*time.Minute)
				least := (calls - 1) * row.want
				if got := w.startOf(id); got < least || got > least+2*time.Second || w.ran(id) != calls {
					t.Errorf("called %d times, the last after %s; want %d and %s", w.ran(id), got, calls, least)
				}
				if got := w.shaper.Stats().PutBack; got != 0 {
					t.Errorf("put back %d times, want 0", got)
				}
				w.until("asynq is done with it", time.Second, w.gone(id))
				w.archived(0)
			})
		})
	}
}

// TestAskedToWait_StrangeDelays returns errors made by hand: AskedToWait makes none of these
// delays.
func TestAskedToWait_StrangeDelays(t *testing.T) {
	t.Parallel()
	rows := []struct{ asked, want time.Duration }{
		{0, worker.DefaultAskedWait},
		{-1, worker.DefaultAskedWait},
		{-time.Hour, worker.DefaultAskedWait},
		{math.MinInt64, worker.DefaultAskedWait},
		{upstream.MaxWait + 1, upstream.MaxWait},
		{1000 * upstream.MaxWait, upstream.MaxWait},
		{math.MaxInt64, upstream.MaxWait},
	}
	for _, row := range rows {
		for _, mode := range []throttle.Mode{throttle.Enforce, throttle.Off} {
			t.Run(fmt.Sprint(int64(row.asked), " ", mode), func(t *testing.T) {
				t.Parallel()
				inDomains(t, wide, func(t *testing.T, w *world) {
					if err := inspect.New(w.throttle).SetMode(t.Context(), "domain", mode); err != nil {
						t.Fatal(err)
					}
					w.result = func(context.Context, *asynq.Task) error {
						return &worker.WaitError{Scope: "domain", Delay: row.asked}
					}
					w.serve(asynq.Config{Concurrency: 4})
					id := w.mail(0, "acme", "d")
					w.until("it is put back", time.Second, w.in(id, asynq.TaskStateRetry))
					put := time.Now()
					if got := w.state("domain", "d").Paused.Sub(put); got > row.want || got < row.want-time.Second {
						t.Errorf("paused for %s, want %s", got, row.want)
					}
					info := w.task(id)
					if got := info.NextProcessAt.Sub(put); got < row.want-time.Second || got > row.want+20*time.Second {
						t.Errorf("asynq brings it back after %s, want %s", got, row.want)
					}
					if mode == throttle.Off && info.LastErr !=
						fmt.Sprintf("throttled: worker: the upstream asks to wait %s, scope domain", row.want) {
						t.Errorf("the last error is %q, want it to say %s", info.LastErr, row.want)
					}
					time.Sleep(10 * time.Second)
					if w.ran(id) != 1 {
						t.Errorf("called %d times before the wait was over", w.ran(id))
					}
				})
			})
		}
	}
}

// TestAskedToWait_NoLongerThanTheOption: however long an upstream asks to wait, by a WaitError or
// a report, its key is closed for as long as Options.MaxAskedWait says.
func TestAskedToWait_NoLongerThanTheOption(t *testing.T) {
	t.Parallel()
	const most = 20 * time.Second
	scopes := []throttle.Scope{{Name: "tenant", Optional: true},
		{Name: "domain", Limits: []throttle.Limit{throttle.PerMinute(100)}}}
	follows := slices.Clone(scopes)
	follows[1].Floor = 0.1
	asked := map[string]func(ctx context.Context) error{
		"a wait":       func(context.Context) error { return worker.AskedToWait("domain", time.Hour, nil) },
		"a short wait": func(context.Context) error { return worker.AskedToWait("domain", 5*time.Second, nil) },
		"no time":      func(context.Context) error { return worker.AskedToWait("domain", 0, nil) },
		"a report": func(ctx context.Context) error {
			_, err := worker.Report(ctx, "domain", throttle.Report{Refused: true, RetryAfter: time.Hour})
			return err
		},
	}
	for name, row := range map[string]struct {
		scopes []throttle.Scope
		asked  string
		want   time.Duration
	}{
		"a rigid scope":            {scopes, "a wait", most},
		"it does not say how long": {scopes, "no time", most},
		"a shorter wait":           {scopes, "a short wait", 5 * time.Second},
		"a scope that follows":     {follows, "a wait", most},
		"a report":                 {follows, "a report", most},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, row.scopes, func(t *testing.T, w *world) {
				w.shaper = w.newShaperOf(domainJob, &worker.Options{MaxAskedWait: most})
				w.result = func(ctx context.Context, _ *asynq.Task) error { return asked[row.asked](ctx) }
				w.serve(asynq.Config{Concurrency: 4})
				id := w.mail(0, "acme", "d")
				w.until("it has run", time.Second, func() bool { return w.ran(id) == 1 })
				time.Sleep(100 * time.Millisecond)
				if got := time.Until(w.state("domain", "d").Paused); got > row.want || got < row.want-time.Second {
					t.Errorf("paused for %s, want %s", got, row.want)
				}
			})
		})
	}
}

// TestAskedToWait_IsNoEnd: the upstream's error wraps SkipRetry or RevokeTask. Since the upstream
// asks to wait, the task is not ended.
func TestAskedToWait_IsNoEnd(t *testing.T) {
	t.Parallel()
	ends := map[string]error{"skip": asynq.SkipRetry, "revoke": asynq.RevokeTask}
	for name, end := range ends {
		for _, mode := range []throttle.Mode{throttle.Enforce, throttle.Shadow, throttle.Off} {
			for where, err := range map[string]error{
				"inside":  worker.AskedToWait("domain", 10*time.Second, fmt.Errorf("quota: %w", end)),
				"outside": fmt.Errorf("%w: %w", worker.AskedToWait("domain", 10*time.Second, nil), end),
				"beside":  fmt.Errorf("%w: %w", end, worker.AskedToWait("domain", 10*time.Second, errBroken)),
			} {
				t.Run(fmt.Sprint(name, " ", where, " ", mode), func(t *testing.T) {
					t.Parallel()
					inDomains(t, wide, func(t *testing.T, w *world) {
						if err := inspect.New(w.throttle).SetMode(t.Context(), "domain", mode); err != nil {
							t.Fatal(err)
						}
						w.once(func(context.Context) error { return err })
						w.serve(asynq.Config{Concurrency: 4})
						id := w.mail(0, "acme", "d", asynq.MaxRetry(1))
						w.until("it is put back", time.Second, w.in(id, asynq.TaskStateRetry))
						if got := w.task(id).Retried; got != 0 {
							t.Errorf("retried %d times, want 0", got)
						}
						w.drained(1, time.Minute)
						w.archived(0)
					})
				})
			}
		}
	}
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

// TestAskedToWait_BeyondTheDeadline: a job that the pause keeps from starting in time is ended at
// once.
func TestAskedToWait_BeyondTheDeadline(t *testing.T) {
	t.Parallel()
	inBubble(t, wide, func(t *testing.T, w *world) {
		deadline := w.began.Add(15 * time.Second)
		s := w.newShaperOf(func(ctx context.Context, task *asynq.Task) (throttle.Job, error) {
			job, err := domainJob(ctx, task)
			job.Deadline = deadline
			return job, err
		}, nil)
		w.once(func(ctx context.Context) error {
			if id, _ := asynq.GetTaskID(ctx); id == "000000" {
				return worker.AskedToWait("domain", 10*time.Second, nil)
			}
			return worker.AskedToWait("tenant", 20*time.Second, nil)
		})
		w.serveWith(s, asynq.Config{Concurrency: 4})
		inTime := w.mail(0, "acme", "a")
		late := w.mail(1, "other", "b")
		w.until("the late one is archived", time.Second, w.in(late, asynq.TaskStateArchived))
		if info := w.task(late); !strings.Contains(info.LastErr, "is after the deadline") || w.ran(late) != 1 {
			t.Errorf("ran %d times and ended with %q, want the deadline", w.ran(late), info.LastErr)
		}
		w.drained(1, time.Minute)
		if w.ran(inTime) != 2 || s.Stats().Ended != 1 {
			t.Errorf("the other ran %d times, %d ended; want 2 and 1", w.ran(inTime), s.Stats().Ended)
		}
	})
}

// TestAskedToWait_WithoutRedis: without Redis nothing is paused. The task is put back for the
// wait, and its charge stays.
func TestAskedToWait_WithoutRedis(t *testing.T) {
	t.Parallel()
	for _, fallback := range []throttle.Fallback{throttle.FallbackClosed, throttle.FallbackOpen} {
		t.Run(fmt.Sprint("fallback ", fallback), func(t *testing.T) {
			t.Parallel()
			inBubble(t, wide, func(t *testing.T, w *world) {
				cable := newWire(w)
				th, err := throttle.New("world", cable.client, w.scopes, &throttle.Options{Fallback: fallback})
				if err != nil {
					t.Fatal(err)
				}
				s, err := worker.New(th, w.client, domainJob, nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(s.Stop)
				w.once(func(context.Context) error {
					cable.cut()
					return worker.AskedToWait("domain", 20*time.Second, nil)
				})
				w.serveWith(s, asynq.Config{Concurrency: 4})
				id := w.mail(0, "acme", "d", asynq.MaxRetry(0))
				w.until("it is put back", 3*time.Second, w.in(id, asynq.TaskStateRetry))
				cable.mend()
				if got := w.task(id).Retried; got != 0 {
					t.Errorf("retried %d times, want 0", got)
				}
				w.drained(1, time.Minute)
				if got := w.startOf(id); got < 20*time.Second || got > 24*time.Second || w.ran(id) != 2 {
					t.Errorf("called %d times, the last after %s; want twice and 20s", w.ran(id), got)
				}
				w.archived(0)
			})
		})
	}
}

// TestAskedToWait_RedisLostBetween loses Redis after the pause: FallbackOpen would grant the
// task, which must wait all the same.
func TestAskedToWait_RedisLostBetween(t *testing.T) {
	t.Parallel()
	inBubble(t, wide, func(t *testing.T, w *world) {
		cable := newWire(w)
		th, err := throttle.New("world", cable.client, w.scopes, &throttle.Options{Fallback: throttle.FallbackOpen})
		if err != nil {
			t.Fatal(err)
		}
		s, err := worker.New(th, w.client, domainJob, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		// The decision after the pause is not answered in time.
		var asked, paused, lost atomic.Bool
		cable.before(func(cmd redis.Cmder) {
			switch script := scriptOf(cmd); {
			case asked.Load() && script == "pause":
				paused.Store(true)
			case paused.Load() && script == "reserve" && lost.CompareAndSwap(false, true):
				time.Sleep(2 * timeout)
			}
		})
		w.once(func(context.Context) error {
			asked.Store(true)
			return worker.AskedToWait("domain", 20*time.Second, nil)
		})
		w.serveWith(s, asynq.Config{Concurrency: 4})
		id := w.mail(0, "acme", "d")
		w.drained(1, time.Minute)
		if !lost.Load() {
			t.Fatal("no decision was asked for")
		}
		if got := w.startOf(id); got < 20*time.Second || w.ran(id) != 2 {
			t.Errorf("called %d times, the last after %s; want twice and 20s", w.ran(id), got)
		}
		if got := s.Stats().PutBack; got != 1 {
			t.Errorf("put back %d times, want once", got)
		}
		w.archived(0)
	})
}

// scriptOf returns the name of a throttle's script that pauses or decides; empty for other
// commands.
func scriptOf(cmd redis.Cmder) string {
	args := cmd.Args()
	switch {
	case len(args) < 8 || cmd.Name() != "evalsha":
	case args[7] == "pause":
		return "pause"
	case len(args) > 9 && strings.HasPrefix(fmt.Sprint(args[9]), "asynq:"):
		return "reserve"
	}
	return ""
}

// TestWaitOnTheLastRetryWithoutAPause: a task on its last retry whose upstream asks to wait
// comes again, even if the pause holds no task back.
func TestWaitOnTheLastRetryWithoutAPause(t *testing.T) {
	t.Parallel()
	scopes := []throttle.Scope{{Name: "tenant", Mode: throttle.Shadow, Limits: []throttle.Limit{throttle.PerMinute(100)}}}
	inBubble(t, scopes, func(t *testing.T, w *world) {
		calls := 0
		w.result = func(context.Context, *asynq.Task) error {
			if calls++; calls == 1 {
				return worker.AskedToWait("tenant", time.Minute, nil)
			}
			return nil
		}
		w.serve(asynq.Config{Concurrency: 8})
		id := w.enqueuePlain(0, "acme", 1, asynq.MaxRetry(0), asynq.Timeout(2*time.Minute))
		w.until("it has come again", 2*time.Minute, func() bool { return w.ran(id) == 2 })
	})
}
