package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/asynq-throttle/asynq-throttle/metrics"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// monitor collects the metrics of a run, and serves them to Prometheus if asked to.
type monitor struct {
	collector *metrics.Collector
	server    *http.Server // nil: they are not served
}

// startMonitor serves /metrics at addr, and says where; nothing if addr is empty.
// Close it in the end.
func startMonitor(ctx context.Context, addr string, stderr io.Writer) (*monitor, error) {
	collector, err := metrics.New(nil)
	if err != nil {
		return nil, err
	}
	if addr == "" {
		return &monitor{collector: collector}, nil
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector, collectors.NewGoCollector())
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	m := &monitor{collector: collector, server: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}}
	go func() { _ = m.server.Serve(listener) }() // ends with Close
	fmt.Fprintf(stderr, "metrics at http://%s/metrics\n", listener.Addr())
	return m, nil
}

// watch has a throttle's used ratios served.
func (m *monitor) watch(quotas *throttle.Throttle) {
	if m.server != nil {
		m.collector.Watch(quotas)
	}
}

// Close ends the serving at once.
func (m *monitor) Close() {
	if m.server != nil {
		_ = m.server.Close()
	}
}
