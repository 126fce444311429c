package worker

import (
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"
)

// spareRetries are the retries that NewTask adds. A put-back needs one retry left. The others are
// for attempts that were lost with their worker, or whose end asynq could not write: asynq counts
// these as retries, too.
const spareRetries = 10

// spareHeader marks tasks that have spare retries. Its value is the user's own MaxRetry.
const spareHeader = "Throttle-Spare-Retry"

// asynqMaxRetry is asynq's MaxRetry for a task without that option.
const asynqMaxRetry = 25

// NewTask returns a task like asynq.NewTaskWithHeaders, with ten spare retries. A
// put-back needs a retry left, since asynq archives a task without one before it
// asks whether the error was a failure. Failures do not use the spare ones up: the
// middleware ends the task at the user's own count (MaxRetry among opts, else 25).
// Lost attempts do: the worker was killed, or asynq could not write how the attempt ended.
// Nobody knows whether the handler of a lost attempt has run. So if the last of the task's own
// attempts is lost, another follows: the task runs at least once, and perhaps twice. A task that
// loses ten attempts beyond its own count is archived.
//
// asynq keeps only the text of an error. If a middleware around Wrap fails a task's last own attempt with an error that
// says "throttled: ", as a PutBackError does, the error is taken for a put-back, and the task runs up to ten times
// more. Put Wrap first, so that it is the outermost.
//
// With Configure and Wrap the user's functions see the user's own counts: asynq.GetMaxRetry
// and asynq.GetRetryCount in handlers and in ErrorHandler, and the n of RetryDelayFunc.
// Inspector and asynqmon show asynq's.
//
// A MaxRetry option given later, at Enqueue, takes the spare retries away: give it here.
// Tasks without spare retries, such as those made by asynq.NewTask, work too. On their last
// retry they wait inside the handler, and are ended if they cannot start within their Timeout.
func NewTask(typename string, payload []byte, headers map[string]string, opts ...asynq.Option) *asynq.Task {
	retries := asynqMaxRetry
	for _, opt := range opts {
		if opt != nil && opt.Type() == asynq.MaxRetryOpt {
			if n, isInt := opt.Value().(int); isInt {
				retries = min(n, math.MaxInt32-spareRetries) // asynq keeps 32 bits
			}
		}
	}
	marked := make(map[string]string, len(headers)+1)
	maps.Copy(marked, headers)
	delete(marked, expiresHeader) // these may be the headers of another task
	marked[spareHeader] = strconv.Itoa(retries)
	if at := optionsOf(nil, opts).expires; !at.IsZero() {
		marked[expiresHeader] = expiresAt(at)
	}
	own := append(append([]asynq.Option(nil), opts...), asynq.MaxRetry(retries+spareRetries))
	// clipped, since asynq appends to the slice, in any goroutine
	return asynq.NewTaskWithHeaders(typename, payload, marked, slices.Clip(own)...)
}

// Retries returns how often a task has been retried, and how often it may be. Unlike
// asynq.GetMaxRetry it never counts the spare retries of NewTask: in the last attempt, retried
// is maxRetry. Call it in a handler that a Shaper wraps, or in the ErrorHandler of a
// Config that Shaper.Configure returned. Elsewhere it returns asynq's counts, and false if ctx
// is not asynq's.
func Retries(ctx context.Context) (retried, maxRetry int, ok bool) {
	r, ok := retriesOf(ctx, nil)
	retried, maxRetry = r.users()
	return retried, maxRetry, ok
}

// RetriesOf is Retries for a task that asynq's Inspector returned.
func RetriesOf(info *asynq.TaskInfo) (retried, maxRetry int) {
	own, err := strconv.Atoi(info.Headers[spareHeader])
	return retries{retried: info.Retried, most: info.MaxRetry,
		spare: err == nil && own == info.MaxRetry-spareRetries}.users()
}

// retries are asynq's counts of a task. All translation between them and the user's is here.
type retries struct {
	retried, most int
	spare         bool // the last spareRetries of most are the library's
}

type retriesKey struct{}

// retriesOf reads the counts of an attempt, which a translated context keeps as asynq has them.
// If task is nil, no retry counts as spare.
func retriesOf(ctx context.Context, task *asynq.Task) (retries, bool) {
	if r, is := ctx.Value(retriesKey{}).(retries); is {
		return r, true
	}
	retried, hasRetried := asynq.GetRetryCount(ctx)
	most, hasMost := asynq.GetMaxRetry(ctx)
	r := retries{retried: retried, most: most}
	if task != nil {
		// The mark alone proves nothing: users copy headers, and may give Enqueue another MaxRetry.
		own, marked := markOf(task)
		r.spare = marked && own == most-spareRetries
	}
	return r, hasRetried && hasMost
}

func markOf(task *asynq.Task) (own int, marked bool) {
	own, err := strconv.Atoi(task.Headers()[spareHeader])
	return own, err == nil
}

// own is how often the task may be retried, as its user counts.
func (r retries) own() int {
	if r.spare {
		return r.most - spareRetries
	}
	return r.most
}

// users are the counts that the user sees.
func (r retries) users() (retried, maxRetry int) {
	if !r.spare {
		return r.retried, r.most
	}
	return min(r.retried, r.own()), r.own()
}

// mayReturn reports whether asynq takes the task back if it is put back now.
func (r retries) mayReturn() bool { return r.retried < r.most }

// beyond reports whether a spare retry has brought the task here: its last own attempt ended
// outside of the middleware, by its Timeout, a panic, or with its worker.
func (r retries) beyond() bool { return r.retried > r.own() }

// last reports whether a failure of this attempt must be the task's last.
func (r retries) last() bool { return r.spare && r.retried >= r.own() }

// isMadeUpFor reports whether another attempt follows the last own one, because asynq lost that one.
// asynq passes ErrLeaseExpired as it is; a handler's own ErrLeaseExpired comes here wrapped.
func (r retries) isMadeUpFor(err error) bool {
	return r.last() && r.mayReturn() && err == asynq.ErrLeaseExpired //nolint:errorlint // see above
}

// translate returns ctx with the user's counts.
func (s *Shaper) translate(ctx context.Context, r retries) context.Context {
	ctx = context.WithValue(ctx, retriesKey{}, r)
	if !r.spare {
		return ctx
	}
	retried, maxRetry := r.users()
	own, err := withCounts(ctx, retried, maxRetry)
	if err != nil {
		s.untranslated.Do(func() {
			s.log.Error(
				"worker: asynq.GetMaxRetry counts the ten spare retries of worker.NewTask: an ErrorHandler that compares it with "+
					"asynq.GetRetryCount misses the last error. Ask worker.Retries in its place", zap.Error(err))
		})
		return ctx
	}
	return own
}

// attemptNote is what ErrorHandler learns from the middleware about an attempt. asynq derives the
// contexts of both from the one that BaseContext returned.
type attemptNote struct {
	runs atomic.Bool // the attempt runs the handler, and does not just end the task
}

type noteKey struct{}

func withNote(ctx context.Context) context.Context {
	if noteOf(ctx) != nil {
		return ctx
	}
	return context.WithValue(ctx, noteKey{}, new(attemptNote))
}

func noteOf(ctx context.Context) *attemptNote {
	n, _ := ctx.Value(noteKey{}).(*attemptNote)
	return n
}

// noteRun notes that an attempt runs the handler.
func noteRun(ctx context.Context) {
	if n := noteOf(ctx); n != nil {
		n.runs.Store(true)
	}
}

// isReported reports whether ErrorHandler is called. It is not called for put-backs, nor for a lost
// attempt that another one follows, nor for an attempt that just ends a task: ErrorHandler was
// called for the task's last own attempt.
func isReported(ctx context.Context, r retries, err error) bool {
	n := noteOf(ctx)
	ends := r.beyond() && n != nil && !n.runs.Load()
	return !IsPutBack(err) && !r.isMadeUpFor(err) && !ends
}

// isAsynqs reports whether asynq itself ended an attempt, and not its handler with the same error.
func isAsynqs(err error) bool {
	switch err { //nolint:errorlint // asynq gives these as they are
	case context.DeadlineExceeded, context.Canceled, asynq.ErrLeaseExpired:
		return true
	}
	return asynq.IsPanicError(err)
}

// spareDelay is how long a spare retry waits: it ends the task, or follows a lost attempt, which
// asynq has found a minute or two late.
const spareDelay = time.Second

// ownDelay calls a RetryDelayFunc with an n below the task's own MaxRetry. For a handler's error, asynq's
// n reaches that MaxRetry only if no shaper wraps the handler, or if the header was copied from another
// task: the shaper ends the task at its last own retry.
func ownDelay(ask asynq.RetryDelayFunc, n int, err error, task *asynq.Task) time.Duration {
	own, marked := markOf(task)
	switch {
	case !marked || n < own:
		return ask(n, err, task)
	case isAsynqs(err):
		return spareDelay
	case own == 0:
		return asynq.DefaultRetryDelayFunc(n, err, task)
	}
	return ask(own-1, err, task)
}
