package worker

import (
	"fmt"
	"time"

	"github.com/asynq-throttle/asynq-throttle/upstream"
)

// DefaultAskedWait is how long an upstream is left alone that asks to wait
// but does not say how long, or says "not at all": it has just refused a call.
const DefaultAskedWait = time.Minute

// AskedToWait returns the error for a handler to return when the upstream asks to
// wait d before it is called again for the task's key of a scope: its tenant, its
// domain, its host; throttle.Global for all. It is a *WaitError that wraps cause,
// which may be nil. A d of zero or less, when the upstream does not say how long,
// becomes DefaultAskedWait; one above upstream.MaxWait becomes that.
//
// upstream.HTTPWait and upstream.SMTPWait find d in what HTTP and SMTP servers say.
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
	// Scope is the one whose key, as the task has it, is to be left alone.
	Scope string
	// Delay is for how long, from now on: above zero and at most upstream.MaxWait if
	// AskedToWait made it.
	Delay time.Duration
	// Guessed says that the upstream did not say how long. A scope whose limits follow it
	// then waits as throttle.Throttle.Report says, and not for Delay.
	Guessed bool
	// Err is what the upstream said or what failed; may be nil.
	Err error
}

func (e *WaitError) Error() string {
	// A wait until a date is odd to the nanosecond; the text is not.
	seconds := max(e.Delay.Round(time.Second), time.Second)
	return fmt.Sprintf("worker: the upstream asks to wait %s, scope %s", seconds, e.Scope)
}

// Unwrap returns what the upstream said, if that is known.
func (e *WaitError) Unwrap() error { return e.Err }

// Untouched marks err, with which a handler ends, as one from before the upstream
// was touched (no connection, a template that does not compile): nothing of its
// limits was used, and the task's charge can be given back. It is an
// *UntouchedError with the text of err; nil if err is nil. When in doubt whether
// the upstream counted the call, do not mark the error: a charge given back
// wrongly lets a window hold more than its limit, one kept wrongly only waits.
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

// Unwrap returns why the handler failed.
func (e *UntouchedError) Unwrap() error { return e.Err }
