package line_test

import (
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// TestHeavyJobsFillTheirLimit: jobs that are all heavier than one unit, of many flows, use
// the room that there is.
func TestHeavyJobsFillTheirLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flows, jobs int
		cost        int64
		units       int64
		window      int64
		every       int64 // one of so many is light
	}{
		{flows: 1000, jobs: 5000, cost: 2, units: 501, window: second},
		{flows: 1000, jobs: 5000, cost: 3, units: 1000, window: second},
		{flows: 6, jobs: 1000, cost: 20, units: 90, window: 10 * second},
		{flows: 100, jobs: 1000, cost: 7, units: 100, window: 10 * second, every: 2},
		{flows: 1000, jobs: 3000, cost: 7, units: 1000, window: 10 * second, every: 2},
		{flows: 1000, jobs: 3000, cost: 600, units: 10000, window: 10 * second, every: 2},
	} {
		w := newWorld(t, settingsOf(map[string][]line.Limit{"global": {per(c.units, c.window)}}))
		began, sum := w.now, int64(0)
		for i := range c.jobs {
			flow, cost := id("t%d", i%c.flows), c.cost
			if c.every > 0 && int64(i/c.flows+i)%c.every == 0 {
				cost = 1
			}
			sum += cost
			w.arrive(id("j%d", i), flow, []string{"global:"}, cost)
		}
		w.drain()
		w.check()
		last := int64(0)
		for _, j := range w.served {
			last = max(last, j.started)
		}
		whole := c.units / c.cost * c.cost
		optimum := (sum - 1) / whole * c.window
		t.Logf("%+v: makespan %.1f s, optimum %.1f s, %.2f looks per job, put back %.2f", c, float64(last-began)/1e6, float64(optimum)/1e6, float64(w.line.Looks)/float64(c.jobs), float64(w.putBacks)/float64(c.jobs))
	}
}

// TestWholeWindowsOfTwoScopeKeys: heavy jobs that need the whole windows of two scope keys
// at once start, beside others of their kind and a steady overload of light ones.
func TestWholeWindowsOfTwoScopeKeys(t *testing.T) {
	t.Parallel()
	for _, windows := range [][2]int64{{10 * second, 10 * second}, {10 * second, 60 * second}, {60 * second, 7 * second}} {
		w := newWorld(t, settingsOf(map[string][]line.Limit{"domain": {per(10, windows[0])}, "global": {per(20, windows[1])}}))
		n := 0
		var heavy []*worldJob
		for range 3600 {
			w.run(w.now + second)
			if n < 2000 {
				for i := range 4 {
					n++
					keys := []string{"global:"}
					if i%2 == 0 {
						keys = []string{"domain:d", "global:"}
					}
					w.arrive(id("j%d", n), id("t%d", n%7), keys, 1)
				}
			}
			if n == 80 {
				for f := range 3 {
					heavy = append(heavy, w.bring(line.Job{ID: id("heavy%d", f), Lane: id("h%d|domain:d,global:", f), Costs: []int64{10, 20}, Share: 1}))
				}
			}
		}
		for _, j := range heavy {
			t.Logf("%v: %s after %.1f s", windows, j.job.ID, float64(j.started-j.arrived)/1e6)
		}
		w.check()
	}
}
