package worker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// share divides the jobs, limits and weights of the drains, which still fill as many windows
// and so have as many put-backs per job.
var share = longtest.Of(10, 1)

// quotas returns two limits: 50 for each of 8 tenants, 200 for all.
func quotas(window, precision time.Duration) []throttle.Scope { return quotasOf(1, window, precision) }

// drainQuotas returns the quotas of the drains.
func drainQuotas(window, precision time.Duration) []throttle.Scope {
	return quotasOf(share, window, precision)
}

func quotasOf(share int, window, precision time.Duration) []throttle.Scope {
	return []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{{Units: int64(200 / share), Window: window, Precision: precision}}},
		{Name: "tenant", Limits: []throttle.Limit{{Units: int64(50 / share), Window: window, Precision: precision}}},
	}
}

// TestDrain lets 2,000 waiting tasks of 8 tenants run through 16 workers. With the race
// detector there are fewer tasks, and figures that only many tasks even out are not checked.
func TestDrain(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name              string
		window, precision time.Duration
		heavy             int64   // weight of every eleventh job, so that each tenant has as many
		makespan          float64 // at most, in optima
		putBacks          float64 // at most, per job
	}{
		{"exact 2s", 2 * time.Second, throttle.Exact, 1, longtest.Of(1.15, 1.03), longtest.Of(1.2, 1.05)},
		{"sub-windows of W/20", 2 * time.Second, 100 * time.Millisecond, 1, longtest.Of(1.2, 1.10), longtest.Of(1.2, 1.05)},
		{"exact 60s", time.Minute, throttle.Exact, 1, longtest.Of(1.15, 1.03), longtest.Of(1.2, 1.05)},
		{"an eleventh weighs half of a limit", 2 * time.Second, throttle.Exact, int64(25 / share), 1.15,
			longtest.Of(1.2, 1.10)},
	}
	if longtest.Watched {
		rows = rows[:1] // the others differ in figures, and go through the same code
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			tasks := 2000 / share
			if longtest.Watched {
				tasks = 400
			}
			inBubble(t, drainQuotas(row.window, row.precision), func(t *testing.T, w *world) {
				heavy := make(map[string]bool)
				for n := range tasks {
					weight := int64(1)
					if n%11 == 7 {
						weight = row.heavy
					}
					id := w.enqueue(n, fmt.Sprintf("t%d", n%8), weight)
					heavy[id] = weight > 1
				}
				w.began = time.Now()
				server := w.serve(asynq.Config{Concurrency: 16})
				w.drained(tasks, 4*time.Hour)
				w.shaper.Stop()
				server.Shutdown()
				w.checked(tasks)
				best := optimum(w.scopes, w.starts)
				ratio := float64(w.makespan()) / float64(best)
				putBacks := float64(w.shaper.Stats().PutBack) / float64(tasks)
				var light, heavyWaits []time.Duration
				for id, wait := range w.waits {
					if heavy[id] {
						heavyWaits = append(heavyWaits, wait)
					} else {
						light = append(light, wait)
					}
				}
				t.Logf("put back %.3f per job, makespan %s of %s: %.3f", putBacks, w.makespan(), best, ratio)
				if ratio > row.makespan && !longtest.Watched {
					t.Errorf("makespan is %.3f of the optimum, want at most %.2f", ratio, row.makespan)
				}
				if putBacks > row.putBacks {
					t.Errorf("put back %.3f per job, want at most %.2f", putBacks, row.putBacks)
				}
				if row.heavy > 1 && !longtest.Watched {
					h, l := percentile(heavyWaits, 0.99), percentile(light, 0.99)
					t.Logf("p99 wait: heavy %s, light %s", h, l)
					if float64(h) > 1.1*float64(l) && h > l+row.window+time.Millisecond { // starts come a window apart
						t.Errorf("the p99 wait of heavy jobs is %s, that of light ones %s", h, l)
					}
				}
			})
		})
	}
}

// TestDrainWithAStop stops the workers for 20 s in the middle of a drain, as a
// deployment or a crash does: the slots of the waiting tasks pass.
func TestDrainWithAStop(t *testing.T) {
	t.Parallel()
	tasks := 2000 / share
	if longtest.Watched {
		tasks = min(tasks, 600)
	}
	inBubble(t, drainQuotas(2*time.Second, throttle.Exact), func(t *testing.T, w *world) {
		for n := range tasks {
			w.enqueue(n, fmt.Sprintf("t%d", n%8), 1)
		}
		w.began = time.Now()
		first := w.serve(asynq.Config{Concurrency: 16})
		w.drained(tasks/2, time.Minute)
		w.shaper.Stop()
		first.Shutdown()
		before := len(w.ended)
		time.Sleep(20 * time.Second)
		if got := len(w.ended); got != before {
			t.Errorf("%d tasks ended while no worker was there", got-before)
		}
		resumed := time.Now()
		second := w.newShaper(nil)
		w.serveWith(second, asynq.Config{Concurrency: 16})
		w.drained(tasks, 10*time.Minute)
		w.checked(tasks)
		w.archived(0)
		putBacks := float64(w.shaper.Stats().PutBack+second.Stats().PutBack) / float64(tasks)
		rest := time.Duration(float64(tasks-before)/float64(200/share)*float64(2*time.Second)) - 2*time.Second
		t.Logf("put back %.3f per job; %d tasks before the stop, the rest within %s of %s after it", putBacks,
			before, time.Since(resumed), rest)
		if putBacks > 2 {
			t.Errorf("put back %.3f per job, want at most 2.0", putBacks)
		}
	})
}
