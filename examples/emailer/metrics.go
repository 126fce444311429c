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

// monitor serves the metrics of a run to Prometheus. nil serves none.
type monitor struct {
	collector *metrics.Collector
	server    *http.Server
}

// startMonitor serves /metrics at addr, and says where; nothing if addr is empty.
// Close it in the end.
func startMonitor(ctx context.Context, addr string, stderr io.Writer) (*monitor, error) {
	if addr == "" {
		return nil, nil
	}
	collector, err := metrics.New(nil)
	if err != nil {
		return nil, err
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

// observe has a throttle's options name the monitor.
func (m *monitor) observe(options *throttle.Options) {
	if m != nil {
		options.Observer = m.collector
	}
}

// watch has a throttle's used ratios served.
func (m *monitor) watch(quotas *throttle.Throttle) {
	if m != nil {
		m.collector.Watch(quotas)
	}
}

// Close ends the serving at once.
func (m *monitor) Close() {
	if m != nil {
		_ = m.server.Close()
	}
}
