package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap/zapcore"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestPutBackIsReadableWhileWaiting checks what asynqmon shows of a waiting task. T12.
func TestPutBackIsReadableWhileWaiting(t *testing.T) {
	const tenant = "acme-secret"
	inFarAhead(t, perTenant(1, 10*time.Second), func(t *testing.T, w *world) {
		opts, logs := watched()
		s := w.newShaper(opts)
		w.serveWith(s, asynq.Config{Concurrency: 4})
		id, slot := w.putBack(tenant)
		first := w.task(id)
		want := "throttled: tenant limit 1/10s, starts " + slot.UTC().Format(time.RFC3339)
		if first.LastErr != want {
			t.Errorf("the last error is %q, want %q", first.LastErr, want)
		}
		if len(first.LastErr) >= 120 {
			t.Errorf("the last error has %d bytes, want less than 120", len(first.LastErr))
		}
		if got := first.NextProcessAt.Sub(slot); got <= 0 || got > time.Second {
			t.Errorf("asynq's own time is %s after the slot, want at most a second", got)
		}
		// Put back again, it reads the same.
		time.Sleep(3 * time.Second)
		if err := w.tasks.RunTask("default", id); err != nil {
			t.Fatal(err)
		}
		w.until("it is put back", time.Second,
			func() bool { return s.Stats().PutBack == 2 && w.in(id, asynq.TaskStateRetry)() })
		if again := w.task(id); again.LastErr != first.LastErr {
			t.Errorf("the last error is now %q, was %q", again.LastErr, first.LastErr)
		}
		w.drained(2, time.Minute)

		putBacks := 0
		for _, entry := range logs.All() {
			if entry.Level > zapcore.DebugLevel {
				t.Errorf("logged at %s: %s", entry.Level, entry.Message)
			}
			if strings.Contains(fmt.Sprint(entry.Message, entry.ContextMap()), tenant) {
				t.Errorf("the tenant is in the log: %s %v", entry.Message, entry.ContextMap())
			}
			if strings.Contains(entry.Message, "put back") {
				putBacks++
			}
		}
		if putBacks != 2 {
			t.Errorf("%d put-backs are in the log, want 2", putBacks)
		}
	})
}

// TestPutBackErrorText compares the texts of all kinds of put-backs.
func TestPutBackErrorText(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 5, 250_000_000, time.FixedZone("east", 3600))
	away := &throttle.UnavailableError{Job: "default/id/0", Nonce: "n", Failure: "timeout",
		Err: errors.New("dial tcp 10.0.0.7:6379: i/o timeout")}
	rows := []struct {
		putBack *worker.PutBackError
		want    string
	}{
		{&worker.PutBackError{Slot: at, Hold: &throttle.Hold{Scope: "tenant", Key: "acme",
			Limit: throttle.PerMinute(100)}}, "throttled: tenant limit 100/1m, starts 2026-03-01T11:00:05Z"},
		{&worker.PutBackError{Slot: at, Hold: &throttle.Hold{Scope: throttle.Global,
			Limit: throttle.PerDay(2_000_000)}}, "throttled: global limit 2000000/24h, starts 2026-03-01T11:00:05Z"},
		{&worker.PutBackError{Slot: at}, "throttled: starts 2026-03-01T11:00:05Z"},
		{&worker.PutBackError{Err: away}, "throttled: Redis cannot decide (timeout)"},
		{&worker.PutBackError{Err: errBroken}, "throttled: Redis cannot decide"},
	}
	for _, row := range rows {
		if got := row.putBack.Error(); got != row.want {
			t.Errorf("got %q, want %q", got, row.want)
		}
		if !worker.IsPutBack(fmt.Errorf("tracing: %w", row.putBack)) {
			t.Errorf("%q, wrapped, is no put-back", row.want)
		}
	}
	if !errors.Is(rows[3].putBack, throttle.ErrUnavailable) || errors.Is(rows[0].putBack, throttle.ErrUnavailable) {
		t.Error("ErrUnavailable must match the put-back that it caused, and no other")
	}
	for _, err := range []error{nil, errBroken, away, asynq.SkipRetry} {
		if worker.IsPutBack(err) {
			t.Errorf("%v is a put-back", err)
		}
	}
}

// TestPutBackCarriesItsData checks the data that a user's middleware outside of the shaper can
// read for its metrics.
func TestPutBackCarriesItsData(t *testing.T) {
	inFarAhead(t, perTenant(1, 10*time.Second), func(t *testing.T, w *world) {
		var got *worker.PutBackError
		inner := w.shaper.Wrap(asynq.HandlerFunc(w.process))
		w.start(w.client, w.shaper.Configure(asynq.Config{Concurrency: 4}),
			asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				err := inner.ProcessTask(ctx, task)
				w.mu.Lock()
				defer w.mu.Unlock()
				errors.As(err, &got)
				return err
			}))
		id, slot := w.putBack("acme")
		w.mu.Lock()
		defer w.mu.Unlock()
		if got == nil {
			t.Fatal("no put-back seen")
		}
		if got.Queue != "default" || got.TaskID != id || !got.Slot.Equal(slot) || got.Err != nil {
			t.Errorf("got %+v, want task %s of the default queue, for %s", got, id, slot)
		}
		if got.Delay <= 9*time.Second || got.Delay > 10*time.Second {
			t.Errorf("delay %s, want the rest of 10s", got.Delay)
		}
		if got.Hold == nil || got.Hold.Scope != "tenant" || got.Hold.Key != "acme" || got.Hold.Used != 1 {
			t.Errorf("held by %+v, want acme's limit with 1 used", got.Hold)
		}
	})
}
