package line_test

import (
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// TestDeletedBacklogHoldsNobodyUp: 20,000 jobs of a tenant that are gone, of which nobody
// knows until they are booked, hold nobody up for more than a second.
func TestDeletedBacklogHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{false, true} {
		w := newWorld(t, settingsOf(map[string][]line.Limit{"global": {per(100, second)}}))
		var ids []string
		for i := range 20_000 {
			ids = append(ids, id("a%d", i))
			w.arrive(ids[i], "a", []string{"global:"}, 1)
		}
		w.run(w.now + 10*second)
		if known {
			for len(ids) > 0 {
				some := ids[:min(64, len(ids))]
				ids = ids[len(some):]
				w.line.Leave(w.now, w.settings, some)
			}
			w.back = nil
		} else {
			w.gone = func(j *worldJob) bool { return j.flow() == "a" }
			w.leaving = true
		}
		held(t, w, id("deleted, known %t", known))
	}
}

// TestPausedBacklogHoldsNobodyUp: neither do 20,000 of a tenant that is paused.
func TestPausedBacklogHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, settingsOf(map[string][]line.Limit{"global": {per(100, second)}, "tenant": {per(1000, second)}}))
	for i := range 20_000 {
		w.arrive(id("a%d", i), "a", []string{"global:", "tenant:a"}, 1)
	}
	w.run(w.now + 10*second)
	w.line.Pause(w.now, w.settings, "tenant:a", w.now+day)
	held(t, w, "paused")
}

// held has 20 jobs of another tenant come each second, and looks how long they wait.
func held(t *testing.T, w *world, what string) {
	t.Helper()
	n := 0
	for until := w.now + 20*second; w.now < until; w.run(w.now + 100*milli) {
		for range 2 {
			w.arrive(id("b%d", n), "b", []string{"global:"}, 1)
			n++
		}
	}
	w.run(w.now + 2*second)
	w.check()
	longest, started := int64(0), 0
	for _, j := range w.served {
		if j.flow() == "b" {
			longest, started = max(longest, j.started-j.arrived), started+1
		}
	}
	t.Logf("%s: %d of %d jobs of another tenant started, the longest wait %.2f s", what, started, n, float64(longest)/1e6)
	// A second until what had started before leaves, and one for what is booked.
	if started != n || longest > 2*second {
		t.Errorf("%s: %d of %d jobs of another tenant started, the longest wait %d us", what, started, n, longest)
	}
}
