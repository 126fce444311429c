package otelthrottle

import (
	"context"
	"maps"
	"time"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/asynq-throttle/asynq-throttle/worker"
)

// Headers returns a copy of the headers of a new task, with the span of ctx, so that the spans of the task are
// connected with it. Pass the result to worker.NewTask or asynq.NewTaskWithHeaders. headers may be nil.
func (t *Telemetry) Headers(ctx context.Context, headers map[string]string) map[string]string {
	carrier := make(propagation.MapCarrier, len(headers)+2)
	maps.Copy(carrier, headers)
	if t.newTraces {
		ctx = t.newTrace(ctx)
	}
	t.propagator.Inject(ctx, carrier)
	return carrier
}

// newTrace begins the trace of one task, and links it to the span of ctx.
func (t *Telemetry) newTrace(ctx context.Context) context.Context {
	ctx, span := t.tracer.Start(ctx, spanEnqueue, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithLinks(linksTo(trace.SpanContextFromContext(ctx))...))
	span.End()
	return ctx
}

func linksTo(span trace.SpanContext) []trace.Link {
	if !span.IsValid() {
		return nil
	}
	return []trace.Link{{SpanContext: span}}
}

// Around returns the shaper's Wrap with the spans of its tasks, for ServeMux.Use in place of shaper.Wrap. It also
// reports the metrics of running jobs. It does not need the Telemetry to be the Observer of the shaper's throttle.
// Where several shapers wrap a handler, give each its own Around.
func (t *Telemetry) Around(shaper *worker.Shaper) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		shaped := shaper.Wrap(t.granted(shaper.Name(), next))
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			ctx, d := t.delivered(ctx, task, shaper.Name())
			err := shaped.ProcessTask(ctx, task)
			d.returned(ctx, err)
			return err
		})
	}
}

// granted returns the handler that the shaper calls once a task is granted.
func (t *Telemetry) granted(throttleName string, next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		d, isDelivery := ctx.Value(deliveryKey{}).(*delivery)
		r, isGranted := worker.Grant(ctx)
		if !isDelivery || !isGranted {
			return next.ProcessTask(ctx, task)
		}
		ctx = d.begins(ctx, r)
		began, scopes := time.Now(), scopesOf(r.Job)
		for _, scope := range scopes {
			t.active.Add(ctx, 1, of(throttleName, scope))
		}
		defer func() {
			d.since = time.Now()
			for _, scope := range scopes {
				t.active.Add(ctx, -1, of(throttleName, scope))
				t.runs.Record(ctx, d.since.Sub(began).Seconds(), of(throttleName, scope))
			}
		}()
		return next.ProcessTask(ctx, task)
	})
}

type deliveryKey struct{}

// delivery is one delivery of a task by asynq to a shaper.
type delivery struct {
	tracer     trace.Tracer
	attributes []attribute.KeyValue // of the throttle and the task
	links      []trace.Link         // to the enqueuing span
	since      time.Time            // when asynq delivered it, or when the last run of a handler ended
	started    bool                 // a handler has begun
	passedOn   bool                 // a shaper inside of this one has put the task back
	outer      *delivery            // of another shaper around this one
}

// delivered notes that a task comes to a shaper. The returned context has the parent of the delivery's spans: the span
// that ctx has, or else the enqueuing span.
func (t *Telemetry) delivered(ctx context.Context, task *asynq.Task,
	throttleName string) (context.Context, *delivery) {
	headers := propagation.MapCarrier(task.Headers())
	enqueuing := trace.SpanContextFromContext(t.propagator.Extract(context.Background(), headers))
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = t.propagator.Extract(ctx, headers)
	}
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	outer, _ := ctx.Value(deliveryKey{}).(*delivery)
	d := &delivery{tracer: t.tracer, links: linksTo(enqueuing), since: time.Now(), outer: outer,
		attributes: []attribute.KeyValue{
			attribute.String(keyThrottle, throttleName),
			attribute.String(keyTaskID, id),
			attribute.String(keyTaskType, task.Type()),
			attribute.String(keyTaskQueue, queue),
		}}
	return context.WithValue(ctx, deliveryKey{}, d), d
}
