package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// row is one line of the table: a way to decide.
type row struct {
	name string
	// run makes the given number of decisions within m.measure, and whatever
	// they need before, outside it.
	run func(ctx context.Context, m *meter, calls int) error
}

// cost is what a row's decisions took, an entry per round, in µs per decision.
// Whatever else the machine does only ever adds to it, so each figure is the
// lowest of its rounds.
type cost struct {
	scripts, cpus, p50s, p99s []float64
	entries                   int64 // in the largest ledger, of all rounds; 0 where nobody has looked
}

func (c *cost) script() float64 { return slices.Min(c.scripts) }
func (c *cost) cpu() float64    { return slices.Min(c.cpus) }
func (c *cost) p50() float64    { return slices.Min(c.p50s) }
func (c *cost) p99() float64    { return slices.Min(c.p99s) }

func (c *cost) add(m *meter) {
	n := float64(len(m.roundTrips))
	c.scripts = append(c.scripts, m.scriptMicros/n)
	c.cpus = append(c.cpus, m.cpuMicros/n)
	slices.Sort(m.roundTrips)
	c.p50s = append(c.p50s, percentile(m.roundTrips, 50))
	c.p99s = append(c.p99s, percentile(m.roundTrips, 99))
	c.entries = max(c.entries, m.entries)
}

// percentile is the p-th percentile of the sorted durations, in µs.
func percentile(sorted []time.Duration, p int) float64 {
	i := min(len(sorted)*p/100, len(sorted)-1)
	return float64(sorted[i].Nanoseconds()) / 1000
}

// measureRow runs one round of one row on the emptied server.
func measureRow(ctx context.Context, addr string, row row, calls int, costs map[string]*cost) error {
	m := newMeter(addr)
	defer m.client.Close() //nolint:errcheck // nothing is lost with it
	if err := m.control.FlushAll(ctx).Err(); err != nil {
		return err
	}
	if err := errors.Join(row.run(ctx, m, calls), m.control.Close()); err != nil {
		return fmt.Errorf("%s: %w", row.name, err)
	}
	c := costs[row.name]
	if c == nil {
		c = new(cost)
		costs[row.name] = c
	}
	c.add(m)
	return nil
}

// meter measures the decisions of one row in one round.
type meter struct {
	client  *redis.Client // what decisions are made through
	control *redis.Client // what the server is asked through for its figures

	scriptMicros, cpuMicros float64
	roundTrips              []time.Duration
	entries                 int64 // in the largest ledger that was seen
}

func newMeter(addr string) *meter {
	return &meter{
		client:  redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true}), // as the docs advise
		control: redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1}),
	}
}

// measure makes decisions 0 to n-1, one after the other, and adds up what they
// cost. Called again it goes on adding.
func (m *meter) measure(ctx context.Context, n int, decide func(i int) error) error {
	if err := m.control.ConfigResetStat(ctx).Err(); err != nil {
		return err
	}
	before, err := m.cpu(ctx)
	if err != nil {
		return err
	}
	for i := range n {
		began := time.Now()
		if err := decide(i); err != nil {
			return err
		}
		m.roundTrips = append(m.roundTrips, time.Since(began))
	}
	after, err := m.cpu(ctx)
	if err != nil {
		return err
	}
	m.cpuMicros += after - before
	stats, err := m.control.Info(ctx, "commandstats").Result()
	if err != nil {
		return err
	}
	scripts, err := scriptMicros(stats)
	m.scriptMicros += scripts
	return err
}

// cpu is the server's CPU time so far, in µs.
func (m *meter) cpu(ctx context.Context) (float64, error) {
	info, err := m.control.Info(ctx, "cpu").Result()
	if err != nil {
		return 0, err
	}
	user, err := number(info, "used_cpu_user:")
	if err != nil {
		return 0, err
	}
	system, err := number(info, "used_cpu_sys:")
	return (user + system) * 1e6, err
}

// scriptMicros is the time spent in scripts since the statistics were reset.
func scriptMicros(stats string) (float64, error) {
	_, line, found := strings.Cut(stats, "cmdstat_evalsha:")
	if !found {
		return 0, fmt.Errorf("no EVALSHA in %q", stats)
	}
	line, _, _ = strings.Cut(line, "\r\n")
	return number(strings.ReplaceAll(line, ",", "\r\n"), "usec=")
}

// number reads the number that follows name, up to the line's end.
func number(text, name string) (float64, error) {
	_, rest, found := strings.Cut(text, name)
	if !found {
		return 0, fmt.Errorf("no %s in %q", name, text)
	}
	rest, _, _ = strings.Cut(rest, "\r\n")
	return strconv.ParseFloat(rest, 64)
}

func serverVersion(ctx context.Context, addr string) (string, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close() //nolint:errcheck // nothing is lost with it
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(info, "redis_version:")
	version, _, _ := strings.Cut(rest, "\r\n")
	return version, nil
}
