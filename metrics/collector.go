package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/asynq-throttle/asynq-throttle/inspect"
)

// The buckets of the histograms, in seconds.
var (
	waitBuckets     = []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 21600, 86400}
	latenessBuckets = []float64{.0001, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}
	scriptBuckets   = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}
)

// Collector counts what throttles do and reports the counts to Prometheus. It is the
// Options.Observer of each throttle, and a prometheus.Collector to register once. It is safe for
// use by many goroutines and starts none. Create it with New.
type Collector struct {
	options Options

	decisions, units          *prometheus.CounterVec
	held, shadowed, lineFull  *prometheus.CounterVec
	fallbacks, failures       *prometheus.CounterVec
	putBacks, pauses, ended   *prometheus.CounterVec
	adaptations               *prometheus.CounterVec
	served, keyServed         *prometheus.Desc
	settlements, settledUnits *prometheus.CounterVec
	advanced, advancedUnits   *prometheus.CounterVec
	waits, waited             *prometheus.HistogramVec
	latenesses, scripts       *prometheus.HistogramVec
	usedRatio, keyUsedRatio   *prometheus.Desc
	waiting, keyWaiting       *prometheus.Desc
	waitingJobs, oldest       *prometheus.Desc
	paused, overrides         *prometheus.Desc
	oldestOverride            *prometheus.Desc
	blocked, differing        *prometheus.Desc

	mu      sync.RWMutex
	watched map[string]*watch // by the throttle's name
}

// New returns a Collector. It registers nothing. The error is a
// *throttle.OptionError.
func New(opts *Options) (*Collector, error) {
	options, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Collector{
		options: options,
		watched: make(map[string]*watch),

		decisions: counter("throttle_decisions_total", "Answers to jobs that asked for a start.", "throttle",
			"outcome", "source"),
		units: counter("throttle_units_total",
			"Weights of the jobs that were answered, each charge once.", "throttle", "outcome", "source"),
		held: counter("throttle_held_total",
			"Answers to jobs that a limit or a pause kept from starting at once, by what held longest.", "throttle",
			"scope", "window"),
		shadowed: counter("throttle_shadowed_total", "Granted jobs that a limit in shadow would have delayed.",
			"throttle", "scope", "window"),
		lineFull: counter("throttle_line_full_total",
			"Jobs that were refused, since the line of a scope key was full.", "throttle", "scope"),
		fallbacks: counter("throttle_fallbacks_total",
			"Decisions that Redis could not make, by the kind of failure.", "throttle", "failure"),
		failures: counter("throttle_script_failures_total",
			"Calls of scripts that Redis did not answer, by the kind of failure.", "throttle", "script", "failure"),
		putBacks: counter("throttle_put_backs_total", "Jobs that went back to their queue, by the reason.",
			"throttle", "reason"),
		ended: counter("throttle_ended_total", "Jobs that can never start and were ended, by the reason.",
			"throttle", "reason"),
		pauses: counter("throttle_pauses_total", "Scope keys that were paused.", "throttle", "scope"),
		adaptations: counter("throttle_adaptations_total",
			"Changes of the served share of a key's limits: lowered or raised.", "throttle",
			"scope", "direction"),
		settlements: counter("throttle_settlements_total", "Charges that were corrected to what the job took.", "throttle"),
		settledUnits: counter("throttle_settled_units_total",
			"Units by which charges were corrected: returned or added.", "throttle", "direction"),
		advanced: counter("throttle_advanced_starts_total", "Jobs that started out of an advance, without asking Redis.",
			"throttle"),
		advancedUnits: counter("throttle_advance_units_total",
			"Units of advances: charged for jobs to come, or started by such jobs.", "throttle", "event"),

		waits: histogram("throttle_wait_seconds",
			"Time from the answer to the start that was granted, booked or guessed.", waitBuckets, "throttle", "outcome"),
		waited: histogram("throttle_waited_seconds",
			"Time from a job's arrival to its granted start, for each scope that has a key of the job; global has all jobs.",
			waitBuckets, "throttle", "scope", "priority"),
		latenesses: histogram("throttle_start_lateness_seconds",
			"Time from the granted start until the job began.", latenessBuckets, "throttle"),
		scripts: histogram("throttle_script_duration_seconds",
			"Time that calls of scripts took, the network included.", scriptBuckets, "throttle", "script"),
	}
	c.describe()
	return c, nil
}

// describe creates the descriptions of what each scrape reads.
func (c *Collector) describe() {
	c.usedRatio = desc("throttle_used_ratio",
		"Part of a limit that started in the window that ends now: the highest among the busiest keys.",
		"throttle", "scope", "window")
	c.keyUsedRatio = desc("throttle_key_used_ratio",
		"Part of a limit that started in the window that ends now, for the keys that the program named.",
		"throttle", "scope", "window", "key")
	c.served = desc("throttle_served_ratio",
		"Served share of a key's limits: the lowest among the busiest keys.", "throttle", "scope")
	c.keyServed = desc("throttle_key_served_ratio",
		"Served share of a key's limits, for the keys that the program named.",
		"throttle", "scope", "key")
	c.waiting = desc("throttle_waiting_flows",
		"Flows that wait in line, by the scope whose keys have no room for them.", "throttle", "scope")
	c.keyWaiting = desc("throttle_key_waiting_flows",
		"Flows that wait in line under the keys that the program named.", "throttle", "scope", "key")
	c.waitingJobs = desc("throttle_waiting_jobs",
		"Jobs that wait in line, by the scope that has no room for them and their priority.",
		"throttle", "scope", "priority")
	c.oldest = desc("throttle_oldest_wait_seconds",
		"For how long the oldest job in line has waited.", "throttle", "scope", "priority")
	c.paused = desc("throttle_paused_keys",
		"Scope keys that are paused.", "throttle", "scope")
	c.oldestOverride = desc("throttle_oldest_override_seconds",
		"For how long the oldest limits or mode without an end have been set at run time, by scope; 0 if there are none.",
		"throttle", "scope")
	c.overrides = desc("throttle_overrides",
		"Limits and modes that are set at run time, by scope.", "throttle", "scope")
	c.blocked = desc("throttle_blocked_keys",
		"Keys of a scope under which jobs wait in line.", "throttle", "scope")
	c.differing = desc("throttle_differing_processes",
		"Processes that are alive and configured differently from the newest one.", "throttle")
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, part := range c.parts() {
		part.Describe(to)
	}
	for _, asked := range []*prometheus.Desc{c.usedRatio, c.keyUsedRatio, c.served, c.keyServed, c.waiting,
		c.keyWaiting, c.blocked, c.differing} {
		to <- asked
	}
	for _, asked := range []*prometheus.Desc{c.waitingJobs, c.oldest, c.paused, c.overrides, c.oldestOverride} {
		to <- asked
	}
}

// Collect implements prometheus.Collector. It reads use and waiting jobs from Redis, for at most
// Options.Timeout; it leaves out what Redis does not answer.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	c.collectUsage(to)
	// After the calls to Redis, so that this scrape reports their durations too.
	for _, part := range c.parts() {
		part.Collect(to)
	}
}

func (c *Collector) parts() []prometheus.Collector {
	return []prometheus.Collector{
		c.decisions, c.units, c.held, c.shadowed, c.lineFull, c.fallbacks, c.failures, c.putBacks, c.pauses, c.ended,
		c.adaptations,
		c.settlements, c.settledUnits, c.advanced, c.advancedUnits,
		c.waits, c.waited, c.latenesses, c.scripts,
	}
}

// Watch makes each scrape report the use, the waiting jobs, the settings and the processes of these throttles, and
// starts the counters that alerts read at zero, so that Prometheus sees the first increase. A throttle
// replaces a watched one of the same name.
func (c *Collector) Watch(throttles ...*inspect.Inspector) {
	for _, th := range throttles {
		c.mu.Lock()
		c.watched[th.Name()] = newWatch(th)
		c.mu.Unlock()
		c.beginAtZero(th.Name())
	}
}
