package line_test

import (
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// TestFullDomainWhileAllIsFull: 1,000 flows have work, 250 of them for one domain, and
// the limit that all share is full too.
func TestFullDomainWhileAllIsFull(t *testing.T) {
	for _, units := range []int64{60, 600, 1400, 3000} {
		w := newWorld(t, settingsOf(map[string][]line.Limit{"global": {per(6000, minute)}, "domain": {per(units, minute)}}))
		began := w.now
		for i := range 30_000 {
			flow := id("t%d", i%1000)
			keys := []string{"global:"}
			if i%4 == 0 {
				keys = []string{"domain:d", "global:"}
			}
			w.arrive(id("j%d", i), flow, keys, 1)
		}
		w.run(began + 4*minute)
		w.check()
		used, all, flows := 0.0, 0.0, map[string]float64{}
		for _, j := range w.served {
			if j.started < began+minute || j.started > began+4*minute {
				continue
			}
			all++
			if len(j.keys) == 2 {
				used++
				flows[j.job.Lane[:4]]++
			}
		}
		could := min(float64(3*units), 4500)
		t.Logf("domain %d/min: %.0f started of %.0f, used to %.3f; all %.0f of 18000; looks per start %.2f, put back %.3f",
			units, used, could, used/could, all, float64(w.line.Looks)/float64(len(w.served)), float64(w.putBacks)/float64(len(w.jobs)))
	}
}
