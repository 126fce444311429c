package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/metrics"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// The text in every tenant and payload, and the text in every task's ID.
const (
	secretMark = "SECRET"
	idMark     = "IDMARK"
)

// TestNothingPrivateIsTold_T12: whatever happens to tasks, no tenant and no payload gets into
// asynq's last error, a log line above debug, or the metrics. A task's ID appears only in the
// log, in the field task.
func TestNothingPrivateIsTold_T12(t *testing.T) {
	t.Parallel()
	scopes := append(perTenant(2, 10*time.Second), throttle.Scope{Name: "domain", Optional: true})
	inBubble(t, scopes, func(t *testing.T, w *world) {
		opts, logs := watched()
		collector, err := metrics.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		wire := newWire(w)
		th, err := throttle.New("world", wire.client, scopes,
			&throttle.Options{Observer: collector, Logger: opts.Logger, Lookahead: farAhead})
		if err != nil {
			t.Fatal(err)
		}
		collector.Watch(inspect.New(th))
		s, err := worker.New(th, w.client, jobOf, opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		w.result = func(_ context.Context, task *asynq.Task) error {
			if task.Headers()["tenant"] == "asks-"+secretMark {
				return worker.AskedToWait("tenant", time.Minute, errors.New("421 busy"))
			}
			return nil
		}
		enqueue := func(what, tenant string, weight int64, opts ...asynq.Option) string {
			id := idMark + "-" + what
			w.send(worker.NewTask("mail", []byte(secretMark), headers(tenant, weight), append(opts, asynq.TaskID(id))...))
			return id
		}
		w.serveWith(s, asynq.Config{Concurrency: 20,
			RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour }})

		// The second and third wait, the others end, or fail.
		busy := "busy-" + secretMark
		for i := range 5 {
			enqueue(fmt.Sprint("busy", i), busy, 1)
		}
		heavy := enqueue("heavy", busy, 3)
		nobody := enqueue("nobody", "", 1)
		w.until("what can never start is archived, and a wrong job fails", time.Minute, func() bool {
			return w.in(heavy, asynq.TaskStateArchived)() && w.in(nobody, asynq.TaskStateRetry)()
		})
		late := enqueue("late", busy, 2, asynq.Deadline(time.Now().Add(3*time.Second)))
		w.until("what comes too late is archived", time.Minute, w.in(late, asynq.TaskStateArchived))
		asks := enqueue("asks", "asks-"+secretMark, 1)
		w.until("a task asks to wait", time.Minute, w.in(asks, asynq.TaskStateRetry))
		if err := inspect.New(th).SetLimits(t.Context(), "tenant", "small-"+secretMark,
			[]throttle.Limit{throttle.PerMinute(1)}); err != nil {
			t.Fatal(err)
		}
		small := enqueue("small", "small-"+secretMark, 2)
		w.until("a task is blocked", time.Minute, w.in(small, asynq.TaskStateRetry))
		if _, err := w.redis.Lpush("thr:{world}:4:key:tenant:foreign-"+secretMark, "x"); err != nil {
			t.Fatal(err)
		}
		foreign := enqueue("foreign", "foreign-"+secretMark, 1)
		if err := w.redis.Set("thr:{world}:4:key:tenant:garbage-"+secretMark, "garbage"); err != nil {
			t.Fatal(err)
		}
		garbage := enqueue("garbage", "garbage-"+secretMark, 1)
		w.until("foreign data fails a task", time.Minute, func() bool {
			return w.in(foreign, asynq.TaskStateRetry)() && w.in(garbage, asynq.TaskStateRetry)()
		})
		wire.cut()
		away := enqueue("away", "away-"+secretMark, 1)
		w.until("a task is put back without Redis", time.Minute, w.in(away, asynq.TaskStateRetry))
		checkLastErrors(t, w, []string{heavy, nobody, late, asks, small, foreign, garbage, away})
		wire.mend()

		for _, entry := range logs.Filter(aboveDebug).All() {
			for name, value := range entry.ContextMap() {
				if text := fmt.Sprint(value); strings.Contains(text, secretMark) ||
					name != "task" && strings.Contains(text, idMark) {
					t.Errorf("logged at %s: %s, %s=%s", entry.Level, entry.Message, name, text)
				}
			}
			if strings.Contains(entry.Message, secretMark) || strings.Contains(entry.Message, idMark) {
				t.Errorf("logged at %s: %s", entry.Level, entry.Message)
			}
		}
		if got := logs.Filter(aboveDebug).Len(); got < 3 {
			t.Errorf("%d lines above debug: too few to mean something", got)
		}
		checkScrape(t, collector)
	})
}

// checkLastErrors checks what asynqmon shows of these tasks.
func checkLastErrors(t *testing.T, w *world, ids []string) {
	t.Helper()
	for _, id := range ids {
		text := w.task(id).LastErr
		if text == "" || strings.Contains(text, secretMark) || strings.Contains(text, idMark) {
			t.Errorf("last error of %s: %q; want one, without anything private", id, text)
		}
	}
}

func checkScrape(t *testing.T, collector *metrics.Collector) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	families, err := registry.Gather()
	if err != nil || len(families) < 5 {
		t.Fatalf("%d metrics, %v", len(families), err)
	}
	for _, family := range families {
		if text := family.String(); strings.Contains(text, secretMark) || strings.Contains(text, idMark) {
			t.Errorf("metric %s", text)
		}
	}
}

func aboveDebug(e observer.LoggedEntry) bool { return e.Level > zapcore.DebugLevel }
