package worker

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
)

// The intervals that Configure sets where the user has set none. asynq's own
// (1 s, 5 s) would let a task start seconds late.
const (
	taskCheckInterval        = 50 * time.Millisecond
	delayedTaskCheckInterval = 500 * time.Millisecond
	// handOverInterval is how often asynq looks for tasks where places are handed over.
	handOverInterval = 2 * time.Millisecond
)

// Configure returns cfg with the shaper put around its IsFailure, RetryDelayFunc
// and ErrorHandler, which are still called for everything that is no put-back and see the
// retries of a task as its user counts them (NewTask), and
// with TaskCheckInterval and DelayedTaskCheckInterval set if they are not: the first to
// 50 ms, or to 2 ms where the throttle has a running limit, so that a place that is given
// back is soon used again. A server
// whose handlers are wrapped by several shapers takes the Configure of each, first
// of those whose throttles have running limits. Without it asynq would take a put-back
// for a failure; a Shaper whose Configure was not used notices, says so at error
// level, and lets tasks wait inside their handler instead of putting them back. A panic of
// the user's functions, which would end the process, is logged: the error is a failure then,
// and asynq's own delay is taken. If
// tasks are processed and Wrap was never called, so that nothing is throttled, the
// shaper says that at warn level: BaseContext, which asynq calls for each task,
// tells it. From Configure on the shaper pulls the throttle's line, until Stop.
func (s *Shaper) Configure(cfg asynq.Config) asynq.Config {
	isFailure, retryDelay, errorHandler := cfg.IsFailure, cfg.RetryDelayFunc, cfg.ErrorHandler
	if retryDelay == nil {
		retryDelay = asynq.DefaultRetryDelayFunc
	}
	cfg.IsFailure = func(err error) bool {
		fails := err != nil
		switch {
		case IsPutBack(err):
			return false
		case isFailure != nil:
			guarded(s.log, "Config.IsFailure", func() { fails = isFailure(err) })
		}
		return fails
	}
	cfg.RetryDelayFunc = func(n int, err error, task *asynq.Task) time.Duration {
		var putBack *PutBackError
		if errors.As(err, &putBack) {
			putBack.use.seen()
			return fallbackDelay(putBack.Delay)
		}
		var delay time.Duration
		if guarded(s.log, "Config.RetryDelayFunc", func() { delay = ownDelay(retryDelay, n, err, task) }) {
			return delay
		}
		return asynq.DefaultRetryDelayFunc(n, err, task)
	}
	cfg.BaseContext = s.watchTasks(cfg.BaseContext)
	if errorHandler != nil {
		cfg.ErrorHandler = asynq.ErrorHandlerFunc(func(ctx context.Context, task *asynq.Task, err error) {
			if counts, _ := retriesOf(ctx, task); isTold(ctx, counts, err) {
				guarded(s.log, "Config.ErrorHandler", func() { errorHandler.HandleError(s.translate(ctx, counts), task, err) })
			}
		})
	}
	if cfg.TaskCheckInterval == 0 {
		cfg.TaskCheckInterval = taskCheckInterval
		if s.driver.HandsOver() {
			cfg.TaskCheckInterval = handOverInterval
		}
	}
	if cfg.DelayedTaskCheckInterval == 0 {
		cfg.DelayedTaskCheckInterval = delayedTaskCheckInterval
	}
	s.use.configured(cfg.Concurrency)
	s.puller.start() // a mux calls Wrap when a task comes, and none does while all stand in line
	return cfg
}

// fallbackDelay is asynq's own time for a put-back task, which brings it back if
// nobody wakes it. asynq keeps whole seconds and rounds down: a second more makes
// sure that it is not early.
func fallbackDelay(delay time.Duration) time.Duration { return delay + time.Second }

// use watches whether asynq asks us about put-backs, as it does with the Config
// that Configure returned.
type use struct {
	allowance atomic.Int64 // put-backs that may be under way; 0 before Configure
	unseen    atomic.Int64 // put-backs since asynq last asked
	complaint seldom
}

func (u *use) configured(concurrency int) {
	if concurrency < 1 {
		concurrency = runtime.NumCPU() // as asynq does
	}
	u.allowance.Add(2*int64(concurrency) + 64)
}

func (u *use) putBack() { u.unseen.Add(1) }

// seen notes that asynq asked. A put-back that no shaper made has no use.
func (u *use) seen() {
	if u != nil {
		u.unseen.Store(0)
	}
}

// works tells whether a put-back would be understood.
func (u *use) works() bool { return u.unseen.Load() < u.allowance.Load() }

// complain logs, at most every ten seconds, that Configure was forgotten.
func (s *Shaper) complain() {
	if !s.use.complaint.due(10 * time.Second) {
		return
	}
	s.log.Error(
		"worker: asynq does not know of put-backs: pass the Config that Shaper.Configure returns to the asynq server. " +
			"Until then tasks wait inside their handler, where each occupies a worker")
}

// seldom keeps a log line that many tasks have reason for from flooding the log.
type seldom struct{ last atomic.Int64 } // in Unix nanoseconds

// due tells, to one of many callers, that the line may be written again.
func (s *seldom) due(every time.Duration) bool {
	now, last := time.Now().UnixNano(), s.last.Load()
	return now-last >= int64(every) && s.last.CompareAndSwap(last, now)
}

// wrapWithin is how long after the first task Wrap must have been called: a mux calls it
// for each task.
const wrapWithin = time.Second

// watchTasks returns base, which asynq calls for each task, with a note. If Wrap was not called
// soon after the first, it logs that nothing is throttled.
func (s *Shaper) watchTasks(base func() context.Context) func() context.Context {
	return func() context.Context {
		s.firstTask.Do(func() { time.AfterFunc(wrapWithin, s.missWrap) })
		ctx := context.Background()
		if base != nil {
			guarded(s.log, "Config.BaseContext", func() { ctx = base() })
		}
		return withNote(ctx)
	}
}

func (s *Shaper) missWrap() {
	if !s.wrapped.Load() && !s.isStopped() {
		s.log.Warn("worker: tasks are processed, and Shaper.Wrap is around no handler so far: none of them is throttled. " +
			"Put it first into the mux: mux.Use(shaper.Wrap)")
	}
}
