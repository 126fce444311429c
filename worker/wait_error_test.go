package worker_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/upstream"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

func TestAskedToWait(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		asked, want time.Duration
		text        string
	}{
		{time.Second, time.Second, "worker: the upstream asks to wait 1s, scope domain"},
		{90 * time.Second, 90 * time.Second, "worker: the upstream asks to wait 1m30s, scope domain"},
		{29*time.Second + 312_456_789, 29*time.Second + 312_456_789, "worker: the upstream asks to wait 29s, scope domain"},
		{1, 1, "worker: the upstream asks to wait 1s, scope domain"},
		{0, worker.DefaultAskedWait, "worker: the upstream asks to wait 1m0s, scope domain"},
		{-time.Hour, worker.DefaultAskedWait, "worker: the upstream asks to wait 1m0s, scope domain"},
		{math.MinInt64, worker.DefaultAskedWait, "worker: the upstream asks to wait 1m0s, scope domain"},
		{upstream.MaxWait, upstream.MaxWait, "worker: the upstream asks to wait 24h0m0s, scope domain"},
		{upstream.MaxWait + 1, upstream.MaxWait, "worker: the upstream asks to wait 24h0m0s, scope domain"},
		{math.MaxInt64, upstream.MaxWait, "worker: the upstream asks to wait 24h0m0s, scope domain"},
	} {
		err := worker.AskedToWait("domain", row.asked, io.ErrUnexpectedEOF)
		wait := waitOf(t, fmt.Errorf("send: %w", err)) // found when a handler wraps it
		if wait.Scope != "domain" || wait.Delay != row.want {
			t.Errorf("%v: got scope %q, delay %v, want domain, %v", row.asked, wait.Scope, wait.Delay, row.want)
		}
		if err.Error() != row.text {
			t.Errorf("%v: got text %q, want %q", row.asked, err, row.text)
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%v: the cause is lost", row.asked)
		}
	}
}

// TestWaitError_TextHoldsNoSecret: asynq shows the text as the last error to everybody who
// may look at the queue.
func TestWaitError_TextHoldsNoSecret(t *testing.T) {
	t.Parallel()
	cause := errors.New("421 4.7.0 hello jane@acme.example, token s3cret")
	if text := worker.AskedToWait("tenant", time.Minute, cause).Error(); strings.Contains(text, "jane") ||
		strings.Contains(text, "s3cret") {
		t.Errorf("the text %q holds the upstream's words", text)
	}
}

func TestAskedToWait_WithoutCause(t *testing.T) {
	t.Parallel()
	err := worker.AskedToWait("tenant", time.Minute, nil)
	if err.Error() == "" || errors.Unwrap(err) != nil {
		t.Errorf("got %q, which wraps %v; want a text, and nothing wrapped", err, errors.Unwrap(err))
	}
}

func TestUntouched(t *testing.T) {
	t.Parallel()
	if err := worker.Untouched(nil); err != nil {
		t.Errorf("nil: got %v, want nil", err)
	}
	err := fmt.Errorf("send: %w", worker.Untouched(io.ErrUnexpectedEOF))
	var untouched *worker.UntouchedError
	if !errors.As(err, &untouched) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v is no UntouchedError around its cause", err)
	}
	if want := "send: unexpected EOF"; err.Error() != want {
		t.Errorf("got text %q, want %q", err, want)
	}
	if (&worker.UntouchedError{}).Error() == "" {
		t.Error("one that wraps nothing has no text")
	}
}

// TestUntouched_AndAskedToWait: if a handler knows before its call that the upstream is
// closed, such as by a health check, the task waits and has used nothing.
func TestUntouched_AndAskedToWait(t *testing.T) {
	t.Parallel()
	err := worker.Untouched(worker.AskedToWait("host", time.Minute, nil))
	var untouched *worker.UntouchedError
	if !errors.As(err, &untouched) {
		t.Errorf("%v is no UntouchedError", err)
	}
	if wait := waitOf(t, err); wait.Delay != time.Minute {
		t.Errorf("got delay %v, want 1m", wait.Delay)
	}
}

// waitOf returns the WaitError that err holds.
func waitOf(t *testing.T, err error) *worker.WaitError {
	t.Helper()
	var wait *worker.WaitError
	if !errors.As(err, &wait) {
		t.Fatalf("%v (%T) is no WaitError", err, err)
	}
	return wait
}
