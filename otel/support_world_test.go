package otelthrottle_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/internal/idle"
	otelthrottle "github.com/asynq-throttle/asynq-throttle/otel"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// recorded is a Telemetry whose spans and metrics a test reads.
type recorded struct {
	*otelthrottle.Telemetry
	t      *testing.T
	tracer *trace.TracerProvider
	spans  *tracetest.SpanRecorder
	reader *metric.ManualReader
}

func record(t *testing.T, newTraces bool) *recorded {
	t.Helper()
	r := &recorded{t: t, spans: tracetest.NewSpanRecorder(), reader: metric.NewManualReader()}
	r.tracer = trace.NewTracerProvider(trace.WithSpanProcessor(r.spans))
	telemetry, err := otelthrottle.New(&otelthrottle.Options{
		TracerProvider: r.tracer,
		MeterProvider:  metric.NewMeterProvider(metric.WithReader(r.reader)),
		Propagator:     propagation.TraceContext{},
		NewTraces:      newTraces,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Telemetry = telemetry
	return r
}

// ended returns the spans of a name, in the order of their ends.
func (r *recorded) ended(name string) []trace.ReadOnlySpan {
	var all []trace.ReadOnlySpan
	for _, span := range r.spans.Ended() {
		if span.Name() == name {
			all = append(all, span)
		}
	}
	return all
}

// metrics collects all metrics, by name.
func (r *recorded) metrics() map[string]metricdata.Metrics {
	r.t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.reader.Collect(context.Background(), &all); err != nil {
		r.t.Fatal(err)
	}
	byName := make(map[string]metricdata.Metrics)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			byName[m.Name] = m
		}
	}
	return byName
}

// values returns the values of a metric, or the counts of a histogram. Its keys are the attributes as text:
// "name=value,…" in the order of the names.
func (r *recorded) values(name string) map[string]int64 {
	r.t.Helper()
	values := make(map[string]int64)
	switch data := r.metrics()[name].Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			values[p.Attributes.Encoded(attribute.DefaultEncoder())] = p.Value
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			values[p.Attributes.Encoded(attribute.DefaultEncoder())] = int64(p.Count)
		}
	}
	return values
}

// attributesOf returns the attributes of a span as text, by name.
func attributesOf(span trace.ReadOnlySpan) map[string]string {
	all := make(map[string]string)
	for _, a := range span.Attributes() {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

// world is asynq, a throttle and a Redis in one bubble of virtual time.
type world struct {
	t        *testing.T
	redis    *miniredis.Miniredis
	client   *redis.Client
	throttle *throttle.Throttle
	tasks    *asynq.Client
}

// inBubble runs a test in virtual time, with a throttle of these scopes.
func inBubble(t *testing.T, scopes []throttle.Scope, newTraces bool, test func(t *testing.T, w *world, r *recorded)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		t.Cleanup(m.Close)
		idle.Answer(t, m)
		r := record(t, newTraces)
		w := &world{t: t, redis: m}
		w.client = w.newClient()
		w.tasks = asynq.NewClientFromRedisClient(w.client)
		w.throttle = w.newThrottle("world", scopes, r)
		test(t, w, r)
	})
}

func (w *world) newClient() *redis.Client {
	client := redis.NewClient(&redis.Options{
		Addr:                  "127.0.0.1:6379",
		Dialer:                func(context.Context, string, string) (net.Conn, error) { return w.redis.Dial() },
		DisableIdentity:       true,
		ContextTimeoutEnabled: true,
	})
	w.t.Cleanup(func() { _ = client.Close() })
	return client
}

// wire is a client of the world's Redis that a test can cut.
type wire struct {
	*redis.Client
	cut atomic.Bool
}

func (w *world) newWire() *wire {
	wire := &wire{Client: w.newClient()}
	wire.AddHook(wire)
	return wire
}

var errCut = errors.New("the wire is cut")

// DialHook implements redis.Hook.
func (w *wire) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (w *wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if w.cut.Load() {
			cmd.SetErr(errCut)
			return errCut
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (w *wire) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (w *world) newThrottle(name string, scopes []throttle.Scope, r *recorded) *throttle.Throttle {
	w.t.Helper()
	th, err := throttle.New(name, w.client, scopes, &throttle.Options{Observer: r, Logger: zap.NewNop()})
	if err != nil {
		w.t.Fatal(err)
	}
	return th
}

// newShaper returns a shaper of a throttle, as each process has one. A job's weight and deadline are in the task's
// headers.
func (w *world) newShaper(th *throttle.Throttle, opts *worker.Options) *worker.Shaper {
	w.t.Helper()
	job := func(_ context.Context, task *asynq.Task) (throttle.Job, error) {
		job := throttle.Job{Weight: 1, Keys: map[string]string{"tenant": task.Headers()["tenant"]}}
		if weight := task.Headers()["weight"]; weight != "" {
			_, _ = fmt.Sscan(weight, &job.Weight)
		}
		return job, nil
	}
	shaper, err := worker.New(th, w.client, job, opts)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(shaper.Stop)
	return shaper
}

// serve starts an asynq server, as each process has one, with these middlewares around a handler.
func (w *world) serve(cfg asynq.Config, handler asynq.HandlerFunc, around ...asynq.MiddlewareFunc) {
	w.t.Helper()
	mux := asynq.NewServeMux()
	mux.Use(around...)
	mux.Handle("mail", handler)
	cfg.LogLevel = asynq.FatalLevel
	server := asynq.NewServerFromRedisClient(w.client, cfg)
	if err := server.Start(mux); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(server.Shutdown)
}

// enqueue enqueues a task with these headers. Its ID, which enqueue returns, has the number n.
func (w *world) enqueue(n int, headers map[string]string, opts ...asynq.Option) string {
	w.t.Helper()
	id := fmt.Sprintf("mail-%03d", n)
	task := worker.NewTask("mail", nil, headers, append(opts, asynq.TaskID(id))...)
	if _, err := w.tasks.Enqueue(task); err != nil {
		w.t.Fatal(err)
	}
	return id
}

// settled lets some virtual time pass, and then waits until no goroutine of the bubble can go on.
func settled(within time.Duration) {
	time.Sleep(within)
	synctest.Wait()
}

func perTenant(units int64, window time.Duration) []throttle.Scope {
	return []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{{Units: units, Window: window}}}}
}
