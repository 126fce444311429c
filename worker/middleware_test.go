package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/upstream"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

var errNoTenant = errors.New("the task names no tenant")

const secretTenant = "acme-secret"

func returns(job throttle.Job) worker.JobFunc {
	return func(context.Context, *asynq.Task) (throttle.Job, error) { return job, nil }
}

// TestJobFunctionFails lets the user's function return an error, panic, or return an invalid
// job: the task fails as if its handler had, is retried by asynq's rules, and runs when the
// function is mended.
func TestJobFunctionFails(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name string
		job  worker.JobFunc
		want []string // in the task's last error
	}{
		{"error", func(context.Context, *asynq.Task) (throttle.Job, error) { return throttle.Job{}, errNoTenant },
			[]string{`"mail"`, errNoTenant.Error()}},
		{"panic", func(context.Context, *asynq.Task) (throttle.Job, error) { panic("no such field") },
			[]string{`"mail"`, "panicked", "no such field"}},
		{"panic with an error", func(context.Context, *asynq.Task) (throttle.Job, error) { panic(errNoTenant) },
			[]string{"panicked", errNoTenant.Error()}},
		{"nil map", func(_ context.Context, task *asynq.Task) (throttle.Job, error) {
			var keys map[string]string
			keys["tenant"] = task.Headers()["tenant"] //nolint:staticcheck // a mistake of a user
			return throttle.Job{Weight: 1, Keys: keys}, nil
		}, []string{"panicked", "nil map"}},
		{"F44 weight 0", returns(throttle.Job{Keys: map[string]string{"tenant": secretTenant}}), []string{"Weight 0"}},
		{"F44 weight -1", returns(throttle.Job{Weight: -1, Keys: map[string]string{"tenant": secretTenant}}),
			[]string{"Weight -1"}},
		{"unknown scope",
			returns(
				throttle.Job{Weight: 1, Keys: map[string]string{"tenant": secretTenant, "planet": secretTenant}}),
			[]string{"planet"}},
		{"no key", returns(throttle.Job{Weight: 1}), []string{"tenant", "no key"}},
		{"empty key", returns(throttle.Job{Weight: 1, Keys: map[string]string{"tenant": ""}}), []string{"tenant", "empty"}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, perTenant(10, time.Second), func(t *testing.T, w *world) {
				var right atomic.Bool
				var user asked
				cfg := user.config()
				s := w.newShaperOf(func(ctx context.Context, task *asynq.Task) (throttle.Job, error) {
					if right.Load() {
						return jobOf(ctx, task)
					}
					return row.job(ctx, task)
				}, nil)
				w.serveWith(s, cfg)
				id := w.enqueue(0, "acme", 1)
				w.until("the task has failed", time.Second, w.in(id, asynq.TaskStateRetry))
				info := w.task(id)
				if info.Retried != 1 {
					t.Errorf("retried %d times, want 1", info.Retried)
				}
				for _, want := range row.want {
					if !strings.Contains(info.LastErr, want) {
						t.Errorf("the last error is %q, want it to hold %q", info.LastErr, want)
					}
				}
				if strings.Contains(info.LastErr, secretTenant) || len(info.LastErr) > 200 {
					t.Errorf("the last error is %q, want it short and no key in it", info.LastErr)
				}
				isFailure, _, errHandler := user.errors()
				if len(isFailure) != 1 || len(errHandler) != 1 {
					t.Errorf("IsFailure got %d errors and ErrorHandler %d, want 1 and 1", len(isFailure), len(errHandler))
				}
				if row.name == "error" && !isAny(errHandler, errNoTenant) {
					t.Errorf("ErrorHandler got %v, want the function's error", errHandler)
				}
				right.Store(true)
				w.drained(1, time.Minute)
				w.checked(1)
			})
		})
	}
}

// TestJobFunctionFailsForGood: the user's own number of retries also holds for a job
// function that never works.
func TestJobFunctionFailsForGood(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(10, time.Second), func(t *testing.T, w *world) {
		var calls atomic.Int64
		s := w.newShaperOf(func(context.Context, *asynq.Task) (throttle.Job, error) {
			calls.Add(1)
			return throttle.Job{}, errNoTenant
		}, nil)
		w.serveWith(s, asynq.Config{Concurrency: 1, RetryDelayFunc: asSoonAsPossible})
		id := w.enqueue(0, "acme", 1, asynq.MaxRetry(2))
		w.until("the task is archived", time.Minute, w.in(id, asynq.TaskStateArchived))
		if calls.Load() != 3 || w.ran(id) != 0 {
			t.Errorf("asked %d times and ran %d times, want 3 and 0", calls.Load(), w.ran(id))
		}
	})
}

// TestJobsThatCanNeverStart: tasks whose jobs can never be granted are ended at once, with
// a reason that asynqmon shows. T6, F46.
func TestJobsThatCanNeverStart(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name string
		job  throttle.Job
		want []string // in the task's last error
	}{
		{"F46 heavier than a window", throttle.Job{Weight: 11, Keys: map[string]string{"tenant": secretTenant}},
			[]string{"11", "never", "10/1s"}},
		{"deadline long past", throttle.Job{Weight: 1, Keys: map[string]string{"tenant": secretTenant},
			Deadline: time.Unix(1, 0)}, []string{"deadline", "1970-01-01T00:00:01Z"}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, perTenant(10, time.Second), func(t *testing.T, w *world) {
				s := w.newShaperOf(func(ctx context.Context, task *asynq.Task) (throttle.Job, error) {
					if task.Headers()["tenant"] == "fine" {
						return jobOf(ctx, task)
					}
					return row.job, nil
				}, nil)
				var user asked
				w.serveWith(s, user.config())
				// Takes all of the window, so that the job with a deadline has to wait.
				w.enqueue(0, "fine", 10)
				w.drained(1, time.Second)
				if _, err := w.throttle.Reserve(t.Context(),
					throttle.Job{ID: "other", Weight: 10, Keys: map[string]string{"tenant": secretTenant}}); err != nil {
					t.Fatal(err)
				}
				id := w.enqueue(1, "wrong", 1)
				w.until("the task is archived", time.Second, w.in(id, asynq.TaskStateArchived))
				info := w.task(id)
				for _, want := range row.want {
					if !strings.Contains(info.LastErr, want) {
						t.Errorf("the last error is %q, want it to hold %q", info.LastErr, want)
					}
				}
				if strings.Contains(info.LastErr, secretTenant) {
					t.Errorf("the last error is %q, want no key in it", info.LastErr)
				}
				if len(info.LastErr) > 160 {
					t.Errorf("the last error has %d bytes: %q", len(info.LastErr), info.LastErr)
				}
				if info.Retried != 0 || w.ran(id) != 0 || s.Stats().Ended != 1 || s.Stats().PutBack != 0 {
					t.Errorf("retried %d times, ran %d times, stats %+v; want 0, 0, and 1 ended", info.Retried, w.ran(id), s.Stats())
				}
				if _, _, errHandler := user.errors(); !isAny(errHandler, asynq.SkipRetry) {
					t.Errorf("ErrorHandler got %v, want the end of the task", errHandler)
				}
			})
		})
	}
}

// TestWeightOfTheWholeWindowRuns_F46: a task that weighs as much as the limit runs.
func TestWeightOfTheWholeWindowRuns_F46(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(10, time.Second), func(t *testing.T, w *world) {
		w.serve(asynq.Config{Concurrency: 4})
		for n := range 3 {
			w.enqueue(n, "acme", 10)
		}
		w.drained(3, 10*time.Second)
		w.checked(3)
	})
}

// TestDeadlineBeforeTheSlot_F38: a task that cannot start in time is ended at once, and
// nothing stays booked for it.
func TestDeadlineBeforeTheSlot_F38(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name    string
		enqueue func(w *world) string
		ended   bool
	}{
		{"asynq's Deadline before it", func(w *world) string {
			return w.enqueue(1, "acme", 1, asynq.Deadline(w.began.Add(5*time.Second)))
		}, true},
		{"asynq's Deadline before it, MaxRetry 0", func(w *world) string {
			return w.enqueuePlain(1, "acme", 1, asynq.MaxRetry(0), asynq.Deadline(w.began.Add(5*time.Second)))
		}, true},
		{"asynq's Deadline after it", func(w *world) string {
			return w.enqueue(1, "acme", 1, asynq.Deadline(w.began.Add(15*time.Second)))
		}, false},
		{"asynq's Deadline after it, MaxRetry 0", func(w *world) string {
			return w.enqueuePlain(1, "acme", 1, asynq.MaxRetry(0), asynq.Deadline(w.began.Add(15*time.Second)))
		}, false},
		{"Timeout shorter than the wait", func(w *world) string {
			return w.enqueue(1, "acme", 1, asynq.Timeout(2*time.Second))
		}, false},
		{"Timeout shorter than the wait, Deadline after the slot", func(w *world) string {
			return w.enqueue(1, "acme", 1, asynq.Timeout(2*time.Second), asynq.Deadline(w.began.Add(15*time.Second)))
		}, false},
		{"Timeout shorter than the wait, spare retry of MaxRetry 0", func(w *world) string {
			return w.enqueue(1, "acme", 1, asynq.MaxRetry(0), asynq.Timeout(2*time.Second))
		}, false},
		{"Timeout longer than the wait, MaxRetry 0", func(w *world) string {
			return w.enqueuePlain(1, "acme", 1, asynq.MaxRetry(0), asynq.Timeout(20*time.Second))
		}, false},
		{"the job's Deadline before it", func(w *world) string {
			w.send(worker.NewTask("mail", nil, map[string]string{"tenant": "acme", "deadline": "5s"}, asynq.TaskID("000001")))
			return "000001"
		}, true},
		{"the job's Deadline after it", func(w *world) string {
			w.send(worker.NewTask("mail", nil, map[string]string{"tenant": "acme", "deadline": "15s"}, asynq.TaskID("000001")))
			return "000001"
		}, false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			inFarAhead(t, perTenant(1, 10*time.Second), func(t *testing.T, w *world) {
				s := w.newShaperOf(func(ctx context.Context, task *asynq.Task) (throttle.Job, error) {
					job, err := jobOf(ctx, task)
					if text := task.Headers()["deadline"]; text != "" {
						after, err := time.ParseDuration(text)
						job.Deadline = w.began.Add(after)
						return job, err
					}
					return job, err
				}, nil)
				w.serveWith(s, asynq.Config{Concurrency: 4})
				w.enqueue(0, "acme", 1)
				w.drained(1, time.Second)
				id := row.enqueue(w)
				if !row.ended {
					w.drained(2, 20*time.Second)
					w.until("asynq is done with it", time.Second, w.gone(id))
					w.checked(2)
					w.archived(0)
					return
				}
				w.until("the task is archived", time.Second, w.in(id, asynq.TaskStateArchived))
				w.archived(1)
				if got := w.task(id).LastErr; !strings.Contains(got, "after the deadline") {
					t.Errorf("the last error is %q, want the reason", got)
				}
				if used, booked := w.used("acme"); used != 1 || booked != 0 {
					t.Errorf("used %d and booked %d, want 1 and nothing kept for it", used, booked)
				}
				if w.ran(id) != 0 || s.Stats().Ended != 1 {
					t.Errorf("ran %d times, ended %d, want 0 and 1", w.ran(id), s.Stats().Ended)
				}
			})
		})
	}
}

// TestNewRefusesWrongArguments: the error names the wrong argument.
func TestNewRefusesWrongArguments(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, time.Second), func(t *testing.T, w *world) {
		rows := []struct {
			field string
			make  func() (*worker.Shaper, error)
		}{
			{"th", func() (*worker.Shaper, error) { return worker.New(nil, w.client, jobOf, nil) }},
			{"client", func() (*worker.Shaper, error) { return worker.New(w.throttle, nil, jobOf, nil) }},
			{"client", func() (*worker.Shaper, error) { return worker.New(w.throttle, (*redis.Client)(nil), jobOf, nil) }},
			{"job", func() (*worker.Shaper, error) { return worker.New(w.throttle, w.client, nil, nil) }},
			{"MaxWait", func() (*worker.Shaper, error) {
				return worker.New(w.throttle, w.client, jobOf, &worker.Options{MaxWait: time.Millisecond})
			}},
			{"MaxWait", func() (*worker.Shaper, error) {
				return worker.New(w.throttle, w.client, jobOf, &worker.Options{MaxWait: 6 * time.Second})
			}},
			{"Backoff", func() (*worker.Shaper, error) {
				return worker.New(w.throttle, w.client, jobOf, &worker.Options{Backoff: -time.Second})
			}},
			{"Backoff", func() (*worker.Shaper, error) {
				return worker.New(w.throttle, w.client, jobOf, &worker.Options{Backoff: 2 * time.Hour})
			}},
			{"MaxAskedWait", func() (*worker.Shaper, error) {
				return worker.New(w.throttle, w.client, jobOf, &worker.Options{MaxAskedWait: time.Millisecond})
			}},
			{"MaxAskedWait", func() (*worker.Shaper, error) {
				return worker.New(w.throttle, w.client, jobOf, &worker.Options{MaxAskedWait: upstream.MaxWait + 1})
			}},
		}
		for i, row := range rows {
			s, err := row.make()
			var option *throttle.OptionError
			if s != nil || !errors.As(err, &option) || option.Field != row.field {
				t.Errorf("row %d: got %v and %v, want an *OptionError of %s", i, s, err, row.field)
			}
		}
	})
}

// TestMiddlewareWithoutServer calls a wrapped handler as a user's unit test might.
func TestMiddlewareWithoutServer(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, time.Second), func(t *testing.T, w *world) {
		called := false
		handler := w.shaper.Wrap(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { called = true; return nil }))
		err := handler.ProcessTask(t.Context(), asynq.NewTask("mail", nil))
		if called || err == nil || !strings.Contains(err.Error(), "without an asynq server") {
			t.Errorf("called %t, error %v; want an error that says why", called, err)
		}
	})
}

// TestMux_UseAndBareHandler wraps by both ways, with other middlewares around.
func TestMux_UseAndBareHandler(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, time.Second), func(t *testing.T, w *world) {
		var seen []string
		mux := asynq.NewServeMux()
		mux.Use(w.shaper.Wrap, func(next asynq.Handler) asynq.Handler {
			return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				err := next.ProcessTask(ctx, task)
				w.mu.Lock()
				seen = append(seen, fmt.Sprint(err))
				w.mu.Unlock()
				return err
			})
		})
		mux.HandleFunc("mail", w.process)
		w.start(w.client, w.shaper.Configure(asynq.Config{Concurrency: 1}), mux)
		for n := range 3 {
			w.enqueue(n, "acme", 1)
		}
		w.drained(3, 10*time.Second)
		w.checked(3)
		w.mu.Lock()
		defer w.mu.Unlock()
		if fmt.Sprint(seen) != "[<nil> <nil> <nil>]" {
			t.Errorf("the inner middleware saw %v, want three successes and no put-back", seen)
		}
	})
}

// TestJobFuncThatPlans: a JobFunc that a Client also uses may set Plan; for the workers its jobs are
// like any others.
func TestJobFuncThatPlans(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(10, time.Minute), func(t *testing.T, w *world) {
		shaper := w.newShaperOf(func(ctx context.Context, task *asynq.Task) (throttle.Job, error) {
			job, err := jobOf(ctx, task)
			job.Plan = true
			return job, err
		}, nil)
		w.serveWith(shaper, asynq.Config{Concurrency: 4})
		w.enqueue(0, "acme", 1)
		w.drained(1, 10*time.Second)
	})
}

// TestJobFuncThatBounds: a JobFunc that a Client also uses may set Bounded; for the workers its jobs are like any
// others, since asynq has their tasks already.
func TestJobFuncThatBounds(t *testing.T) {
	t.Parallel()
	scopes := perTenant(1, 5*time.Second)
	scopes[0].MaxWaiting = throttle.Length{Jobs: 1}
	inBubble(t, scopes, func(t *testing.T, w *world) {
		shaper := w.newShaperOf(func(ctx context.Context, task *asynq.Task) (throttle.Job, error) {
			job, err := jobOf(ctx, task)
			job.Bounded = true
			return job, err
		}, nil)
		w.serveWith(shaper, asynq.Config{Concurrency: 4})
		for n := range 4 {
			w.enqueue(n, "acme", 1, asynq.MaxRetry(0))
		}
		w.drained(4, time.Minute)
		w.checked(4)
	})
}
