package line_test

import (
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// TestDrain: 4,000 jobs of eight tenants under 50/2s each and 200/2s for all take no longer
// than their limits ask for, and each is put back once at most.
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
	if last > began+38*second*103/100 {
		t.Errorf("the last job started after %d us, the limits ask for 38 s", last-began)
	}
	if w.putBacks > 4000 {
		t.Errorf("%d jobs were put back of 4000", w.putBacks)
	}
}
