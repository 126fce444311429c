package otelthrottle

import (
	"errors"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// scopeName names this package to OpenTelemetry, as its instrumentation scope.
const scopeName = "github.com/asynq-throttle/asynq-throttle/otel"

// Options are the settings of a Telemetry that have a default. The zero value and nil are both ready to use.
type Options struct {
	// TracerProvider makes the tracer. nil means that of otel.GetTracerProvider.
	TracerProvider trace.TracerProvider
	// MeterProvider makes the instruments. nil means that of otel.GetMeterProvider.
	MeterProvider metric.MeterProvider
	// Propagator writes the enqueuing span into the headers of a task and reads it there. nil means that of
	// otel.GetTextMapPropagator, which propagates nothing unless the program has set one.
	Propagator propagation.TextMapPropagator
	// NewTraces begins a trace for each task that gets Headers, with a span "throttle enqueue" that has a link to the
	// enqueuing span. Without NewTraces a task is part of the trace in which it was enqueued: for a program that enqueues
	// thousands of tasks under one span, that trace becomes very large.
	NewTraces bool
}

// withDefaults returns a copy with every default filled in.
func (o *Options) withDefaults() Options {
	var options Options
	if o != nil {
		options = *o
	}
	if options.TracerProvider == nil {
		options.TracerProvider = otel.GetTracerProvider()
	}
	if options.MeterProvider == nil {
		options.MeterProvider = otel.GetMeterProvider()
	}
	if options.Propagator == nil {
		options.Propagator = otel.GetTextMapPropagator()
	}
	return options
}

// The buckets of the histograms, in seconds.
var (
	waitBuckets = []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 21600, 86400}
	runBuckets  = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600}
)

// Telemetry reports to OpenTelemetry what throttles do. As the Observer of throttles it counts decisions and put-backs;
// Around makes spans of tasks, and Headers connects these with the spans in which tasks are enqueued. It is safe for
// use by many goroutines and starts none. Create it with New.
type Telemetry struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	newTraces  bool

	jobs, putBacks    metric.Int64Counter
	timeInQueue, runs metric.Float64Histogram
	active            metric.Int64UpDownCounter

	mu      sync.Mutex
	watched map[string]*watch // by the throttle's name
}

// New returns a Telemetry. It registers the metrics with the MeterProvider, whose error New returns.
func New(opts *Options) (*Telemetry, error) {
	options := opts.withDefaults()
	t := &Telemetry{
		tracer:     options.TracerProvider.Tracer(scopeName),
		propagator: options.Propagator,
		newTraces:  options.NewTraces,
		watched:    make(map[string]*watch),
	}
	meter := options.MeterProvider.Meter(scopeName)
	var errs [6]error
	t.jobs, errs[0] = meter.Int64Counter("throttle.jobs", metric.WithUnit("{job}"),
		metric.WithDescription("Jobs that asked for a start and got a result: the start, or why there is none."))
	t.timeInQueue, errs[1] = meter.Float64Histogram("throttle.job.time_in_queue", metric.WithUnit("s"),
		metric.WithDescription("Time from a job's arrival to its granted start."),
		metric.WithExplicitBucketBoundaries(waitBuckets...))
	t.putBacks, errs[2] = meter.Int64Counter("throttle.job.put_backs", metric.WithUnit("{put_back}"),
		metric.WithDescription("Times that jobs went back to their queue, by the scope that held them and the reason."))
	t.active, errs[3] = meter.Int64UpDownCounter("throttle.active_jobs", metric.WithUnit("{job}"),
		metric.WithDescription("Granted jobs whose handlers run in this process."))
	t.runs, errs[4] = meter.Float64Histogram("throttle.job.duration", metric.WithUnit("s"),
		metric.WithDescription("Time that the handlers of granted jobs took."),
		metric.WithExplicitBucketBoundaries(runBuckets...))
	_, errs[5] = meter.Int64ObservableUpDownCounter("throttle.queued_jobs", metric.WithUnit("{job}"),
		metric.WithDescription("Jobs that wait in line, in all processes, by the scope that has no room for them."),
		metric.WithInt64Callback(t.observeQueued))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return t, nil
}
