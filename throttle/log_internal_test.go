package throttle

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// TestLogOfManyGoroutines: of what many tell at once one line is written, and the next
// says how many were not.
func TestLogOfManyGoroutines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zapcore.WarnLevel)
		l := newRateLimitedLog(zap.New(core))
		failed := &UnavailableError{Failure: failureTimeout, Err: errors.New("away")}
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() { l.fallback("t", FallbackClosed, failed) })
		}
		wg.Wait()
		time.Sleep(logEvery)
		l.fallback("t", FallbackClosed, failed)
		lines := logs.All()
		if len(lines) != 2 {
			t.Fatalf("%d lines, want 2", len(lines))
		}
		for i, want := range []int64{0, 199} {
			if got := lines[i].ContextMap()["not_logged"]; got != want {
				t.Errorf("line %d says that %v were not logged, want %d", i+1, got, want)
			}
		}
	})
}
