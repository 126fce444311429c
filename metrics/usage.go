package metrics

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// watch is a throttle whose use and waiting jobs are reported.
type watch struct {
	throttle *inspect.Inspector
	mu       sync.Mutex
	busy     map[string]*busy // by the scope's name
	set      settings
}

func newWatch(th *inspect.Inspector) *watch {
	return &watch{throttle: th, busy: make(map[string]*busy)}
}

// noteKeys counts the units that a job takes for its keys, if its throttle is watched.
func (c *Collector) noteKeys(throttleName string, job throttle.Job) {
	c.mu.RLock()
	w := c.watched[throttleName]
	c.mu.RUnlock()
	if w == nil {
		return
	}
	now := time.Now()
	for scope, key := range job.Keys {
		if units := unitsOf(job, scope); units > 0 {
			w.scope(scope).add(key, units, now)
		}
	}
}

// unitsOf returns the units that a job takes of the limits of a keyed scope.
func unitsOf(job throttle.Job, scope string) int64 {
	if units, own := job.Costs[scope]; own {
		return units
	}
	return job.Weight
}

func (w *watch) scope(name string) *busy {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.busy[name]
	if b == nil {
		b = new(busy)
		w.busy[name] = b
	}
	return b
}

// scopes returns the keyed scopes of the jobs so far.
func (w *watch) scopes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.busy))
}

// collectUsage reads from Redis what is used and what waits.
func (c *Collector) collectUsage(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), c.options.Timeout)
	defer cancel()
	c.mu.RLock()
	watched := slices.Collect(maps.Values(c.watched))
	c.mu.RUnlock()
	for _, w := range watched {
		scopes := w.scopes()
		all := scopes
		if c.collectGlobal(ctx, to, w) {
			all = append(slices.Clone(scopes), throttle.Global)
		}
		now := time.Now()
		if at, waits, err := c.collectLines(ctx, to, w, all); err == nil {
			c.collectLanes(ctx, to, w, all, at, waits)
			now = at
		}
		c.collectSettings(ctx, to, w, all, now)
		for _, scope := range scopes {
			c.collectBusy(ctx, to, w, scope)
		}
		for scope, keys := range c.options.Keys {
			c.collectKeys(ctx, to, w, scope, keys)
		}
		c.collectDiffering(ctx, to, w)
	}
}

// collectDiffering reports how many processes have a configuration other than the newest one's.
func (c *Collector) collectDiffering(ctx context.Context, to chan<- prometheus.Metric, w *watch) {
	processes, err := w.throttle.Processes(ctx)
	if err != nil {
		return
	}
	n := 0
	for _, p := range processes {
		if p.Alive && len(processes[0].Differences(p)) > 0 {
			n++
		}
	}
	to <- prometheus.MustNewConstMetric(c.differing, prometheus.GaugeValue, float64(n), w.throttle.Name())
}

// collectGlobal reports the ratios of Global. It returns false if there is no such scope, or Redis
// does not answer.
func (c *Collector) collectGlobal(ctx context.Context, to chan<- prometheus.Metric, w *watch) bool {
	usage, err := w.throttle.Usage(ctx, throttle.Global, "")
	if err != nil {
		return false
	}
	for _, limit := range usage.Limits {
		w.report(to, c.usedRatio, usage, limit)
	}
	to <- prometheus.MustNewConstMetric(c.served, prometheus.GaugeValue, usage.Served, w.throttle.Name(), throttle.Global)
	return true
}

// mostPages bounds what one scrape reads of the scope keys under which jobs wait. A page has
// 500 keys.
const mostPages = 20

// collectLines reports how many flows wait under the keys of each scope, also for scopes in which
// none does. It reads mostPages pages at most, which 10,000 keys fill, and leaves out the other keys. It
// returns the instant of the answer, and whether any job waits.
func (c *Collector) collectLines(ctx context.Context, to chan<- prometheus.Metric, w *watch,
	scopes []string) (at time.Time, waits bool, err error) {
	flows, keys := make(map[string]int64), make(map[string]int) // by scope
	for _, scope := range scopes {
		flows[scope] = 0
	}
	from := ""
	for range mostPages {
		page, err := w.throttle.Lines(ctx, from)
		if err != nil {
			return at, waits, err
		}
		at, waits = page.Now, waits || len(page.Lines) > 0
		for _, line := range page.Lines {
			flows[line.Scope] += line.Flows
			keys[line.Scope]++
		}
		if from = page.Next; from == "" {
			break
		}
	}
	for scope, n := range flows {
		to <- prometheus.MustNewConstMetric(c.waiting, prometheus.GaugeValue, float64(n), w.throttle.Name(), scope)
		to <- prometheus.MustNewConstMetric(c.blocked, prometheus.GaugeValue, float64(keys[scope]), w.throttle.Name(), scope)
	}
	return at, waits, nil
}

// collectBusy reports the highest ratio of the keys with the most units.
func (c *Collector) collectBusy(ctx context.Context, to chan<- prometheus.Metric, w *watch, scope string) {
	type keyLimit struct {
		usage inspect.Usage
		limit inspect.LimitUsage
	}
	highest := make(map[string]keyLimit) // by the label window
	served := 1.0                        // the lowest
	for _, key := range w.scope(scope).top(time.Now()) {
		usage, err := w.throttle.Usage(ctx, scope, key)
		if errors.Is(err, throttle.ErrState) {
			continue // only this key's data is bad
		}
		if err != nil {
			return // a remaining key's ratio could be higher
		}
		served = min(served, usage.Served)
		for _, limit := range usage.Limits {
			other, known := highest[limit.Limit.Label()]
			if !known || ratio(limit) > ratio(other.limit) {
				highest[limit.Limit.Label()] = keyLimit{usage, limit}
			}
		}
	}
	to <- prometheus.MustNewConstMetric(c.served, prometheus.GaugeValue, served, w.throttle.Name(), scope)
	for _, of := range highest {
		w.report(to, c.usedRatio, of.usage, of.limit)
	}
}

// collectKeys reports the ratios of the named keys, and what waits under them, if the throttle has
// their scope.
func (c *Collector) collectKeys(ctx context.Context, to chan<- prometheus.Metric, w *watch, scope string,
	keys []string) {
	for _, key := range keys {
		usage, err := w.throttle.Usage(ctx, scope, key)
		if err != nil {
			continue
		}
		to <- prometheus.MustNewConstMetric(c.keyWaiting, prometheus.GaugeValue, float64(usage.Waiting),
			w.throttle.Name(), scope, key)
		to <- prometheus.MustNewConstMetric(c.keyServed, prometheus.GaugeValue, usage.Served, w.throttle.Name(), scope, key)
		for _, limit := range usage.Limits {
			w.report(to, c.keyUsedRatio, usage, limit, key)
		}
	}
}

// report reports what part of a limit has started in the window that ends now.
func (w *watch) report(to chan<- prometheus.Metric, desc *prometheus.Desc, usage inspect.Usage,
	of inspect.LimitUsage, key ...string) {
	if of.Limit.Units == throttle.Unlimited {
		return
	}
	labels := append([]string{w.throttle.Name(), usage.Scope, of.Limit.Label()}, key...)
	to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, ratio(of), labels...)
}

// ratio returns the used part of a limit; a limit of 0 has no room, so it is full.
func ratio(of inspect.LimitUsage) float64 {
	switch of.Units {
	case 0:
		return 1
	case throttle.Unlimited:
		return -1 // below the ratio of any key that has a limit
	}
	return float64(of.Used) / float64(of.Units)
}
