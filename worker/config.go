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
	// handOverInterval is the taskCheckInterval of a throttle with a running limit, where a place
	// that is given back must not stay free for long.
	handOverInterval = 2 * time.Millisecond
)

// Configure returns cfg for the asynq servers whose handlers the shaper wraps.
//
// It wraps IsFailure, RetryDelayFunc and ErrorHandler. They are not called for put-backs, and see
// the retries of a task as its user counts them. Once the own retries of a task of NewTask are used
// up, ErrorHandler is not called for a lost attempt that another one follows, nor for an attempt that
// just ends the task; RetryDelayFunc is not called if asynq itself ended the attempt, as after a
// panic. A panic in one of the three functions would end the process: the wrapper recovers and logs
// it. If IsFailure panics, the error counts as a failure; if RetryDelayFunc panics, asynq's own delay
// is used.
//
// Without Configure, asynq would take a put-back for a failure: a Shaper notices that, logs an
// error, and lets tasks wait inside their handlers.
//
// It sets TaskCheckInterval and DelayedTaskCheckInterval if they are zero: the first to 50 ms,
// or to 2 ms if the throttle has a running limit, so that the next task soon occupies a place
// that is given back. It wraps BaseContext, which asynq calls for each task, to log a
// warning if tasks are processed although Wrap was never called.
//
// For a server whose handlers several shapers wrap, call Configure of each, and first of those
// whose throttles have running limits. From Configure on the shaper pulls the throttle's line,
// until Stop.
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
			if counts, _ := retriesOf(ctx, task); isReported(ctx, counts, err) {
				guarded(s.log, "Config.ErrorHandler", func() { errorHandler.HandleError(s.translate(ctx, counts), task, err) })
			}
		})
	}
	if cfg.TaskCheckInterval == 0 {
		cfg.TaskCheckInterval = taskCheckInterval
		if s.handsOver {
			cfg.TaskCheckInterval = handOverInterval
		}
	}
	if cfg.DelayedTaskCheckInterval == 0 {
		cfg.DelayedTaskCheckInterval = delayedTaskCheckInterval
	}
	s.use.configured(cfg.Concurrency)
	s.puller.start() // a mux calls Wrap when a task comes; while all wait in line, none comes
	return cfg
}

// fallbackDelay is the delay after which asynq brings back a task that no process wakes. asynq
// keeps whole seconds and rounds down: with a second more the task is never early.
func fallbackDelay(delay time.Duration) time.Duration { return delay + time.Second }

// use watches whether asynq asks the shaper about put-backs, as it does with the Config
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

// seen notes that asynq asked. In a PutBackError that no shaper made, use is nil.
func (u *use) seen() {
	if u != nil {
		u.unseen.Store(0)
	}
}

// works reports whether asynq would understand a put-back.
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

// seldom limits how often many tasks write the same log line.
type seldom struct{ last atomic.Int64 } // in Unix nanoseconds

// due reports, to one of many callers, whether the line may be written again.
func (s *seldom) due(every time.Duration) bool {
	now, last := time.Now().UnixNano(), s.last.Load()
	return now-last >= int64(every) && s.last.CompareAndSwap(last, now)
}

// wrapWithin is how long after the first task Wrap must have been called: a mux calls it
// for each task.
const wrapWithin = time.Second

// watchTasks wraps base, which asynq calls for each task, and adds a note to the context. If Wrap
// was not called soon after the first task, the shaper logs that nothing is throttled.
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
