package main

import (
	"context"
	"fmt"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// way is how decisions are requested.
type way struct {
	callers int
	awake   bool
}

func (w way) String() string {
	cores := "idle"
	if w.awake {
		cores = "awake"
	}
	if w.callers == 1 {
		return "1 goroutine, " + cores
	}
	return fmt.Sprintf("%d goroutines, %s", w.callers, cores)
}

var (
	one     = way{1, true}
	sixteen = way{16, true}
	ways    = []way{one, sixteen, {1, false}}
)

// figures are the figures of a row per decision, one entry per round.
type figures struct{ cpu, scripts, share, p50, perSecond, ratio, p50ratio []float64 }

// decisions compares the cost of a decision when there is room.
func decisions(ctx context.Context, b *bench) error {
	return withServer(ctx, func(s *server) error {
		rows, closeRows, err := b.limiters(s)
		if err != nil {
			return err
		}
		defer closeRows()
		for _, row := range rows { // creates the keys of each tenant, and loads the scripts
			if _, err := together(tenants, 16, func(i int) error { return row.decide(ctx, i) }); err != nil {
				return fmt.Errorf("%s: %w", row.name, err)
			}
		}
		asked, all := tenants, make(map[way]map[string]*figures)
		for _, w := range ways {
			all[w] = make(map[string]*figures)
			if err := b.round(ctx, s, w, rows, &asked, all[w]); err != nil {
				return err
			}
			b.printDecisions(w, rows, all[w])
		}
		b.most("Reserve, server CPU to "+yardstick+", "+one.String(), median(all[one][rowReserve].ratio), 1.2)
		b.most("Reserve, server CPU to "+yardstick+", "+sixteen.String(), median(all[sixteen][rowReserve].ratio), 0.6)
		b.most("two limits each, server CPU to "+yardstick+", "+one.String(), median(all[one][rowTwoLimits].ratio), 1.9)
		b.most("Reserve, round trip to "+yardstick+", "+one.String(), median(all[one][rowReserve].p50ratio), 0.7)
		b.least("Reserve, decisions per second to "+yardstick+", "+sixteen.String(),
			median(all[sixteen][rowReserve].perSecond)/median(all[sixteen][yardstick].perSecond), 1.5)
		return nil
	})
}

// limiters returns the rows, and a function that closes their clients.
func (b *bench) limiters(s *server) (rows []limiter, closeRows func(), err error) {
	client := s.client()
	closers := []func() error{client.Close}
	closeRows = func() {
		for _, end := range closers {
			_ = end() // nothing is lost with it
		}
	}
	tenant, global := throttle.PerMinute(tenantUnits), throttle.PerMinute(globalUnits)
	oneEach, err := reserve(client, rowReserve, limits{tenant}, limits{global})
	if err != nil {
		return nil, closeRows, err
	}
	twoEach, err := reserve(client, rowTwoLimits, limits{tenant, throttle.PerDay(100 * tenantUnits)},
		limits{global, throttle.PerDay(100 * globalUnits)})
	if err != nil {
		return nil, closeRows, err
	}
	rows = []limiter{redisRateTwice(client), sortedSetLog(client), oneEach, twoEach}
	return rows, closeRows, nil
}

// round asks each row in turn, for all rounds.
func (b *bench) round(ctx context.Context, s *server, w way, rows []limiter, asked *int,
	all map[string]*figures) error {
	if w.awake {
		stop, err := awake()
		if err != nil {
			return err
		}
		defer stop()
	}
	for _, row := range rows {
		all[row.name] = new(figures)
	}
	for range b.rounds {
		var base spent
		var baseP50 float64
		for _, row := range rows {
			from := *asked
			*asked += b.calls
			var took []time.Duration
			is, err := s.during(ctx, func() (err error) {
				took, err = together(b.calls, w.callers, func(i int) error { return row.decide(ctx, from+i) })
				return err
			})
			if err != nil {
				return fmt.Errorf("%s: %w", row.name, err)
			}
			if row.name == yardstick {
				base, baseP50 = is, p50(took)
			}
			f, n := all[row.name], float64(b.calls)
			f.cpu = append(f.cpu, micros(is.cpu)/n)
			f.scripts = append(f.scripts, micros(is.scripts)/n)
			f.share = append(f.share, float64(is.scripts)/float64(is.cpu))
			f.p50 = append(f.p50, p50(took))
			f.perSecond = append(f.perSecond, n/is.took.Seconds())
			f.ratio = append(f.ratio, float64(is.cpu)/float64(base.cpu))
			f.p50ratio = append(f.p50ratio, p50(took)/baseP50)
		}
	}
	return nil
}

func (b *bench) printDecisions(w way, rows []limiter, all map[string]*figures) {
	b.say("%-32s %8s %8s %8s %7s %8s %10s", fmt.Sprintf("%s, %d tenants", w, tenants), "CPU µs", "to rate",
		"script", "share", "p50 µs", "decisions/s")
	for _, row := range rows {
		f := all[row.name]
		b.say("  %-30s %8.1f %8.2f %8.1f %6.0f%% %8.0f %10.0f",
			row.name, median(f.cpu), median(f.ratio), median(f.scripts), 100*median(f.share), median(f.p50), median(f.perSecond))
	}
}
