package otelthrottle_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	otelthrottle "github.com/asynq-throttle/asynq-throttle/otel"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// A tenant's second mail waits for a second. The trace in which both were enqueued shows how long they waited, and what
// for.
func ExampleNew() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	scopes := []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.PerSecond(1)}}}
	job := func(_ context.Context, task *asynq.Task) (throttle.Job, error) {
		return throttle.Job{Weight: 1, Keys: map[string]string{"tenant": task.Headers()["tenant"]}}, nil
	}
	exporter := tracetest.NewInMemoryExporter() // a program has one for OTLP
	tracerProvider := trace.NewTracerProvider(trace.WithSyncer(exporter))
	meterProvider := metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))

	telemetry, err := otelthrottle.New(&otelthrottle.Options{
		TracerProvider: tracerProvider, // without it, that of otel.SetTracerProvider
		MeterProvider:  meterProvider,
		Propagator:     propagation.TraceContext{},
	})
	if err != nil {
		log.Fatal(err)
	}
	th, err := throttle.New("smtp", client, scopes, &throttle.Options{Observer: telemetry, Timeout: 5 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	telemetry.Watch(inspect.New(th))
	shaper, err := worker.New(th, client, job, nil)
	if err != nil {
		log.Fatal(err)
	}
	mux := asynq.NewServeMux()
	mux.Use(telemetry.Around(shaper)) // in place of shaper.Wrap

	sent := make(chan string)
	mux.HandleFunc("mail:send", func(_ context.Context, task *asynq.Task) error {
		sent <- string(task.Payload())
		return nil
	})
	workers := asynq.NewServerFromRedisClient(client,
		shaper.Configure(asynq.Config{Concurrency: 1, LogLevel: asynq.FatalLevel}))
	if err := workers.Start(mux); err != nil {
		log.Fatal(err)
	}
	ctx, span := tracerProvider.Tracer("program").Start(context.Background(), "welcome")
	queue := asynq.NewClientFromRedisClient(client)
	for _, mail := range []string{"first", "second"} {
		headers := map[string]string{"tenant": "acme"}
		task := worker.NewTask("mail:send", []byte(mail), telemetry.Headers(ctx, headers))
		if _, err := queue.Enqueue(task); err != nil {
			log.Fatal(err)
		}
		<-sent
	}
	span.End()
	shaper.Stop()
	workers.Shutdown()

	for _, of := range exporter.GetSpans() {
		if of.Name != "throttle put back" || of.Parent.SpanID() != span.SpanContext().SpanID() {
			continue
		}
		for _, attribute := range of.Attributes {
			switch attribute.Key {
			case "throttle.scope", "throttle.key", "throttle.limit":
				fmt.Println(of.Name, attribute.Key, attribute.Value.AsString())
			}
		}
		break
	}
	// Output:
	// throttle put back throttle.scope tenant
	// throttle put back throttle.key acme
	// throttle put back throttle.limit 1/1s
}
