package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// asked notes with which errors asynq called a user's functions.
type asked struct {
	mu                           sync.Mutex
	isFailure, delay, errHandler []error
}

func (a *asked) config() asynq.Config {
	note := func(list *[]error, err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		*list = append(*list, err)
	}
	return asynq.Config{
		Concurrency: 4,
		IsFailure: func(err error) bool {
			note(&a.isFailure, err)
			return !errors.Is(err, errNoFailure)
		},
		RetryDelayFunc: func(_ int, err error, _ *asynq.Task) time.Duration {
			note(&a.delay, err)
			return 3 * time.Second
		},
		ErrorHandler: asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { note(&a.errHandler, err) }),
	}
}

// errors returns the errors so far.
func (a *asked) errors() (isFailure, delay, errHandler []error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.isFailure), slices.Clone(a.delay), slices.Clone(a.errHandler)
}

var errNoFailure = errors.New("come again")

func isAny(errs []error, target error) bool {
	return slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, target) })
}

// TestUsersFunctionsAreKept_F40 lets a handler fail, and return errors that IsFailure does not
// count, between put-backs: the user's functions are called for all errors but the put-backs.
func TestUsersFunctionsAreKept_F40(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, 10*time.Second), func(t *testing.T, w *world) {
		results := []error{errBroken, errNoFailure, nil}
		w.result = func(context.Context, *asynq.Task) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			err := results[0]
			results = results[1:]
			return err
		}
		var user asked
		w.serve(user.config())
		id := w.enqueue(0, "acme", 1)
		w.until("the task has failed", time.Second, func() bool { return w.task(id).Retried == 1 })
		if wait := time.Until(w.task(id).NextProcessAt); wait < 2*time.Second || wait > 3*time.Second {
			t.Errorf("comes again after %s, want the user's 3s in whole seconds", wait)
		}
		w.until("it is no failure", time.Minute, func() bool { return w.ran(id) == 2 })
		w.drained(1, time.Minute)
		w.withinLimits()
		if got := w.shaper.Stats().PutBack; got < 2 {
			t.Errorf("put back %d times, want before its second and its third run", got)
		}
		isFailure, delay, errHandler := user.errors()
		for name, errs := range map[string][]error{"IsFailure": isFailure, "RetryDelayFunc": delay,
			"ErrorHandler": errHandler} {
			if len(errs) != 2 || !isAny(errs, errBroken) || !isAny(errs, errNoFailure) {
				t.Errorf("%s was called with %q, want the handler's two errors", name, errs)
			}
		}
	})
}

// TestLostWorkerIsToldToTheUser_F40 cuts a server off from Redis while its handler runs.
// Another server's recoverer finds the task after its lease, and calls no handler.
func TestLostWorkerIsToldToTheUser_F40(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, time.Second), func(t *testing.T, w *world) {
		wire := newWire(w)
		hang := make(chan struct{})
		lost := w.start(wire.client, w.shaper.Configure(asynq.Config{Concurrency: 1}),
			w.shaper.Wrap(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { <-hang; return nil })))
		id := w.enqueue(0, "acme", 1)
		w.until("the task runs", time.Second, w.in(id, asynq.TaskStateActive))
		time.Sleep(time.Second)
		wire.cut()

		var user asked
		other := w.newShaper(nil)
		w.serveWith(other, user.config())
		w.drained(1, 5*time.Minute)
		if got := w.startOf(id); got < time.Minute || got > 3*time.Minute {
			t.Errorf("ran again after %s, want a minute or two", got)
		}
		isFailure, delay, _ := user.errors()
		for name, errs := range map[string][]error{"IsFailure": isFailure, "RetryDelayFunc": delay} {
			if len(errs) != 1 || !errors.Is(errs[0], asynq.ErrLeaseExpired) {
				t.Errorf("%s was called with %q, want ErrLeaseExpired", name, errs)
			}
		}
		close(hang)
		lost.Shutdown()
	})
}

// TestConfigureSetsIntervalsOnlyWhereUnset compares the returned Config.
func TestConfigureSetsIntervalsOnlyWhereUnset(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, time.Second), func(t *testing.T, w *world) {
		set := w.shaper.Configure(asynq.Config{})
		if set.TaskCheckInterval == 0 || set.TaskCheckInterval > 100*time.Millisecond {
			t.Errorf("TaskCheckInterval is %s, want a short one", set.TaskCheckInterval)
		}
		if set.DelayedTaskCheckInterval == 0 || set.DelayedTaskCheckInterval > time.Second {
			t.Errorf("DelayedTaskCheckInterval is %s, want a short one", set.DelayedTaskCheckInterval)
		}
		if set.ErrorHandler != nil {
			t.Error("ErrorHandler is set where the user has none")
		}
		kept := w.shaper.Configure(asynq.Config{
			TaskCheckInterval: 7 * time.Second, DelayedTaskCheckInterval: 8 * time.Second,
			Concurrency: 3, Queues: map[string]int{"a": 2}, StrictPriority: true, ShutdownTimeout: 9 * time.Second,
		})
		if kept.TaskCheckInterval != 7*time.Second || kept.DelayedTaskCheckInterval != 8*time.Second {
			t.Errorf("the user's intervals are now %s and %s", kept.TaskCheckInterval, kept.DelayedTaskCheckInterval)
		}
		if kept.Concurrency != 3 || kept.Queues["a"] != 2 || !kept.StrictPriority || kept.ShutdownTimeout != 9*time.Second {
			t.Errorf("other fields have changed: %+v", kept)
		}
	})
}

// TestConfigureWithoutUserFunctions: asynq's own rules hold for all errors but put-backs.
func TestConfigureWithoutUserFunctions(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, time.Second), func(t *testing.T, w *world) {
		cfg := w.shaper.Configure(asynq.Config{})
		putBack := fmt.Errorf("a middleware: %w", &worker.PutBackError{Delay: 1500 * time.Millisecond})
		task := asynq.NewTask("mail", nil)
		rows := []struct {
			err     error
			failure bool
		}{{nil, false}, {errBroken, true}, {putBack, false}, {context.Canceled, true},
			{errors.Join(errBroken, putBack), false}}
		for _, row := range rows {
			if got := cfg.IsFailure(row.err); got != row.failure {
				t.Errorf("IsFailure(%v) is %t, want %t", row.err, got, row.failure)
			}
		}
		// asynq keeps whole seconds, rounded down: less than a second more would be early.
		if got := cfg.RetryDelayFunc(0, putBack, task); got != 2500*time.Millisecond {
			t.Errorf("a put-back's delay is %s, want the slot's 1.5s and a second", got)
		}
		if got := cfg.RetryDelayFunc(3, errBroken, task); got < 3*3*3*time.Second {
			t.Errorf("a failure's delay is %s, want asynq's exponential one", got)
		}
	})
}

// watched returns a shaper's options and what it logs.
func watched() (*worker.Options, *observer.ObservedLogs) {
	core, logs := observer.New(zapcore.DebugLevel)
	return &worker.Options{Logger: zap.New(core)}, logs
}

func errorsIn(logs *observer.ObservedLogs) int {
	return logs.Filter(func(e observer.LoggedEntry) bool { return e.Level >= zapcore.ErrorLevel }).Len()
}

// TestForgottenConfigureIsLogged runs tasks on a server whose Config did not come from Configure:
// put-backs must cost no retry, and the log must say what is wrong.
func TestForgottenConfigureIsLogged(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, 2*time.Second), func(t *testing.T, w *world) {
		opts, logs := watched()
		s := w.newShaper(opts)
		const tasks = 12
		for n := range tasks {
			w.enqueue(n, "acme", 1)
		}
		var user asked
		w.start(w.client, user.config(), s.Wrap(asynq.HandlerFunc(w.process)))
		w.drained(tasks, time.Minute)
		w.checked(tasks)
		w.archived(0)
		if isFailure, _, errHandler := user.errors(); len(isFailure)+len(errHandler) != 0 {
			t.Errorf("asynq saw errors: %q, %q; want none, since the tasks wait in their handlers", isFailure, errHandler)
		}
		if got := s.Stats().PutBack; got != 0 {
			t.Errorf("put back %d times, want 0", got)
		}
		// 22 s of waiting, at most one line every ten.
		if got := errorsIn(logs); got < 1 || got > 3 {
			t.Errorf("logged %d errors, want 1 to 3: %v", got, logs.All())
		}
	})
}

// TestUnusedConfigureIsLogged drops the Config that Configure returned: asynq takes put-backs for
// failures until the Shaper notices.
func TestUnusedConfigureIsLogged(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(10, time.Second), func(t *testing.T, w *world) {
		opts, logs := watched()
		s := w.newShaper(opts)
		const tasks = 400
		for n := range tasks {
			w.enqueue(n, "acme", 1)
		}
		cfg := asynq.Config{Concurrency: 4, RetryDelayFunc: asSoonAsPossible,
			TaskCheckInterval: 50 * time.Millisecond, DelayedTaskCheckInterval: 500 * time.Millisecond}
		s.Configure(cfg)
		w.start(w.client, cfg, s.Wrap(asynq.HandlerFunc(w.process)))
		w.until("it is noticed", 10*time.Second, func() bool { return errorsIn(logs) > 0 })
		if got := s.Stats().PutBack; got > 100 {
			t.Errorf("noticed after %d put-backs, want not many more than the workers", got)
		}
		putBack := s.Stats().PutBack
		w.drained(tasks, 5*time.Minute)
		w.checked(tasks)
		w.archived(0)
		if got := s.Stats().PutBack; got > putBack+4 {
			t.Errorf("%d more put-backs after it was noticed, want the tasks to wait in their handlers", got-putBack)
		}
	})
}

// TestConfigureIsNotLoggedWhereUsed puts back as many tasks at once as a server of the
// default Concurrency can have: the log must not report a forgotten Configure.
func TestConfigureIsNotLoggedWhereUsed(t *testing.T) {
	t.Parallel()
	for _, concurrency := range []int{0, 1, 300} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			inBubble(t, perTenant(10, 30*time.Second), func(t *testing.T, w *world) {
				opts, logs := watched()
				s := w.newShaper(opts)
				const tasks = 310
				for n := range tasks {
					w.enqueue(n, "acme", 1)
				}
				w.serveWith(s, asynq.Config{Concurrency: concurrency})
				w.until("all but the first are put back", time.Minute, func() bool { return s.Stats().PutBack >= tasks-10 })
				if got := errorsIn(logs); got != 0 {
					t.Errorf("logged %d errors: %v", got, logs.All())
				}
			})
		})
	}
}

// TestTwoShapersOnOneServer gives two task types throttles of their own on one
// server, with the Configure of both around one Config.
func TestTwoShapersOnOneServer(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(10, time.Second), func(t *testing.T, w *world) {
		second, err := throttle.New("second", w.client, perTenant(10, time.Second), nil)
		if err != nil {
			t.Fatal(err)
		}
		opts, logs := watched()
		mails := w.newShaper(opts)
		calls, err := worker.New(second, w.client, jobOf, opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(calls.Stop)
		mux := asynq.NewServeMux()
		mux.Handle("mail", mails.Wrap(asynq.HandlerFunc(w.process)))
		mux.Handle("call", calls.Wrap(asynq.HandlerFunc(w.process)))
		const tasks = 400
		for n := range tasks / 2 {
			w.enqueue(n, "acme", 1)
			w.send(worker.NewTask("call", nil, headers("acme", 1), asynq.TaskID(fmt.Sprintf("c%d", n))))
		}
		w.start(w.client, calls.Configure(mails.Configure(asynq.Config{Concurrency: 4})), mux)
		w.drained(tasks, time.Minute)
		w.archived(0)
		if got := errorsIn(logs); got != 0 {
			t.Errorf("logged %d errors: %v", got, logs.FilterLevelExact(zapcore.ErrorLevel).All())
		}
		if m, c := mails.Stats().PutBack, calls.Stats().PutBack; m < tasks/4 || c < tasks/4 {
			t.Errorf("put back %d and %d times, want more of both", m, c)
		}
	})
}
