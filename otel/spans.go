package otelthrottle

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// The names of spans.
const (
	spanEnqueue = "throttle enqueue"
	spanWait    = "throttle wait"
	spanPutBack = "throttle put back"
)

// begins makes the span of the wait that ends now. The returned context has that span.
func (d *delivery) begins(ctx context.Context, r throttle.Reservation) context.Context {
	d.started = true
	now := time.Now()
	arrived := now.Add(-r.Waited)
	if d.since.Before(arrived) {
		arrived = d.since // as for the grant of a fallback, and for a grant before its start
	}
	attributes := append(held(r.Hold), attribute.String(keyOutcome, r.Outcome.String()),
		attribute.Int64(keyUnits, r.Job.Weight))
	if r.Source != throttle.FallbackClosed {
		attributes = append(attributes, attribute.String(keySource, r.Source.String()))
	}
	ctx, span := d.start(ctx, spanWait, arrived, attributes)
	span.End(trace.WithTimestamp(now))
	return ctx
}

// returned makes the span of a delivery that ends without a start: the task was put back, or ended.
func (d *delivery) returned(ctx context.Context, err error) {
	var putBack *worker.PutBackError
	switch {
	case errors.As(err, &putBack):
		if !d.passedOn {
			d.putBack(ctx, putBack)
		}
		if d.outer != nil {
			d.outer.passedOn = true
		}
	case !d.started:
		d.ended(ctx, err)
	}
}

// putBack makes the span of a task that goes back to asynq.
func (d *delivery) putBack(ctx context.Context, putBack *worker.PutBackError) {
	outcome := throttle.Booked
	if putBack.InLine {
		outcome = throttle.Waiting
	}
	attributes := append(heldBy(putBack.Hold, putBack.Err),
		attribute.String(keyOutcome, reasonOf(outcome, putBack.Err)))
	if !putBack.Slot.IsZero() {
		attributes = append(attributes, attribute.String(keySlot, putBack.Slot.UTC().Format(time.RFC3339Nano)))
	}
	_, span := d.start(ctx, spanPutBack, d.since, attributes)
	if errors.Is(putBack.Err, throttle.ErrUnavailable) {
		fail(span, putBack.Err)
	}
	span.End()
}

// ended makes the span of a task that will not start in this attempt. If err is nil, the task was too late, and the
// function Options.Expired of the program has ended it.
func (d *delivery) ended(ctx context.Context, err error) {
	outcome := resultOf(&throttle.DeadlineError{})
	if err != nil {
		outcome = resultOf(err)
	}
	_, span := d.start(ctx, spanWait, d.since, append(heldBy(nil, err), attribute.String(keyOutcome, outcome)))
	fail(span, err)
	span.End()
}

func (d *delivery) start(ctx context.Context, name string, at time.Time,
	more []attribute.KeyValue) (context.Context, trace.Span) {
	return d.tracer.Start(ctx, name, trace.WithTimestamp(at), trace.WithLinks(d.links...),
		trace.WithAttributes(slices.Concat(d.attributes, more)...))
}

// fail marks a span as failed. The texts of this library's errors have no key in them.
func fail(span trace.Span, err error) {
	if err == nil {
		span.SetStatus(codes.Error, "the job cannot start by its deadline")
		return
	}
	span.RecordError(err)
	span.SetStatus(codes.Error, err.Error())
}

// heldBy returns the attributes of what kept a job back: by the error, if it says so, or else by the hold.
func heldBy(hold *throttle.Hold, err error) []attribute.KeyValue {
	var late *throttle.DeadlineError
	var never *throttle.NeverFitsError
	var blocked *throttle.BlockedError
	var wait *worker.WaitError
	switch {
	case errors.As(err, &late):
		return held(late.Hold)
	case errors.As(err, &never):
		return append(heldUnder(never.Scope, never.Key, never.Limit.String()), attribute.Int64(keyUnits, never.Weight))
	case errors.As(err, &blocked):
		return append(heldUnder(blocked.Scope, blocked.Key, blocked.Limit.String()),
			attribute.Int64(keyUnits, blocked.Weight))
	case errors.As(err, &wait):
		return []attribute.KeyValue{attribute.String(keyScope, wait.Scope)} // no pause is in force
	}
	return held(hold)
}

func held(hold *throttle.Hold) []attribute.KeyValue {
	switch {
	case hold == nil:
		return nil
	case hold.Paused:
		return heldUnder(hold.Scope, hold.Key, limitOfPause)
	}
	return heldUnder(hold.Scope, hold.Key, hold.Limit.String())
}

func heldUnder(scope, key, limit string) []attribute.KeyValue {
	attributes := []attribute.KeyValue{attribute.String(keyScope, scope)}
	if key != "" {
		attributes = append(attributes, attribute.String(keyKey, key))
	}
	return append(attributes, attribute.String(keyLimit, limit))
}
