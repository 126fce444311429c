package rig

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/metrics"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Monitor collects the metrics of a run, and serves them to Prometheus if asked to.
type Monitor struct {
	Collector *metrics.Collector
	server    *http.Server // nil: the metrics are not served
}

// ServeMetrics serves /metrics at addr until Close, and prints the URL. If addr is empty, it
// serves nothing.
func (p *Program) ServeMetrics(ctx context.Context, addr string) (*Monitor, error) {
	collector, err := metrics.New(nil)
	if err != nil || addr == "" {
		return &Monitor{Collector: collector}, err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector, collectors.NewGoCollector())
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	m := &Monitor{Collector: collector, server: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}}
	go func() { _ = m.server.Serve(listener) }() // ends with Close
	p.AtClose(func() { _ = m.server.Close() })
	fmt.Fprintf(p.Stderr, "metrics at http://%s/metrics\n", listener.Addr())
	return m, nil
}

// Watch adds a throttle's used ratios to the metrics, if they are served.
func (m *Monitor) Watch(th *throttle.Throttle) {
	if m.server != nil {
		m.Collector.Watch(inspect.New(th))
	}
}
