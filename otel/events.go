package otelthrottle

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

var _ throttle.Observer = (*Telemetry)(nil)

// Decided implements throttle.Observer. A job that is booked or waits has no result yet and is not counted.
func (t *Telemetry) Decided(d throttle.Decision) {
	r := d.Reservation
	if d.Err == nil && r.Outcome != throttle.Granted {
		return
	}
	ctx, result, scopes := context.Background(), resultOf(d.Err), scopesOf(r.Job)
	if result == resultInvalid { // the job may name scopes that the throttle does not have
		scopes = []string{throttle.Global}
	}
	for _, scope := range scopes {
		t.jobs.Add(ctx, 1, of(d.Throttle, scope, attribute.String(keyResult, result)))
		if d.Err == nil && r.Source == throttle.FallbackClosed {
			t.timeInQueue.Record(ctx, r.Waited.Seconds(), of(d.Throttle, scope))
		}
	}
}

// PutBack implements throttle.Observer.
func (t *Telemetry) PutBack(p throttle.PutBack) {
	attributes := []attribute.KeyValue{attribute.String(keyThrottle, p.Throttle),
		attribute.String(keyReason, reasonOf(p.Reservation.Outcome, p.Err))}
	if scope := scopeThatHeld(p); scope != "" {
		attributes = append(attributes, attribute.String(keyScope, scope))
	}
	t.putBacks.Add(context.Background(), 1, metric.WithAttributes(attributes...))
}

// FellBack implements throttle.Observer. Nothing is reported: package metrics counts fallbacks.
func (t *Telemetry) FellBack(throttle.Outage) {}

// Called implements throttle.Observer. Nothing is reported: redisotel makes spans and metrics of commands.
func (t *Telemetry) Called(throttle.ScriptCall) {}

// Settled implements throttle.Observer. Nothing is reported.
func (t *Telemetry) Settled(throttle.Settlement) {}

// Paused implements throttle.Observer. Nothing is reported: a pause is the reason of put-backs.
func (t *Telemetry) Paused(throttle.Pause) {}

// Adapted implements throttle.Observer. Nothing is reported.
func (t *Telemetry) Adapted(throttle.Adaptation) {}

// Started implements throttle.Observer. Nothing is reported: the span of a wait ends with the start.
func (t *Telemetry) Started(throttle.Lateness) {}

// Ended implements throttle.Observer. Nothing is reported: Decided has counted the job by its result.
func (t *Telemetry) Ended(throttle.Ending) {}

// of is the attributes of a metric.
func of(throttleName, scope string, more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(more, attribute.String(keyThrottle, throttleName),
		attribute.String(keyScope, scope))...)
}

// scopesOf returns the scopes in which a job takes units. The global scope is always among them, so that its metrics
// count all jobs.
func scopesOf(job throttle.Job) []string {
	scopes := []string{throttle.Global}
	for scope := range job.Keys {
		units, own := job.Costs[scope]
		if !own {
			units = job.Weight
		}
		if units > 0 {
			scopes = append(scopes, scope)
		}
	}
	return scopes
}
