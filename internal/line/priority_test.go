package line_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
)

// priorityLane is the lane of a tenant's jobs of one priority.
func priorityLane(tenant string, priority int) string {
	flow := tenant
	if priority > 0 {
		flow += id("#%d", priority)
	}
	return flow + "|global:,tenant:" + tenant
}

// batch has a tenant bring jobs of a priority with weights that are drawn, of so many units.
func (w *world) batch(tenant string, priority int, units int64, weight func() int64) {
	for units > 0 {
		cost := weight()
		units -= cost
		w.bring(line.Job{ID: id("%s-%d-%d", tenant, priority, len(w.jobs)), Lane: priorityLane(tenant, priority),
			Costs: []int64{cost, cost}, Share: 1})
	}
}

// byPriority are the units that a tenant has started of each priority.
func (w *world) byPriority(tenant string, from, to int64) (units [line.Priorities]int64) {
	for _, j := range w.served {
		for priority := range units {
			if j.job.Lane == priorityLane(tenant, priority) && j.started >= from && j.started < to {
				units[priority] += j.job.Costs[0]
			}
		}
	}
	return units
}

func weightOf(weight int64) func() int64 { return func() int64 { return weight } }

// TestLowerPriorityHasItsFloor: while jobs of both priorities wait, the lower one has a tenth
// of its tenant's units, or what else is set, whatever the jobs of either weigh; of three
// priorities each has nine times as much as the next one.
func TestLowerPriorityHasItsFloor(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 14))
	drawn := func(most int64) func() int64 { return func() int64 { return 1 + r.Int64N(most) } }
	minutes := longtest.Of[int64](5, 11) // the first of them fills the windows
	for name, c := range map[string]struct {
		weights []func() int64
		lower   int64
		want    []float64
	}{
		"light":              {weights: []func() int64{weightOf(1), weightOf(1)}, want: []float64{0.9, 0.1}},
		"heavier below":      {weights: []func() int64{weightOf(1), drawn(20)}, want: []float64{0.9, 0.1}},
		"heavier above":      {weights: []func() int64{drawn(20), weightOf(1)}, want: []float64{0.9, 0.1}},
		"a floor of a fifth": {weights: []func() int64{drawn(5), drawn(5)}, lower: 4, want: []float64{0.8, 0.2}},
		"three priorities": {weights: []func() int64{drawn(3), drawn(3), drawn(3)},
			want: []float64{81. / 91, 9. / 91, 1. / 91}},
		"the second and a third": {weights: []func() int64{nil, drawn(3), drawn(3)}, want: []float64{0, 0.9, 0.1}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, settingsOf(map[string][]line.Limit{"global": {per(6000, minute)}, "tenant": {per(3000, minute)}}))
			w.settings.Lower = c.lower
			for priority, weight := range c.weights {
				if weight == nil {
					continue
				}
				w.batch("a", priority, minutes*3000, weight)
			}
			w.batch("b", 0, 3000, weightOf(1))
			began := w.now
			w.run(began + minutes*minute)
			w.check()
			units := w.byPriority("a", began+minute, began+minutes*minute)
			all := units[0] + units[1] + units[2]
			t.Logf("%d units of %d: %v", all, (minutes-1)*3000, units)
			if all < (minutes-1)*2900 {
				t.Errorf("%d units of %d started", all, (minutes-1)*3000)
			}
			for priority, want := range c.want {
				if got := float64(units[priority]) / float64(all); got < want-0.02 || got > want+0.02 {
					t.Errorf("priority %d has %.3f of the units, want %.3f", priority, got, want)
				}
			}
		})
	}
}

// TestHigherPriorityWaitsForFewOthers: jobs of the highest priority that need half of a
// tenant's rate start within two seconds, p99, beside 10,000 jobs of a lower one, which have
// the other half.
func TestHigherPriorityWaitsForFewOthers(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]map[string][]line.Limit{
		"the tenant's own limit": {"global": {per(100_000, second)}, "tenant": {per(100, second)}},
		"a limit that is shared": {"global": {per(200, second)}, "tenant": {per(100_000, second)}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, settingsOf(limits))
			w.batch("a", 1, 10_000, weightOf(1))
			w.batch("b", 1, 10_000, weightOf(1))
			began := w.now
			r := rand.New(rand.NewPCG(2, 14))
			for w.now < began+minute {
				w.run(w.now + 1 + r.Int64N(80*milli))
				w.batch("a", 0, 1, func() int64 { return 1 + r.Int64N(3) })
			}
			w.run(w.now + 10*second)
			w.check()
			var waits []int64
			for _, j := range w.served {
				if j.job.Lane == priorityLane("a", 0) {
					waits = append(waits, j.started-j.arrived)
				}
			}
			slices.Sort(waits)
			p99 := waits[len(waits)*99/100]
			a, b := w.byPriority("a", began, began+minute), w.byPriority("b", began, began+minute)
			t.Logf("%d jobs, p99 %.2f s, most %.2f s; units of a %v, of b %v", len(waits), float64(p99)/1e6,
				float64(waits[len(waits)-1])/1e6, a, b)
			if p99 > 2*second {
				t.Errorf("p99 %.2f s, want at most 2 s", float64(p99)/1e6)
			}
			if all := a[0] + a[1]; all < 5800 || b[1] < 5800 {
				t.Errorf("a has %d units and b %d, of 6,000 each", all, b[1])
			}
		})
	}
}

// TestPriorityGivesNoLargerShare: a tenant whose jobs all have the lowest priority starts as
// many as others do.
func TestPriorityGivesNoLargerShare(t *testing.T) {
	t.Parallel()
	w := sixTenants(t)
	began := w.now
	for f := range 6 {
		for priority := range 3 {
			if f%3 == priority || f == 5 {
				w.batch(id("t%d", f), priority, 1500, weightOf(1))
			}
		}
	}
	w.run(began + 6*minute)
	w.check()
	had := make([]float64, 6)
	for f := range had {
		for _, units := range w.byPriority(id("t%d", f), began+minute, began+6*minute) {
			had[f] += float64(units)
		}
	}
	if index := jain(had); index < 0.999 {
		t.Errorf("jain %.5f: %v", index, had)
	}
}
