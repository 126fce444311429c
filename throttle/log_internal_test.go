package throttle

import (
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// TestLogWithoutALogger: without a logger, each entry at warn or above is a line on standard error.
func TestLogWithoutALogger(t *testing.T) { //nolint:paralleltest // it changes os.Stderr
	th := fakeThrottle(t, newFake(), Options{})
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	before := os.Stderr
	os.Stderr = write
	th.options.Logger.Info("not this")
	th.logged.fallback("smtp", FallbackClosed, &UnavailableError{Failure: failureTimeout, Err: errors.New("away")})
	os.Stderr = before
	_ = write.Close()
	text, err := io.ReadAll(read)
	if err != nil {
		t.Fatal(err)
	}
	line := string(text)
	for _, want := range []string{"WARN", "throttle: Redis cannot decide, no job starts", `"throttle": "smtp"`,
		`"cause": "away"`} {
		if !strings.Contains(line, want) {
			t.Errorf("%q does not hold %q", line, want)
		}
	}
	if strings.Count(line, "\n") != 1 {
		t.Errorf("want one line, got %q", line)
	}
}

// TestLogOfManyGoroutines: if many goroutines log at once, one line is written, and the next line
// says how many were left out.
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
