package line_test

import (
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
)

// TestFullDomainWhileAllIsFull: 1,000 flows have work, 250 of them for one domain, and the
// limit that all share is full too. The domain is used as far as it can be, flows of one
// kind start equally much, and few jobs are looked at for each that starts; whether the
// work is there at once or comes steadily.
func TestFullDomainWhileAllIsFull(t *testing.T) {
	t.Parallel()
	for _, units := range []int64{60, 600, 1400, 3000} {
		even := "after a minute of even load" // in which the windows free evenly
		for _, work := range longtest.Of([]string{even}, []string{even, "at once", "steadily"}) {
			t.Run(id("domain %d, %s", units, work), func(t *testing.T) {
				t.Parallel()
				fullDomain(t, units, work)
			})
		}
	}
}

func fullDomain(t *testing.T, units int64, work string) {
	w := newWorld(t, settingsOf(map[string][]line.Limit{"global": {per(6000, minute)}, "domain": {per(units, minute)}}))
	minutes := longtest.Of[int64](4, 8)
	began, n := w.now, 0
	arrive := func() {
		flow, keys := id("t%03d", n%1000), []string{"global:"}
		if n%4 == 0 {
			keys = []string{"domain:d", "global:"}
		}
		w.arrive(id("j%d", n), flow, keys, 1)
		n++
	}
	if work == "after a minute of even load" {
		for ; w.now < began+minute; w.run(w.now + 100*milli) {
			for range 10 {
				arrive()
			}
		}
		began = w.now
	}
	if work == "steadily" {
		for ; w.now < began+minutes*minute; w.run(w.now + 100*milli) {
			for range 22 {
				arrive()
			}
		}
	} else {
		for most := n + int(minutes)*9500; n < most; {
			arrive()
		}
		w.run(began + minutes*minute)
	}
	w.check()
	used, all := 0, 0
	starts := [2]map[string]int{{}, {}} // of those of the domain, of the others
	for f := range 1000 {
		starts[min(1, f%4)][id("t%03d", f)] = 0
	}
	for _, j := range w.served {
		if j.started < began+minute {
			continue
		}
		all++
		if len(j.keys) == 2 {
			used++
			starts[0][j.flow()]++
		} else {
			starts[1][j.flow()]++
		}
	}
	fair := min(units, 1500) * (minutes - 1)
	looks := float64(w.line.Looks) / float64(len(w.served))
	t.Logf("used to %.3f, all to %.3f, looks per start %.2f, put back %.3f", float64(used)/float64(fair),
		float64(all)/float64(6000*(minutes-1)), looks, float64(w.putBacks)/float64(len(w.jobs)))
	if float64(used) < 0.95*float64(fair) {
		t.Errorf("%d started of the domain's %d", used, fair)
	}
	if float64(all) < 0.99*float64(6000*(minutes-1)) {
		t.Errorf("%d started of %d", all, 6000*(minutes-1))
	}
	if looks > 1.5 {
		t.Errorf("%.2f looks per start", looks)
	}
	for kind, of := range starts {
		var xs []int
		for _, x := range of {
			xs = append(xs, x)
		}
		least, most := min(xs[0], xs[1]), max(xs[0], xs[1])
		for _, x := range xs {
			least, most = min(least, x), max(most, x)
		}
		t.Logf("kind %d: jain %.4f, from %d to %d starts", kind, jain(xs), least, most)
		if jain(xs) < 0.99 && most > least+1 {
			t.Errorf("kind %d: jain %.4f, from %d to %d starts", kind, jain(xs), least, most)
		}
	}
}
