package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/asynq-throttle/asynq-throttle/inspect"
)

// settingsEvery is the shortest time between two readings of the settings: a reading scans all of
// Redis' keys.
const settingsEvery = time.Minute

// settings is the last reading of the settings at run time.
type settings struct {
	mu   sync.Mutex
	at   time.Time // when the settings were read, by the local clock
	list []inspect.Setting
}

// current returns the settings, read anew if they are older than settingsEvery.
func (s *settings) current(ctx context.Context, th *inspect.Inspector) ([]inspect.Setting, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.at.IsZero() && time.Since(s.at) < settingsEvery {
		return s.list, nil
	}
	list, err := th.Settings(ctx)
	if err != nil {
		return nil, err
	}
	s.at, s.list = time.Now(), list
	return list, nil
}

// allScopes is the scope label of a setting for all scopes: no scope has this name.
const allScopes = "*"

// collectSettings reports how many scope keys are paused, how many limits and modes are set, and
// the age of the oldest limits or mode that were set without an end. For a scope without settings, it reports 0.
func (c *Collector) collectSettings(ctx context.Context, to chan<- prometheus.Metric, w *watch, scopes []string,
	now time.Time) {
	list, err := w.set.current(ctx, w.throttle)
	if err != nil {
		return
	}
	paused, overrides, oldest := map[string]float64{}, map[string]float64{allScopes: 0}, map[string]float64{allScopes: 0}
	for _, scope := range scopes {
		paused[scope], overrides[scope], oldest[scope] = 0, 0, 0
	}
	for _, setting := range list {
		scope := setting.Scope
		if scope == "" {
			scope = allScopes
		}
		if setting.What == "pause" {
			paused[scope]++
			continue
		}
		overrides[scope]++
		if setting.Until.IsZero() {
			oldest[scope] = max(oldest[scope], now.Sub(setting.At).Seconds())
		}
	}
	for desc, of := range map[*prometheus.Desc]map[string]float64{c.paused: paused, c.overrides: overrides,
		c.oldestOverride: oldest} {
		for scope, n := range of {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, n, w.throttle.Name(), scope)
		}
	}
}
