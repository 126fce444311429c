package line_test

import (
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
)

// TestHeavyJobsOfOneTenantStopNobody: tenant m has 5 of 1000/24h left and two jobs of
// weight 10 in line; another with its whole quota starts its jobs as if m was not there.
func TestHeavyJobsOfOneTenantStopNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, settingsOf(map[string][]line.Limit{"global": {per(10, second)}, "tenant": {per(1000, day)}}))
	m := []string{"global:", "tenant:m"}
	for i := range 995 {
		if i%10 == 0 {
			w.run(w.now + second)
		}
		w.arrive(id("m%d", i), "m", m, 1)
	}
	w.run(w.now + 8*hour)
	w.arrive("heavy1", "m", m, 10)
	w.arrive("heavy2", "m", m, 10)
	w.run(w.now + minute)
	began := w.now
	for i := range 300 {
		w.arrive(id("o%d", i), "o", []string{"global:", "tenant:o"}, 1)
	}
	w.run(began + 40*second)
	n := 0
	for _, j := range w.served {
		if j.job.Lane[0] == 'o' {
			n++
		}
	}
	if n != 300 {
		t.Errorf("%d of 300 jobs started in 40 s, want 300: they need 30 s", n)
	}
	w.run(began + 24*hour)
	for _, heavy := range []string{"heavy1", "heavy2"} {
		if w.jobs[heavy].started == 0 {
			t.Errorf("%s has not started", heavy)
		}
	}
	w.check()
}

// TestHeavyJobStartsBesideLightOnes: under a steady overload of light jobs a job that
// needs the whole window starts soon.
func TestHeavyJobStartsBesideLightOnes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, settingsOf(map[string][]line.Limit{"global": {per(10, 10*second)}, "tenant": {per(1000, minute)}}))
	began := w.now
	for i := range 200 {
		flow := id("t%d", i%4)
		w.arrive(id("j%d", i), flow, []string{"global:", "tenant:" + flow}, 1)
	}
	h := w.arrive("heavy", "h", []string{"global:", "tenant:h"}, 10)
	w.run(began + 300*second)
	w.check()
	t.Logf("heavy after %.1f s", float64(h.started-began)/1e6)
	if h.started == 0 || h.started > began+60*second {
		t.Errorf("the heavy job started after %d us", h.started-began)
	}
}

// TestHeavyJobsFillTheirLimit: jobs that are all heavier than one unit, of many flows, use
// the room that there is.
func TestHeavyJobsFillTheirLimit(t *testing.T) {
	t.Parallel()
	crowd := longtest.Of(250, 1000)
	for _, c := range []struct {
		flows, jobs int
		cost        int64
		units       int64
		window      int64
		every       int64 // one of so many is light
	}{
		{flows: crowd, jobs: 5 * crowd, cost: 2, units: 501, window: second},
		{flows: crowd, jobs: 5 * crowd, cost: 3, units: 1000, window: second},
		{flows: 6, jobs: 1000, cost: 20, units: 90, window: 10 * second},
		{flows: 100, jobs: 1000, cost: 7, units: 100, window: 10 * second, every: 2},
		{flows: crowd, jobs: 3 * crowd, cost: 7, units: 1000, window: 10 * second, every: 2},
		{flows: crowd, jobs: 3 * crowd, cost: 600, units: 10000, window: 10 * second, every: 2},
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
		t.Logf("%+v: makespan %.1f s, optimum %.1f s, %.2f looks per job, put back %.2f", c,
			float64(last-began)/1e6, float64(optimum)/1e6, float64(w.line.Looks)/float64(c.jobs),
			float64(w.putBacks)/float64(c.jobs))
		if last > began+optimum*105/100+2*c.window {
			t.Errorf("%+v: the last job started after %d us, the limit asks for %d us", c, last-began, optimum)
		}
	}
}

// TestWholeWindowsOfTwoScopeKeys: heavy jobs that need the whole windows of two scope keys
// at once start, beside others of their kind and a steady overload of light ones.
func TestWholeWindowsOfTwoScopeKeys(t *testing.T) {
	t.Parallel()
	for _, windows := range [][2]int64{{10 * second, 10 * second}, {10 * second, 60 * second}, {60 * second, 7 * second}} {
		w := newWorld(t,
			settingsOf(map[string][]line.Limit{"domain": {per(10, windows[0])}, "global": {per(20, windows[1])}}))
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
					heavy = append(heavy,
						w.bring(line.Job{ID: id("heavy%d", f), Lane: id("h%d|domain:d,global:", f), Costs: []int64{10, 20}, Share: 1}))
				}
			}
		}
		longest := windows[0] + windows[1]
		for i, j := range heavy {
			if most := int64(i+2) * longest; j.started == 0 || j.started > j.arrived+most {
				t.Errorf("%v: %s started after %d us, want %d at most", windows, j.job.ID, j.started-j.arrived, most)
			}
			t.Logf("%v: %s after %.1f s", windows, j.job.ID, float64(j.started-j.arrived)/1e6)
		}
		w.check()
	}
}
