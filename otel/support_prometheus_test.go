package otelthrottle_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/asynq-throttle/asynq-throttle/metrics"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// prometheusWord returns the value of a label under which package metrics counts an event.
func prometheusWord(t *testing.T, metric, label string, tell func(throttle.Observer)) string {
	t.Helper()
	collector, err := metrics.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	tell(collector)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != metric || len(family.GetMetric()) != 1 {
			continue
		}
		for _, l := range family.GetMetric()[0].GetLabel() {
			if l.GetName() == label {
				return l.GetValue()
			}
		}
	}
	t.Fatalf("%s has no label %s", metric, label)
	return ""
}
