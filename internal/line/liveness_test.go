package line_test

import (
	"math/rand/v2"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
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

// TestLightJobWithRoomNeverWaits: whatever limits, weights and backlogs are drawn, a job of
// weight 1 that has room in all its limits, promises counted, does not wait 20 s.
func TestLightJobWithRoomNeverWaits(t *testing.T) {
	t.Parallel()
	worstWait := int64(0)
	for seed := range uint64(100) {
		wait := lightJobs(t, seed)
		worstWait = max(worstWait, wait)
		if wait >= 20*second {
			t.Errorf("seed %d: a job of weight 1 waited %.1f s with room in all its limits", seed, float64(wait)/1e6)
		}
	}
	t.Logf("the longest wait with room: %.2f s", float64(worstWait)/1e6)
}

func lightJobs(t *testing.T, seed uint64) int64 {
	r := rand.New(rand.NewPCG(seed, 1))
	windows := []int64{second, 2 * second, 10 * second, minute, hour, day}
	draw := func(most int) []line.Limit {
		var limits []line.Limit
		for i, n := r.IntN(len(windows)), r.IntN(most); i < len(windows) && n >= 0; n-- {
			limits = append(limits, per(20+r.Int64N(400), windows[i]))
			i += 1 + r.IntN(3)
		}
		return limits
	}
	w := newWorld(t, settingsOf(map[string][]line.Limit{"global": draw(2), "tenant": draw(3), "domain": draw(2)}))
	for name, scope := range w.settings.Scopes { // wider windows hold more
		for i := 1; i < len(scope.Limits); i++ {
			scope.Limits[i].Units += scope.Limits[i-1].Units
		}
		w.settings.Scopes[name] = scope
	}
	heavy := int64(2 + r.IntN(19))
	n := 0
	roomSince := map[string]int64{}
	longest := int64(0)
	until := w.now + 5*minute
	for w.now < until {
		w.run(w.now + r.Int64N(2*second))
		for range r.IntN(12) {
			flow := id("t%d", r.IntN(4))
			keys := []string{"global:", "tenant:" + flow}
			if r.IntN(2) == 0 {
				keys = []string{id("domain:d%d", r.IntN(2)), "global:", "tenant:" + flow}
			}
			cost := int64(1)
			if r.IntN(3) == 0 {
				cost = 1 + r.Int64N(heavy)
			}
			n++
			w.arrive(id("j%d", n), flow, keys, cost)
		}
		for _, first := range w.line.Heads() {
			if first.Costs[0] != 1 {
				continue
			}
			if w.line.HasRoom(w.now, w.settings, first.Lane, first.Costs) {
				if roomSince[first.ID] == 0 {
					roomSince[first.ID] = w.now
				}
				if longest = max(longest, w.now-roomSince[first.ID]); w.now-roomSince[first.ID] > 20*second {
					t.Fatalf("%s %s\n%s", first.ID, first.Lane, w.line.Dump(w.now))
				}
			} else {
				delete(roomSince, first.ID)
			}
		}
	}
	w.check()
	return longest
}
