package metrics_test

import (
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/asynq-throttle/asynq-throttle/metrics"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestNames: Prometheus' own linter finds nothing.
func TestNames(t *testing.T) {
	t.Parallel()
	collector, th := observed(t, miniredis.RunT(t).Addr(),
		&metrics.Options{Keys: map[string][]string{"tenant": {"acme"}}}, throttle.Options{})
	if _, err := th.Reserve(t.Context(), job("a", "acme", 1)); err != nil {
		t.Fatal(err)
	}
	happen(collector)
	problems, err := testutil.CollectAndLint(collector)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Errorf("%s: %s", problem.Metric, problem.Text)
	}
}

func TestNewRefusesWrongOptions(t *testing.T) {
	t.Parallel()
	many := make([]string, 101)
	for i := range many {
		many[i] = strconv.Itoa(i)
	}
	for _, row := range []struct {
		opts  metrics.Options
		field string
	}{
		{metrics.Options{Timeout: time.Microsecond}, "Timeout"},
		{metrics.Options{Timeout: 2 * time.Minute}, "Timeout"},
		{metrics.Options{Keys: map[string][]string{throttle.Global: {"a"}}}, "Keys"},
		{metrics.Options{Keys: map[string][]string{"tenant": {""}}}, "Keys"},
		{metrics.Options{Keys: map[string][]string{"tenant": {"\xff"}}}, "Keys"},
		{metrics.Options{Keys: map[string][]string{"tenant": many}}, "Keys"},
	} {
		_, err := metrics.New(&row.opts)
		var wrong *throttle.OptionError
		if !errors.As(err, &wrong) || wrong.Field != row.field {
			t.Errorf("%+v: got %v, want an OptionError of %s", row.opts, err, row.field)
		}
	}
}

// TestManyGoroutines: the events of many goroutines at once, while others scrape, are counted
// exactly.
func TestManyGoroutines(t *testing.T) {
	t.Parallel()
	const goroutines, each = 8, 200
	collector, _ := observed(t, miniredis.RunT(t).Addr(), nil, throttle.Options{})
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for i := range each {
				collector.Decided(throttle.Decision{Throttle: "mail", Reservation: throttle.Reservation{
					Job: job("a", strconv.Itoa(i), 2), Outcome: throttle.Granted,
				}})
				collector.Called(throttle.ScriptCall{Throttle: "mail", Script: "reserve", Took: time.Millisecond})
				collector.Started(throttle.Lateness{Throttle: "mail"})
			}
		})
	}
	for range 2 {
		all.Go(func() { scrape(t, collector) })
	}
	all.Wait()
	scrape(t, collector).want(t, map[string]float64{
		"throttle_decisions_total{outcome=granted,source=redis,throttle=mail}": goroutines * each,
		"throttle_units_total{outcome=granted,source=redis,throttle=mail}":     2 * goroutines * each,
		"throttle_script_duration_seconds{script=reserve,throttle=mail}":       goroutines * each,
		"throttle_start_lateness_seconds{throttle=mail}":                       goroutines * each,
	})
}

// BenchmarkDecided measures what the collector adds to a decision and its call, with as many
// tenants as it counts and with ten times as many.
func BenchmarkDecided(b *testing.B) {
	for _, tenants := range []int{1000, 10_000} {
		b.Run(strconv.Itoa(tenants)+" tenants", func(b *testing.B) {
			collector, _ := observed(b, miniredis.RunT(b).Addr(), nil, throttle.Options{})
			jobs := make([]throttle.Job, tenants)
			for i := range jobs {
				jobs[i] = job("a", strconv.Itoa(i), 1+int64(i%7))
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					collector.Decided(throttle.Decision{Throttle: "mail",
						Reservation: throttle.Reservation{Job: jobs[i%len(jobs)], Outcome: throttle.Granted}})
					collector.Called(throttle.ScriptCall{Throttle: "mail", Script: "reserve", Took: time.Millisecond})
				}
			})
		})
	}
}
