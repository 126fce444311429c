// Package otelthrottle reports to OpenTelemetry what throttles do: metrics of decisions, and spans of the waits of
// tasks. One Telemetry does both, or either:
//
//	telemetry, err := otelthrottle.New(nil)
//	th, err := throttle.New("smtp", client, scopes, &throttle.Options{Observer: telemetry}) // metrics
//	shaper, err := worker.New(th, client, job, nil)
//	mux.Use(telemetry.Around(shaper)) // spans, in place of mux.Use(shaper.Wrap)
//	telemetry.Watch(inspect.New(th))  // the metric of waiting jobs
//
//	// Where tasks are enqueued: the task carries the span of ctx to its worker.
//	task := worker.NewTask("mail:send", payload, telemetry.Headers(ctx, headers))
//
// A throttle has one Observer. If this is the Prometheus collector of package metrics, Around and Headers work all the
// same.
//
// # Spans
//
//   - "throttle wait" lasts from the arrival of a task until its handler begins, across all deliveries of the task
//     in between. If a task is ended without a start, it lasts from the last delivery until that end.
//   - "throttle put back" lasts from the delivery of a task by asynq until the task goes back. Its attributes say
//     what keeps the task back.
//
// Both are children of the span that enqueued the task, and have a link to it. If the context of the delivery has a
// span of its own, both are children of that one. Spans that the handler starts are children of its "throttle wait".
//
// # Privacy
//
// The attribute throttle.key of a span is the key that holds the task back, such as a tenant's name. Metrics have names
// of throttles and scopes, and no key.
//
// docs/guide/opentelemetry.md lists all attributes and metrics.
package otelthrottle
