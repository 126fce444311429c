package otelthrottle_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestSpansOfADrain: two processes work off a backlog that was enqueued under one span. Each task has one span for its
// wait, as long as the wait was, and one for each put-back, with the limit that held it; all are in one trace, children
// of the enqueuing span and linked to it, whichever process made them.
func TestSpansOfADrain(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(2, 10*time.Second), false, func(t *testing.T, w *world, r *recorded) {
		const tasks = 8
		began := time.Now()
		ctx, enqueuing := r.tracer.Tracer("program").Start(t.Context(), "campaign")
		for n := range tasks {
			w.enqueue(n, r.Headers(ctx, map[string]string{"tenant": "acme"}))
		}
		enqueuing.End()
		var ran atomic.Int64
		shapers := [2]*worker.Shaper{w.newShaper(w.throttle, nil), w.newShaper(w.throttle, nil)}
		for _, shaper := range shapers {
			w.serve(shaper.Configure(asynq.Config{Concurrency: 2}), func(ctx context.Context, _ *asynq.Task) error {
				_, span := r.tracer.Tracer("program").Start(ctx, "send")
				defer span.End()
				ran.Add(1)
				return nil
			}, r.Around(shaper))
		}
		settled(time.Minute)
		waits, putBacks, sends := r.ended("throttle wait"), r.ended("throttle put back"), r.ended("send")
		if ran.Load() != tasks || len(waits) != tasks || len(sends) != tasks {
			t.Fatalf("%d tasks ran, %d waits and %d handlers have spans, want %d of each", ran.Load(), len(waits),
				len(sends), tasks)
		}
		want := shapers[0].Stats().PutBack + shapers[1].Stats().PutBack
		if int64(len(putBacks)) != want || want < tasks-2 {
			t.Errorf("%d put-backs have spans, want %d, at least %d", len(putBacks), want, tasks-2)
		}
		for _, span := range append(waits, putBacks...) {
			expectUnder(t, span, enqueuing.SpanContext())
		}
		for n, span := range waits {
			expectAttributes(t, span, map[string]string{"throttle.name": "world", "throttle.outcome": "granted",
				"throttle.units": "1", "throttle.task.type": "mail", "throttle.task.queue": "default"})
			wait := time.Duration(n/2) * 10 * time.Second // two start every ten seconds
			if start := span.StartTime().Sub(began); start < 0 || start > time.Second {
				t.Errorf("the wait of task %d begins %s after the tasks were enqueued", n, start)
			}
			if end := span.EndTime().Sub(began); end < wait || end > wait+time.Second {
				t.Errorf("the wait of task %d ends after %s, want %s", n, end, wait)
			}
		}
		for _, span := range putBacks {
			attributes := expectAttributes(t, span, map[string]string{"throttle.name": "world"})
			outcome := attributes["throttle.outcome"]
			if outcome != "booked" && outcome != "waiting" || attributes["throttle.slot"] == "" {
				t.Errorf("a put-back has the attributes %v", attributes)
			}
			if scope, has := attributes["throttle.scope"]; has && (scope != "tenant" || attributes["throttle.key"] != "acme" ||
				attributes["throttle.limit"] != "2/10s") {
				t.Errorf("a put-back has the reason %v", attributes)
			}
			if length := span.EndTime().Sub(span.StartTime()); length > time.Second {
				t.Errorf("a put-back took %s", length)
			}
		}
		for _, span := range sends {
			if !isParent(waits, span.Parent()) {
				t.Error("the span of a handler is no child of a wait")
			}
		}
	})
}

func expectUnder(t *testing.T, span sdktrace.ReadOnlySpan, enqueuing trace.SpanContext) {
	t.Helper()
	if span.Parent().SpanID() != enqueuing.SpanID() || span.SpanContext().TraceID() != enqueuing.TraceID() {
		t.Errorf("%s is not under the enqueuing span", span.Name())
	}
	expectLink(t, span, enqueuing)
}

func expectLink(t *testing.T, span sdktrace.ReadOnlySpan, to trace.SpanContext) {
	t.Helper()
	links := span.Links()
	if len(links) != 1 || links[0].SpanContext.SpanID() != to.SpanID() || links[0].SpanContext.TraceID() != to.TraceID() {
		t.Errorf("%s has the links %v, want one to %v", span.Name(), links, to)
	}
}

// expectAttributes fails the test for each attribute that differs, and returns all of them.
func expectAttributes(t *testing.T, span sdktrace.ReadOnlySpan, want map[string]string) map[string]string {
	t.Helper()
	got := attributesOf(span)
	for key, value := range want {
		if got[key] != value {
			t.Errorf("%s has %s = %q, want %q", span.Name(), key, got[key], value)
		}
	}
	return got
}

func isParent(of []sdktrace.ReadOnlySpan, parent trace.SpanContext) bool {
	for _, span := range of {
		if span.SpanContext().SpanID() == parent.SpanID() {
			return true
		}
	}
	return false
}

// TestSpansOfReasons: what becomes of the second of two tasks, and what its spans say about it.
func TestSpansOfReasons(t *testing.T) {
	t.Parallel()
	putBack, wait := "throttle put back", "throttle wait"
	for name, c := range map[string]struct {
		headers map[string]string
		opts    []asynq.Option
		set     throttle.Limit // set at run time for the tenant
		mode    throttle.Mode  // set at run time for all tenants
		result  error          // of the handler
		expired func(context.Context, *asynq.Task, *throttle.DeadlineError) error
		span    string
		fails   bool
		want    map[string]string
	}{
		"booked or in line": {span: putBack, want: map[string]string{"throttle.scope": "tenant", "throttle.key": "acme",
			"throttle.limit": "1/1m"}},
		"never fits": {headers: map[string]string{"weight": "5"}, span: wait, fails: true, want: map[string]string{
			"throttle.outcome": "never_fits", "throttle.scope": "tenant", "throttle.key": "acme", "throttle.limit": "1/1m",
			"throttle.units": "5"}},
		"too late": {opts: []asynq.Option{worker.ExpiresIn(5 * time.Second)}, span: wait, fails: true,
			want: map[string]string{"throttle.outcome": "too_late", "throttle.scope": "tenant", "throttle.key": "acme",
				"throttle.limit": "1/1m"}},
		"too late and dropped": {opts: []asynq.Option{worker.ExpiresIn(5 * time.Second)}, expired: worker.Drop, span: wait,
			fails: true, want: map[string]string{"throttle.outcome": "too_late"}},
		"too late and handed over": {opts: []asynq.Option{worker.ExpiresIn(5 * time.Second)}, span: wait, fails: true,
			expired: func(context.Context, *asynq.Task, *throttle.DeadlineError) error { return nil },
			want:    map[string]string{"throttle.outcome": "too_late"}},
		"invalid": {headers: map[string]string{"weight": "-1"}, span: wait, fails: true,
			want: map[string]string{"throttle.outcome": "invalid"}},
		"blocked": {headers: map[string]string{"weight": "2"}, set: throttle.PerMinute(1), span: putBack,
			want: map[string]string{"throttle.outcome": "blocked", "throttle.scope": "tenant", "throttle.key": "acme",
				"throttle.limit": "1/1m", "throttle.units": "2"}},
		"the upstream asked to wait": {headers: map[string]string{"tenant": "other"}, span: putBack,
			result: worker.AskedToWait("tenant", time.Hour, nil),
			want:   map[string]string{"throttle.scope": "tenant", "throttle.limit": "pause"}},
		"the upstream asked to wait in shadow": {headers: map[string]string{"tenant": "other"}, span: putBack,
			mode: throttle.Shadow, result: worker.AskedToWait("tenant", time.Hour, nil),
			want: map[string]string{"throttle.outcome": "asked", "throttle.scope": "tenant", "throttle.limit": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			units := max(1, 3*c.set.Units)
			inBubble(t, perTenant(units, time.Minute), false, func(t *testing.T, w *world, r *recorded) {
				inspector := inspect.New(w.throttle)
				if c.set.Units > 0 {
					if err := inspector.SetLimits(t.Context(), "tenant", "acme", []throttle.Limit{c.set}); err != nil {
						t.Fatal(err)
					}
				}
				if err := inspector.SetMode(t.Context(), "tenant", c.mode); err != nil {
					t.Fatal(err)
				}
				shaper := w.newShaper(w.throttle, &worker.Options{Expired: c.expired})
				w.serve(shaper.Configure(asynq.Config{Concurrency: 1}), func(_ context.Context, task *asynq.Task) error {
					if task.Headers()["tenant"] == "other" {
						return c.result
					}
					return nil
				}, r.Around(shaper))
				w.enqueue(1, map[string]string{"tenant": "acme"})
				settled(3 * time.Second)
				headers := map[string]string{"tenant": "acme"}
				for key, value := range c.headers {
					headers[key] = value
				}
				id := w.enqueue(2, headers, append(c.opts, asynq.MaxRetry(0))...)
				settled(3 * time.Second)
				for _, span := range r.ended(c.span) {
					if attributesOf(span)["throttle.task.id"] != id || isGranted(span) {
						continue
					}
					expectAttributes(t, span, c.want)
					if fails := span.Status().Code == codes.Error; fails != c.fails {
						t.Errorf("the status is %v", span.Status())
					}
					if span.Parent().IsValid() || len(span.Links()) > 0 {
						t.Error("a task that was enqueued without a span has spans with a parent or a link")
					}
					return
				}
				t.Errorf("there is no span %q among %d", c.span, len(r.spans.Ended()))
			})
		})
	}
}

func isGranted(span sdktrace.ReadOnlySpan) bool {
	return attributesOf(span)["throttle.outcome"] == "granted"
}

// TestSpansOfTwoShapers: two shapers are around a handler. Each has its own spans of waits. A put-back by the inner
// shaper has one span, under the name of the inner throttle.
func TestSpansOfTwoShapers(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(100, time.Minute), false, func(t *testing.T, w *world, r *recorded) {
		outer := w.newShaper(w.throttle, nil)
		inner := w.newShaper(w.newThrottle("inner", perTenant(1, 10*time.Second), r), nil)
		w.serve(outer.Configure(inner.Configure(asynq.Config{Concurrency: 1})),
			func(context.Context, *asynq.Task) error { return nil }, r.Around(outer), r.Around(inner))
		for n := range 2 {
			w.enqueue(n, map[string]string{"tenant": "acme"})
		}
		settled(time.Minute)
		waits := make(map[string]int)
		for _, span := range r.ended("throttle wait") {
			waits[attributesOf(span)["throttle.name"]]++
		}
		putBacks := r.ended("throttle put back")
		if waits["inner"] != 2 || waits["world"] != 2+len(putBacks) || len(putBacks) == 0 {
			t.Errorf("waits by throttle: %v, put-backs: %d", waits, len(putBacks))
		}
		for _, span := range putBacks {
			expectAttributes(t, span, map[string]string{"throttle.name": "inner"})
		}
	})
}

// TestSpanOfTheContextIsTheParent: if a middleware outside of Around has begun a span, the wait is a child of that
// span, and has a link to the enqueuing one.
func TestSpanOfTheContextIsTheParent(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(100, time.Minute), false, func(t *testing.T, w *world, r *recorded) {
		tracer := r.tracer.Tracer("program")
		ctx, enqueuing := tracer.Start(t.Context(), "request")
		w.enqueue(1, r.Headers(ctx, map[string]string{"tenant": "acme"}))
		shaper := w.newShaper(w.throttle, nil)
		process := func(next asynq.Handler) asynq.Handler {
			return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				ctx, span := tracer.Start(ctx, "process")
				defer span.End()
				return next.ProcessTask(ctx, task)
			})
		}
		w.serve(shaper.Configure(asynq.Config{Concurrency: 1}),
			func(context.Context, *asynq.Task) error { return nil }, process, r.Around(shaper))
		settled(5 * time.Second)
		wait, processed := r.ended("throttle wait")[0], r.ended("process")
		if !isParent(processed, wait.Parent()) {
			t.Error("the wait is no child of the span around it")
		}
		expectLink(t, wait, enqueuing.SpanContext())
	})
}

// TestNewTraces: with NewTraces each task has a trace of its own, which begins with a span that has a link to the
// enqueuing span.
func TestNewTraces(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(100, time.Minute), true, func(t *testing.T, w *world, r *recorded) {
		ctx, enqueuing := r.tracer.Tracer("program").Start(t.Context(), "campaign")
		for n := range 2 {
			w.enqueue(n, r.Headers(ctx, map[string]string{"tenant": "acme"}))
		}
		shaper := w.newShaper(w.throttle, nil)
		w.serve(shaper.Configure(asynq.Config{Concurrency: 1}),
			func(context.Context, *asynq.Task) error { return nil }, r.Around(shaper))
		settled(5 * time.Second)
		begins := r.ended("throttle enqueue")
		traces := map[trace.TraceID]bool{enqueuing.SpanContext().TraceID(): true}
		for n, begin := range begins {
			if begin.SpanKind() != trace.SpanKindProducer || begin.Parent().IsValid() {
				t.Errorf("the span of an enqueued task is of kind %v, its parent is %v", begin.SpanKind(), begin.Parent())
			}
			expectLink(t, begin, enqueuing.SpanContext())
			expectUnder(t, r.ended("throttle wait")[n], begin.SpanContext())
			traces[begin.SpanContext().TraceID()] = true
		}
		if len(traces) != 3 {
			t.Errorf("%d tasks and their enqueuing span have %d traces, want 3", len(begins), len(traces))
		}
	})
}

// TestSpansWithoutRedis: if Redis cannot decide, the span of the put-back is marked as failed. If a fallback grants the
// task, the span of its wait names the fallback as the source.
func TestSpansWithoutRedis(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fallback throttle.Fallback
		span     string
		want     map[string]string
	}{
		{throttle.FallbackClosed, "throttle put back", map[string]string{"throttle.outcome": "unavailable"}},
		{throttle.FallbackOpen, "throttle wait", map[string]string{"throttle.outcome": "granted", "throttle.source": "open"}},
	} {
		t.Run(c.fallback.String(), func(t *testing.T) {
			t.Parallel()
			inBubble(t, perTenant(1, time.Minute), false, func(t *testing.T, w *world, r *recorded) {
				wire := w.newWire()
				th, err := throttle.New("away", wire, perTenant(1, time.Minute),
					&throttle.Options{Observer: r, Logger: zap.NewNop(), Fallback: c.fallback})
				if err != nil {
					t.Fatal(err)
				}
				r.Watch(inspect.New(th))
				wire.cut.Store(true)
				if err := r.reader.Collect(t.Context(), new(metricdata.ResourceMetrics)); !errors.Is(err, throttle.ErrUnavailable) {
					t.Errorf("the waiting jobs are collected with the error %v", err)
				}
				shaper := w.newShaper(th, nil)
				w.serve(shaper.Configure(asynq.Config{Concurrency: 1}),
					func(context.Context, *asynq.Task) error { return nil }, r.Around(shaper))
				w.enqueue(1, map[string]string{"tenant": "acme"})
				settled(3 * time.Second)
				span := r.ended(c.span)[0]
				expectAttributes(t, span, c.want)
				if failed := span.Status().Code == codes.Error; failed != (c.fallback == throttle.FallbackClosed) {
					t.Errorf("the status is %v", span.Status())
				}
				if length := span.EndTime().Sub(span.StartTime()); length < 0 || length > time.Second {
					t.Errorf("the span has the length %s", length)
				}
				wire.cut.Store(false)
			})
		})
	}
}

// TestSpansOfATaskThatStays: a task that cannot go back to asynq waits inside its handler for as long as its upstream
// asks. Its second wait begins when the first run of the handler has ended.
func TestSpansOfATaskThatStays(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(5, time.Minute), false, func(t *testing.T, w *world, r *recorded) {
		shaper := w.newShaper(w.throttle, nil)
		var runs atomic.Int64
		w.serve(shaper.Configure(asynq.Config{Concurrency: 1}), func(context.Context, *asynq.Task) error {
			time.Sleep(2 * time.Second)
			if runs.Add(1) == 1 {
				return worker.AskedToWait("tenant", 10*time.Second, nil)
			}
			return nil
		}, r.Around(shaper))
		task := asynq.NewTaskWithHeaders("mail", nil, map[string]string{"tenant": "acme"}, asynq.MaxRetry(0))
		if _, err := w.tasks.Enqueue(task); err != nil {
			t.Fatal(err)
		}
		settled(time.Minute)
		waits := r.ended("throttle wait")
		if len(waits) != 2 || len(r.ended("throttle put back")) != 0 {
			t.Fatalf("%d waits and %d put-backs, want 2 and none", len(waits), len(r.ended("throttle put back")))
		}
		if between := waits[1].StartTime().Sub(waits[0].EndTime()); between < 2*time.Second || between > 3*time.Second {
			t.Errorf("the second wait begins %s after the first ended, want the 2s of the handler", between)
		}
		if length := waits[1].EndTime().Sub(waits[1].StartTime()); length < 9*time.Second || length > 11*time.Second {
			t.Errorf("the second wait took %s, want 10s", length)
		}
	})
}
