package worker

import (
	"fmt"
	"time"

	"github.com/asynq-throttle/asynq-throttle/upstream"
)

// DefaultAskedWait is how long a key is closed if its upstream asks to wait but does not say
// how long, or says "not at all": it has just refused a call.
const DefaultAskedWait = time.Minute

// AskedToWait returns the error for a handler to return when the upstream asks to
// wait d before it is called again for the task's key of a scope: its tenant, its
// domain, its host; throttle.Global for all. It is a *WaitError that wraps cause,
// which may be nil. A d of zero or less, when the upstream does not say how long,
// becomes DefaultAskedWait; a d above upstream.MaxWait becomes upstream.MaxWait.
//
// upstream.HTTPWait and upstream.SMTPWait read d from the replies of HTTP and SMTP servers.
func AskedToWait(scope string, d time.Duration, cause error) error {
	if d <= 0 {
		return &WaitError{Scope: scope, Delay: DefaultAskedWait, Guessed: true, Err: cause}
	}
	return &WaitError{Scope: scope, Delay: min(d, upstream.MaxWait), Err: cause}
}

// WaitError says that the upstream asks to wait. Its text is short and stable,
// since asynq shows it as the task's last error, and holds neither the key nor
// anything of Err, whose words are the upstream's.
type WaitError struct {
	// Scope is the scope of the key that is closed; the key is the task's.
	Scope string
	// Delay is for how long the key is closed, from now on: above zero and at most
	// upstream.MaxWait if AskedToWait made it.
	Delay time.Duration
	// Guessed is true if the upstream did not say how long. In a scope with a Floor the key
	// is then closed for as long as throttle.Throttle.Report says, and not for Delay.
	Guessed bool
	// Err is what the upstream said or what failed; may be nil.
	Err error
}

func (e *WaitError) Error() string {
	// A wait until a date has odd nanoseconds; the text has whole seconds.
	seconds := max(e.Delay.Round(time.Second), time.Second)
	return fmt.Sprintf("worker: the upstream asks to wait %s, scope %s", seconds, e.Scope)
}

// Unwrap returns Err.
func (e *WaitError) Unwrap() error { return e.Err }

// Untouched marks an error that a handler returns as one from before it touched the upstream
// (no connection, a template that does not compile): the task used nothing of the limits,
// and its charge is given back. The result is an *UntouchedError with the text of err; nil if
// err is nil. When in doubt whether the upstream counted the call, do not mark the error: a
// charge given back wrongly overfills a window, a charge kept wrongly only delays tasks.
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
