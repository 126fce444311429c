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

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// recipe is the ErrorHandler of asynq's wiki, which distinguishes the last error of a task from
// the others, and a RetryDelayFunc. It keeps their arguments.
type recipe struct {
	mu     sync.Mutex
	alerts []error
	heard  int   // errors in all
	delays []int // each n that a delay was asked for
}

// HandleError implements asynq.ErrorHandler.
func (r *recipe) HandleError(ctx context.Context, _ *asynq.Task, err error) {
	retried, _ := asynq.GetRetryCount(ctx)
	maxRetry, _ := asynq.GetMaxRetry(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard++
	if retried >= maxRetry {
		r.alerts = append(r.alerts, err)
	}
}

func (r *recipe) delay(n int, _ error, _ *asynq.Task) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delays = append(r.delays, n)
	return time.Second
}

func (r *recipe) config() asynq.Config {
	return asynq.Config{Concurrency: 2, ErrorHandler: r, RetryDelayFunc: r.delay}
}

// badEnds are the ways in which an attempt of a task can end badly.
var badEnds = []struct {
	name    string
	opts    []asynq.Option
	handler func(ctx context.Context, wire *wire) error
}{
	{"an error", nil, func(context.Context, *wire) error { return errBroken }},
	{"a panic", nil, func(context.Context, *wire) error { panic("always") }},
	{"a timeout", []asynq.Option{asynq.Timeout(time.Second)}, waitForTheEnd},
	{"a lost lease", nil, func(ctx context.Context, wire *wire) error {
		wire.cut()
		time.AfterFunc(70*time.Second, wire.mend)
		return waitForTheEnd(ctx, wire)
	}},
}

func waitForTheEnd(ctx context.Context, _ *wire) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestRecipeOfErrorHandlerAlertsOnce lets all attempts of a task fail, and compares the alerts
// of asynq's own recipe with those without a throttle. RetryDelayFunc is called for no more
// retries than the task has: it may look its delay up in a table.
func TestRecipeOfErrorHandlerAlertsOnce(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	for _, way := range badEnds {
		for _, maxRetry := range []int{0, 2, 25} {
			t.Run(fmt.Sprintf("%s, MaxRetry %d", way.name, maxRetry), func(t *testing.T) {
				if maxRetry == 25 && way.name != "an error" {
					longtest.Only(t, "the default MaxRetry with errors, and fewer retries of all")
				}
				inBubble(t, perTenant(100, time.Second), func(t *testing.T, w *world) {
					wire := newWire(w)
					handler := asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error { return way.handler(ctx, wire) })
					opts := append([]asynq.Option{asynq.TaskID("a")}, way.opts...)
					if maxRetry != 25 { // asynq's default
						opts = append(opts, asynq.MaxRetry(maxRetry))
					}
					counts := make(map[string][2]int)
					for name, serve := range map[string]func(r *recipe) *asynq.Server{
						"asynq": func(r *recipe) *asynq.Server {
							w.send(asynq.NewTask("mail", nil, opts...))
							return w.start(wire.client, r.config(), handler)
						},
						"throttle": func(r *recipe) *asynq.Server {
							w.send(worker.NewTask("mail", nil, headers("acme", 1), opts...))
							return w.start(wire.client, w.shaper.Configure(r.config()), w.shaper.Wrap(handler))
						},
					} {
						r := new(recipe)
						server := serve(r)
						w.until("the task is archived", 24*time.Hour, w.in("a", asynq.TaskStateArchived))
						server.Shutdown()
						if err := w.tasks.DeleteTask("default", "a"); err != nil {
							t.Fatal(err)
						}
						if len(r.alerts) != 1 {
							t.Errorf("%s: %d alerts, want 1: %v", name, len(r.alerts), r.alerts)
						}
						for _, n := range r.delays {
							if n >= maxRetry {
								t.Errorf("%s: asked for the delay after %d of %d retries", name, n, maxRetry)
							}
						}
						counts[name] = [2]int{len(r.alerts), r.heard}
					}
					if counts["asynq"] != counts["throttle"] {
						t.Errorf("alerts and errors told: %v with the throttle, %v without", counts["throttle"], counts["asynq"])
					}
				})
			})
		}
	}
}

// TestRecipeOfErrorHandlerAlertsOnceAfterADeadline lets a Deadline pass in the first attempt:
// asynq fails all later attempts without a call of the handler.
func TestRecipeOfErrorHandlerAlertsOnceAfterADeadline(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	inBubble(t, perTenant(100, time.Second), func(t *testing.T, w *world) {
		r := new(recipe)
		handler := asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error { return waitForTheEnd(ctx, nil) })
		w.send(worker.NewTask("mail", nil, headers("acme", 1), asynq.TaskID("a"), asynq.MaxRetry(2),
			asynq.Deadline(time.Now().Add(2*time.Second))))
		server := w.start(w.client, w.shaper.Configure(r.config()), w.shaper.Wrap(handler))
		w.until("the task is archived", time.Hour, w.in("a", asynq.TaskStateArchived))
		server.Shutdown()
		if len(r.alerts) != 1 || r.heard != 3 {
			t.Errorf("%d alerts among %d errors, want one among three", len(r.alerts), r.heard)
		}
	})
}

// TestRecipeOfErrorHandlerAlertsOnceAfterALoss loses the last attempt of a task, which another
// attempt makes up for: there is no alert for the lost attempt, and one for an error of the next.
func TestRecipeOfErrorHandlerAlertsOnceAfterALoss(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	for _, fails := range []bool{false, true} {
		t.Run(fmt.Sprintf("the next fails: %t", fails), func(t *testing.T) {
			inBubble(t, perTenant(100, time.Second), func(t *testing.T, w *world) {
				r, wire, runs := new(recipe), newWire(w), 0
				handler := asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
					runs++
					switch {
					case runs == 1:
						return badEnds[3].handler(ctx, wire)
					case fails:
						return errBroken
					}
					return nil
				})
				w.send(worker.NewTask("mail", nil, headers("acme", 1), asynq.TaskID("a"), asynq.MaxRetry(0)))
				server := w.start(wire.client, w.shaper.Configure(r.config()), w.shaper.Wrap(handler))
				want := 0
				if fails {
					w.until("the task is archived", time.Hour, w.in("a", asynq.TaskStateArchived))
					want = 1
				} else {
					w.until("asynq is done with the task", time.Hour, w.gone("a"))
				}
				server.Shutdown()
				if len(r.alerts) != want || want > 0 && !errors.Is(r.alerts[0], errBroken) || runs != 2 {
					t.Errorf("alerts %v, want %d; it ran %d times, want twice", r.alerts, want, runs)
				}
			})
		})
	}
}

// TestHandlersSeeTheUsersCounts compares the counts that a handler and a JobFunc see in each attempt
// of a task of NewTask, put back in between, with the counts of a task of asynq.NewTask.
func TestHandlersSeeTheUsersCounts(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, 3*time.Second), func(t *testing.T, w *world) {
		var told, jobs [][4]int
		counts := func(ctx context.Context) (c [4]int) {
			c[0], _ = asynq.GetRetryCount(ctx)
			c[1], _ = asynq.GetMaxRetry(ctx)
			c[2], c[3], _ = worker.Retries(ctx)
			return c
		}
		shaper := w.newShaperOf(func(ctx context.Context, task *asynq.Task) (throttle.Job, error) {
			jobs = append(jobs, counts(ctx))
			return jobOf(ctx, task)
		}, nil)
		w.enqueue(0, "acme", 1, asynq.MaxRetry(2))
		server := w.start(w.client, shaper.Configure(asynq.Config{Concurrency: 1, RetryDelayFunc: asSoonAsPossible}),
			shaper.Wrap(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
				told = append(told, counts(ctx))
				if id, _ := asynq.GetTaskID(ctx); id != "000000" {
					t.Errorf("the task is %q", id)
				}
				return errBroken
			})))
		w.until("the task is archived", time.Minute, w.in("000000", asynq.TaskStateArchived))
		server.Shutdown()
		if want := [][4]int{{0, 2, 0, 2}, {1, 2, 1, 2}, {2, 2, 2, 2}}; !slices.Equal(told, want) ||
			!slices.Equal(slices.Compact(jobs), want) {
			t.Errorf("the handler was told %v, the JobFunc %v, want %v", told, jobs, want)
		}
	})
}

// TestRetriesOutsideOfAsynq calls Retries with a context without a task.
func TestRetriesOutsideOfAsynq(t *testing.T) {
	t.Parallel()
	if retried, maxRetry, ok := worker.Retries(t.Context()); retried != 0 || maxRetry != 0 || ok {
		t.Errorf("got %d, %d, %t", retried, maxRetry, ok)
	}
}
