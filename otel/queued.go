package otelthrottle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/asynq-throttle/asynq-throttle/inspect"
)

// collectWithin bounds the calls to Redis of one collection.
const collectWithin = time.Second

// watch is a throttle whose waiting jobs are reported.
type watch struct {
	throttle *inspect.Inspector
	queued   map[string]int64 // by the scope's name; a scope whose last waiting job has left stays, with 0
}

// Watch makes each collection of metrics report the jobs that wait in line (throttle.queued_jobs). Each collection
// reads them from Redis, which may take a second at most. The value counts the jobs of all processes, so it is enough
// if one process watches a throttle. A throttle replaces a watched one of the same name.
func (t *Telemetry) Watch(throttles ...*inspect.Inspector) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, th := range throttles {
		t.watched[th.Name()] = &watch{throttle: th, queued: make(map[string]int64)}
	}
}

// observeQueued reports the waiting jobs of the watched throttles. If Redis does not answer for a throttle, only the
// error is reported.
func (t *Telemetry) observeQueued(ctx context.Context, to metric.Int64Observer) error {
	ctx, cancel := context.WithTimeout(ctx, collectWithin)
	defer cancel()
	t.mu.Lock()
	watched := slices.Collect(maps.Values(t.watched))
	t.mu.Unlock()
	var failures []error
	for _, w := range watched {
		lanes, err := w.throttle.Lanes(ctx)
		if err != nil {
			failures = append(failures, fmt.Errorf("otelthrottle: the waiting jobs of %s: %w", w.throttle.Name(), err))
			continue
		}
		for scope, jobs := range t.count(w, lanes) {
			to.Observe(jobs, of(w.throttle.Name(), scope))
		}
	}
	return errors.Join(failures...)
}

// count counts the waiting jobs by scope.
func (t *Telemetry) count(w *watch, lanes []inspect.Lane) map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	for scope := range w.queued {
		w.queued[scope] = 0
	}
	for _, lane := range lanes {
		w.queued[lane.Scope] += lane.Jobs
	}
	return maps.Clone(w.queued)
}
