package worker

import (
	"cmp"
	"fmt"
	"time"

	"github.com/asynq-throttle/asynq-throttle/upstream"
)

// DefaultAskedWait is how long a key is closed if its upstream, which has just refused a call, asks to wait
// without saying how long, or for no time at all. In a scope with a Floor, WaitError.Guessed says how long.
const DefaultAskedWait = time.Minute

// AskedToWait returns the error that a handler returns when the upstream asks to
// wait d before the next call for the task's key in a scope, such as its tenant, its
// domain or its host; use throttle.Global if the upstream means all calls. The error is
// a *WaitError that wraps cause, which may be nil. If the upstream does not say how long,
// d is zero or less and becomes DefaultAskedWait; a d above upstream.MaxWait becomes
// upstream.MaxWait.
//
// upstream.HTTPWait and upstream.SMTPWait read d from the replies of HTTP and SMTP servers.
func AskedToWait(scope string, d time.Duration, cause error) error {
	if d <= 0 {
		return &WaitError{Scope: scope, Delay: DefaultAskedWait, Guessed: true, Err: cause}
	}
	return &WaitError{Scope: scope, Delay: min(d, upstream.MaxWait), Err: cause}
}

// WaitError says that the upstream asks to wait. Its text is short and stable,
// since asynq shows it as the task's last error. The text contains neither the key nor
// the text of Err, which the upstream may have written.
type WaitError struct {
	// Scope is the scope in which the task's key is closed.
	Scope string
	// Delay is for how long the key is closed, from now on: above zero and at most
	// upstream.MaxWait if AskedToWait made it. Options.MaxAskedWait may shorten it.
	Delay time.Duration
	// Guessed is true if the upstream did not say how long. In a scope with a Floor the key
	// is then closed for as long as throttle.Throttle.Report says, and not for Delay.
	Guessed bool
	// Err is what the upstream said or what failed; may be nil.
	Err error
}

func (e *WaitError) Error() string {
	// A wait until a date is no whole number of seconds; the text is rounded to one.
	seconds := max(e.Delay.Round(time.Second), time.Second)
	return fmt.Sprintf("worker: the upstream asks to wait %s, scope %s", seconds, cmp.Or(e.Scope, `""`))
}

// Unwrap returns Err.
func (e *WaitError) Unwrap() error { return e.Err }

// Untouched marks an error of a handler that failed before it touched the upstream (no
// connection, a template that does not compile). The task used no units of the limits, so
// its charge is given back. The result is an *UntouchedError with the text of err; nil if
// err is nil. When in doubt whether the upstream counted the call, do not mark the error: a
// charge given back wrongly puts a window over its limit, a charge kept wrongly only delays tasks.
func Untouched(err error) error {
	if err == nil {
		return nil
	}
	return &UntouchedError{Err: err}
}

// UntouchedError says that a handler failed before it touched the upstream.
type UntouchedError struct {
	Err error // why it failed
}

func (e *UntouchedError) Error() string {
	if e.Err == nil {
		return "worker: failed before the upstream was touched"
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *UntouchedError) Unwrap() error { return e.Err }
