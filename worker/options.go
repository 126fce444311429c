package worker

import (
	"context"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/estimate"
	"github.com/asynq-throttle/asynq-throttle/internal/seam"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/upstream"
)

// The defaults of Options.
const (
	DefaultMaxWait = 200 * time.Millisecond
	DefaultBackoff = time.Second
)

// Options are the settings of a Shaper that have a default. The zero value and
// nil are both ready to use.
type Options struct {
	// MaxWait is how long a task may wait for its start inside the handler,
	// where it occupies one of the server's workers. A task further from its
	// start goes back to asynq and is woken half a MaxWait before its start. A longer
	// MaxWait makes starts more punctual, a shorter one leaves more workers free.
	// 0 means DefaultMaxWait; 10 ms to 5 s.
	MaxWait time.Duration
	// Backoff is the shortest time after which a task comes back when Redis cannot
	// decide (throttle.FallbackClosed). The longer Redis is away, the longer tasks are put
	// back: up to a minute, or twice Backoff if that is more. The first ten thousand tasks that a
	// process has put back come as soon as Redis decides again.
	// 0 means DefaultBackoff; 100 ms to 1 h.
	Backoff time.Duration
	// MaxAskedWait is the longest time for which one reply of an upstream closes a key, by a WaitError
	// or by Report. A longer wait is cut to MaxAskedWait, and so is DefaultAskedWait. If an upstream
	// names no time, the key of a scope with a Floor is closed for up to 5 minutes, whatever
	// MaxAskedWait is: see throttle.Throttle.Report.
	// 0 means upstream.MaxWait, a day; 1 s to upstream.MaxWait.
	MaxAskedWait time.Duration
	// Expired is called for a task that cannot start by its deadline (Job.Deadline, ExpiresIn or
	// asynq.Deadline), in place of the handler, with the handler's context. Its return value is
	// the task's result for asynq, as if the handler had returned it: nil ends the task, an
	// error that wraps asynq.SkipRetry archives it, another error is a failure, and the retry calls
	// Expired again. The function Drop deletes the task. If Expired is nil, the task is
	// archived with the reason.
	Expired func(ctx context.Context, task *asynq.Task, late *throttle.DeadlineError) error
	// KeepRunning lets a handler run on after its task has lost its places under a running limit.
	// Without KeepRunning, the handler's context ends shortly before the places are lost, with ErrPlaceLost as the cause.
	KeepRunning bool
	// Estimator fills in the Weight of a job whose JobFunc gave none, and learns from what
	// handlers settle (Settle). It does not learn from refunds and SettleCosts, nor from other
	// processes. nil: each job needs a Weight of its own.
	Estimator *estimate.Estimator
	// Kind returns the kind and the size of a task for the Estimator. It is called after a
	// JobFunc that gave no Weight, where a panic fails the task, and when the task is settled,
	// where a panic is logged and the Estimator learns nothing. nil: the task's type, without a size.
	Kind func(task *asynq.Task) (kind string, size int64)
	// Logger gets put-backs at debug level, failed calls at warn, and wrong use of this
	// package at error. nil is the throttle's Logger, see throttle.Options.Logger;
	// zap.NewNop() is silent.
	Logger *zap.Logger
}

// checked returns the options with their defaults, or the error of an argument of New and NewClient.
func checked(th *throttle.Throttle, client redis.UniversalClient, job JobFunc, opts *Options) (Options, error) {
	options, err := opts.withDefaults(th)
	switch {
	case err != nil:
		return options, err
	case th == nil:
		return options, &throttle.OptionError{Field: "th", Value: nil, Reason: "is nil"}
	case isNil(client):
		return options, &throttle.OptionError{Field: "client", Value: nil, Reason: "is nil"}
	case job == nil:
		return options, &throttle.OptionError{Field: "job", Value: nil, Reason: "is nil"}
	}
	return options, nil
}

func (o *Options) withDefaults(th *throttle.Throttle) (Options, error) {
	var options Options
	if o != nil {
		options = *o
	}
	if options.MaxWait == 0 {
		options.MaxWait = DefaultMaxWait
	}
	if options.Backoff == 0 {
		options.Backoff = DefaultBackoff
	}
	if options.MaxAskedWait == 0 {
		options.MaxAskedWait = upstream.MaxWait
	}
	if options.Logger == nil && th != nil {
		options.Logger = th.Inside(seam.Key{}).Options().Logger
	}
	switch {
	case options.MaxWait < 10*time.Millisecond || options.MaxWait > 5*time.Second:
		return options, &throttle.OptionError{Field: "MaxWait", Value: options.MaxWait, Reason: "is not between 10ms and 5s"}
	case options.Backoff < 100*time.Millisecond || options.Backoff > time.Hour:
		return options, &throttle.OptionError{Field: "Backoff", Value: options.Backoff, Reason: "is not between 100ms and 1h"}
	case options.MaxAskedWait < time.Second || options.MaxAskedWait > upstream.MaxWait:
		return options, &throttle.OptionError{Field: "MaxAskedWait", Value: options.MaxAskedWait,
			Reason: "is not between 1s and 24h"}
	}
	return options, nil
}
