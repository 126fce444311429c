package metrics

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/asynq-throttle/asynq-throttle/inspect"
)

// class is the jobs of one priority in line under a scope.
type class struct {
	scope    string
	priority int
}

// collectLanes reports how many jobs wait in line, and how long the first of them has waited. For a scope in
// which no job waits, it reports 0. Beyond 20,000 lanes it reports nothing. It reads the lanes only if any job waits.
func (c *Collector) collectLanes(ctx context.Context, to chan<- prometheus.Metric, w *watch, scopes []string,
	at time.Time, waits bool) {
	var lanes []inspect.Lane
	if waits {
		var err error
		if lanes, err = w.throttle.Lanes(ctx); err != nil {
			return
		}
	}
	jobs, oldest := make(map[class]int64), make(map[class]time.Duration)
	for _, scope := range scopes {
		jobs[class{scope: scope}] = 0
	}
	for _, lane := range lanes {
		of := class{lane.Scope, lane.Priority}
		jobs[of] += lane.Jobs
		if !lane.Since.IsZero() {
			oldest[of] = max(oldest[of], at.Sub(lane.Since))
		}
	}
	for of, n := range jobs {
		labels := []string{w.throttle.Name(), of.scope, strconv.Itoa(of.priority)}
		to <- prometheus.MustNewConstMetric(c.waitingJobs, prometheus.GaugeValue, float64(n), labels...)
		to <- prometheus.MustNewConstMetric(c.oldest, prometheus.GaugeValue, oldest[of].Seconds(), labels...)
	}
}
