package line_test

import (
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// TestDrain: 4,000 jobs of eight tenants under 50/2s each and 200/2s for all.
func TestDrain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, settingsOf(map[string][]line.Limit{"global": {per(200, 2*second)}, "tenant": {per(50, 2*second)}}))
	began := w.now
	for i := range 4000 {
		flow := id("t%d", i%8)
		w.arrive(id("j%d", i), flow, []string{"global:", "tenant:" + flow}, 1)
	}
	w.run(began + 60*second)
	w.check()
	if len(w.served) != 4000 {
		t.Fatalf("%d of 4000 jobs started", len(w.served))
	}
	last := int64(0)
	for _, j := range w.served {
		last = max(last, j.started)
	}
	t.Logf("makespan %.2f s, put back %.3f per job, %d pulls", float64(last-began)/1e6, float64(w.putBacks)/4000, w.pulls)
}

// TestNewcomer: one tenant has half of the work; six share 600/min, 300/min each.
func TestNewcomer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, settingsOf(map[string][]line.Limit{"global": {per(600, minute)}, "tenant": {per(300, minute)}}))
	began := w.now
	add := func(flow string, n int) {
		for i := range n {
			w.arrive(id("%s-%d", flow, i), flow, []string{"global:", "tenant:" + flow}, 1)
		}
	}
	add("t0", 3000)
	for f := 1; f < 6; f++ {
		add(id("t%d", f), 600)
	}
	w.run(began + 120*second)
	add("new", 50)
	came := w.now
	w.run(began + 400*second)
	w.check()
	last := int64(0)
	count := map[string]float64{}
	for _, j := range w.served {
		flow := j.job.Lane[:2]
		if flow == "ne" {
			last = max(last, j.started)
		} else if j.started < began+300*second {
			count[flow]++
		}
	}
	var xs []float64
	for _, x := range count {
		xs = append(xs, x)
	}
	t.Logf("jain %.4f, newcomer's last after %.1f s, put back %.3f, %d served, %d pulls", jain(xs), float64(last-came)/1e6, float64(w.putBacks)/float64(len(w.served)), len(w.served), w.pulls)
}
