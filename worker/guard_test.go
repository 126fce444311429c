package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// broken is an Observer whose methods panic.
type broken struct{}

func (broken) Decided(throttle.Decision)   { panic("decided") }
func (broken) FellBack(throttle.Outage)    { panic("fell back") }
func (broken) Called(throttle.ScriptCall)  { panic("called") }
func (broken) Started(throttle.Lateness)   { panic("started") }
func (broken) Settled(throttle.Settlement) { panic("settled") }
func (broken) Paused(throttle.Pause)       { panic("paused") }
func (broken) Adapted(throttle.Adaptation) { panic("adapted") }
func (broken) PutBack(throttle.PutBack)    { panic("put back") }
func (broken) Ended(throttle.Ending)       { panic("ended") }

// TestPanicsOfTheUserGoNoFurther lets all functions of the user panic, except the handler and the
// JobFunc: all tasks run all the same, their failures are retried by asynq's own delay, and
// places of a running limit are handed over. The log names each function.
func TestPanicsOfTheUserGoNoFurther(t *testing.T) {
	t.Parallel()
	scopes := []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.PerMinute(40), throttle.Running(2)}}}
	inBubbleWith(t, scopes, &throttle.Options{Observer: broken{}}, func(t *testing.T, w *world) {
		const tasks = 6
		opts, logs := watched()
		opts.Estimator = newEstimator(t, 1, atOnce)
		opts.Kind = func(*asynq.Task) (string, int64) { panic("kind") }
		s := w.newShaperOf(jobOf, opts) // whose jobs have a weight: Kind is called at the settlement
		w.result = func(ctx context.Context, _ *asynq.Task) error {
			if err := worker.Settle(ctx, 1); err != nil {
				t.Error(err)
			}
			if retried, _, _ := worker.Retries(ctx); retried == 0 {
				return errBroken
			}
			return nil
		}
		for n := range tasks {
			w.enqueue(n, "acme", 1)
		}
		w.serveWith(s, asynq.Config{
			Concurrency: 4, TaskCheckInterval: 100 * time.Millisecond,
			BaseContext:    func() context.Context { panic("base context") },
			IsFailure:      func(error) bool { panic("is failure") },
			RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { panic("retry delay") },
			ErrorHandler:   asynq.ErrorHandlerFunc(func(context.Context, *asynq.Task, error) { panic("error handler") }),
		})
		w.drained(tasks, 10*time.Minute)
		for _, of := range []string{
			"Config.BaseContext", "Config.IsFailure", "Config.RetryDelayFunc", "Config.ErrorHandler", "Options.Kind",
		} {
			if logs.FilterMessage("worker: "+of+" panicked").Len() == 0 {
				t.Errorf("the log does not say that %s panicked", of)
			}
		}
	})
}
