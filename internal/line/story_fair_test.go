package line_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
)

// sixTenants is a world of tenants of 300/min each who share 600/min.
func sixTenants(t *testing.T) *world {
	return newWorld(t, settingsOf(map[string][]line.Limit{"global": {per(600, minute)}, "tenant": {per(300, minute)}}))
}

// backlog has a tenant bring jobs of one cost and share.
func (w *world) backlog(flow string, jobs int, cost, share int64) {
	for i := range jobs {
		w.bring(line.Job{ID: id("%s-%d-%d", flow, w.now, i), Lane: flow + "|global:,tenant:" + flow,
			Costs: []int64{cost, cost}, Share: share})
	}
}

// fairness is Jain's index of what these flows have started from an instant on, by their
// shares.
func (w *world) fairness(from, to int64, share func(flow string) float64) float64 {
	var xs []float64
	for flow, units := range w.units(from, to) {
		xs = append(xs, float64(units)/share(flow))
	}
	return jain(xs)
}

func alike(string) float64 { return 1 }

// TestSharedLimitIsDividedEqually: six tenants, one of whom came first with half of the
// work, start equally much from the second window on.
func TestSharedLimitIsDividedEqually(t *testing.T) {
	t.Parallel()
	w := sixTenants(t)
	began := w.now
	w.backlog("t0", 6000, 1, 1)
	for f := 1; f < 6; f++ {
		w.backlog(id("t%d", f), 1200, 1, 1)
	}
	w.run(began + 5*minute)
	w.check()
	index := w.fairness(began+minute, began+5*minute, alike)
	t.Logf("jain %.5f, put back %.3f per job, looks per start %.2f, %.1f pulls a second", index,
		float64(w.putBacks)/12000, float64(w.line.Looks)/float64(len(w.served)), float64(w.pulls)/300)
	if index < 0.999 {
		t.Errorf("jain %.5f: %v", index, w.units(began+minute, began+5*minute))
	}
	if units := w.units(began+minute, began+5*minute); sum(units) < 2400*98/100 {
		t.Errorf("%d units of 2400 started", sum(units))
	}
}

func sum(units map[string]int64) (all int64) {
	for _, n := range units {
		all += n
	}
	return all
}

// TestNewcomerDoesNotWaitForBacklogs: 50 jobs of a tenant that comes while others have
// 6,000 in line start at the rate of a seventh of the limit.
func TestNewcomerDoesNotWaitForBacklogs(t *testing.T) {
	t.Parallel()
	for _, offset := range []int64{second, 20 * second, 59 * second} {
		w := sixTenants(t)
		began := w.now
		w.backlog("t0", 3000, 1, 1)
		for f := 1; f < 6; f++ {
			w.backlog(id("t%d", f), 600, 1, 1)
		}
		w.run(began + 2*minute + offset)
		came := w.now
		w.backlog("new", 50, 1, 1)
		w.run(came + 4*minute)
		w.check()
		last, n := int64(0), 0
		for _, j := range w.served {
			if j.flow() == "new" {
				last, n = max(last, j.started), n+1
			}
		}
		t.Logf("the newcomer's last job after %.1f s", float64(last-came)/1e6)
		// What has started leaves at once, as it came: at worst a minute later.
		if n != 50 || last > came+minute+2*second {
			t.Errorf("%d of the newcomer's 50 jobs started, the last after %d us", n, last-came)
		}
	}
}

// TestSharesDivideTheLimit: of two kinds of tenants one has three times the share.
func TestSharesDivideTheLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, settingsOf(map[string][]line.Limit{"global": {per(600, minute)}, "tenant": {per(600, minute)}}))
	began := w.now
	share := func(flow string) float64 { return 1 + 2*float64(flow[1]-'0'&1) }
	for f := range 6 {
		flow := id("t%d", f)
		w.backlog(flow, 2000, 1, int64(share(flow)))
	}
	w.run(began + 6*minute)
	w.check()
	index := w.fairness(began+minute, began+6*minute, share)
	t.Logf("jain by shares %.5f", index)
	if index < 0.999 {
		t.Errorf("jain by shares %.5f: %v", index, w.units(began+minute, began+6*minute))
	}
}

// TestHeavyJobsHaveTheirShare: one job in ten has weight 20; and three tenants of six have
// heavy jobs only.
func TestHeavyJobsHaveTheirShare(t *testing.T) {
	t.Parallel()
	for name, heavy := range map[string]func(flow, i int) bool{
		"one in ten":            func(_, i int) bool { return i%10 == 0 },
		"all of three tenants":  func(flow, _ int) bool { return flow < 3 },
		"all of all tenants":    func(int, int) bool { return true },
		"all of one tenant":     func(flow, _ int) bool { return flow == 0 },
		"all but of one tenant": func(flow, _ int) bool { return flow > 0 },
	} {
		w := sixTenants(t)
		began := w.now
		for f := range 6 {
			flow := id("t%d", f)
			for i, units := 0, int64(0); units < 1500; i++ {
				cost := int64(1)
				if heavy(f, i) {
					cost = 20
				}
				units += cost
				w.bring(line.Job{ID: id("%s-%d", flow, i), Lane: flow + "|global:,tenant:" + flow,
					Costs: []int64{cost, cost}, Share: 1})
			}
		}
		w.run(began + 11*minute)
		w.check()
		units := w.units(began+minute, began+11*minute)
		index := w.fairness(began+minute, began+11*minute, alike)
		t.Logf("%s: jain %.5f, %d units of 6000, looks per start %.2f", name, index, sum(units),
			float64(w.line.Looks)/float64(len(w.served)))
		if index < 0.999 {
			t.Errorf("%s: jain %.5f: %v", name, index, units)
		}
		if sum(units) < 6000*97/100 {
			t.Errorf("%s: %d units of 6000 started", name, sum(units))
		}
	}
}

// TestSharesAreOfWhatIsTaken: who is charged five times what a job takes, and settles it,
// starts as many jobs as who is charged what it takes, or some fewer: others are booked before
// a job is settled.
func TestSharesAreOfWhatIsTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, settingsOf(map[string][]line.Limit{"global": {per(20, 10*second)}}))
	began := w.now
	w.actual = func(j *worldJob) int64 { return 1 }
	for i := range 400 {
		w.arrive(id("a%d", i), "a", []string{"global:"}, 5)
		w.arrive(id("b%d", i), "b", []string{"global:"}, 1)
	}
	w.run(began + 200*second)
	w.check()
	jobs := make(map[string]int)
	for _, j := range w.served {
		jobs[j.flow()]++
	}
	t.Logf("jobs of one unit in the end: %v", jobs)
	if a, b := float64(jobs["a"]), float64(jobs["b"]); a < 0.8*b || b < 0.8*a || a+b < 350 {
		t.Errorf("one unit each in the end, and %v have started", jobs)
	}
}

// TestManyRefundsGiveNoTurns: jobs that found room at once moved no tag, so what is given
// back for them, however many they are, does not let their tenant start before others.
func TestManyRefundsGiveNoTurns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, settingsOf(map[string][]line.Limit{
		"global": {{Units: 500, Span: line.Window(10 * second), Precision: 1}},
	}))
	for i := range 50 {
		w.arrive(id("first%d", i), "a", []string{"global:"}, 10)
	}
	w.run(w.now + second)
	for i := range 500 {
		w.arrive(id("a%d", i), "a", []string{"global:"}, 1)
	}
	for i := range 500 {
		w.arrive(id("b%d", i), "b", []string{"global:"}, 1)
	}
	w.run(w.now + second)
	for _, j := range w.served {
		w.line.Settle(w.now, w.settings, line.Grant{ID: j.job.ID, Lane: j.job.Lane, Costs: j.job.Costs,
			Start: j.started, Decided: j.started, Waited: j.started > j.arrived}, []int64{1}, hour, false)
	}
	w.run(w.now + 5*second)
	a, b := -50, 0
	for _, j := range w.served {
		if j.flow() == "a" {
			a++
		} else {
			b++
		}
	}
	t.Logf("started of what 50 refunds made room for: %d of a, %d of b", a, b)
	if a > b+2*9 || a+b < 450 {
		t.Errorf("a started %d and b %d, want about the same, 450 in all", a, b)
	}
}

// TestNamesDoNotDecide: flows with one job each, that come one after the other, start in
// the order in which they came.
func TestNamesDoNotDecide(t *testing.T) {
	t.Parallel()
	w := newWorld(t, settingsOf(map[string][]line.Limit{"global": {per(60, minute)}}))
	w.maxWait = 0
	began, n := w.now, 0
	var came []string
	for w.now < began+4*minute {
		for range 2 {
			flow := id("%c%d", 'z'-rune(n*7%26), n)
			came = append(came, flow)
			w.arrive(flow, flow, []string{"global:"}, 1)
			n++
		}
		w.run(w.now + second)
	}
	w.run(began + 10*minute)
	w.check()
	slices.SortStableFunc(w.served, func(a, b *worldJob) int { return int(a.started - b.started) })
	place := make(map[string]int)
	for i, flow := range came {
		place[flow] = i
	}
	furthest := 0
	for i, j := range w.served {
		furthest = max(furthest, i-place[j.job.ID], place[j.job.ID]-i)
	}
	t.Logf("%d of %d started, none further than %d places from the order of arrival", len(w.served), n, furthest)
	if furthest > 1 || len(w.served) < n {
		t.Errorf("a job started %d places from the order of arrival; %d of %d started", furthest, len(w.served), n)
	}
}

// TestFlowsOfDrawnWeights: flows whose jobs weigh up to half of the limit, or all the same,
// go on having a good part of their share, on the average nine tenths at least; nobody
// starves. It is not all of it: what fits beside a claim is started, so those with light
// jobs have more.
func TestFlowsOfDrawnWeights(t *testing.T) {
	t.Parallel()
	n, mean := longtest.Of(20, 200), 0.0
	for seed := range uint64(n) {
		r := rand.New(rand.NewPCG(seed, 7))
		units := 5 + r.Int64N(100)
		w := newWorld(t, settingsOf(map[string][]line.Limit{
			"global": {{Units: units, Span: line.Window(10 * second), Precision: 1}},
		}))
		if seed%2 == 0 { // the window frees evenly
			for i := range units {
				w.arrive(id("first%d", i), "first", []string{"global:"}, 1)
				w.run(w.now + 10*second/units)
			}
		}
		began, shares, all := w.now, make(map[string]float64), 0.0
		for f := range 2 + r.IntN(4) {
			flow, most, share, same := id("t%d", f), 1+r.Int64N(max(1, units/2)), 1+r.Int64N(5), r.IntN(2) == 0
			shares[flow] = float64(share)
			all += float64(share)
			for i, sum := 0, int64(0); sum < 60*units; i++ {
				cost := 1 + r.Int64N(most)
				if same {
					cost = most
				}
				sum += cost
				w.bring(line.Job{ID: id("%s-%d", flow, i), Lane: flow + "|global:", Costs: []int64{cost}, Share: share})
			}
		}
		w.run(began + 400*second)
		w.check()
		had := w.units(began+20*second, began+400*second)
		least := 1.0
		for flow, share := range shares {
			least = min(least, float64(had[flow])/float64(sum(had))*all/share)
		}
		if used := float64(sum(had)) / float64(38*units); least < 0.25 || used < 0.7 {
			t.Errorf("seed %d: of %d units by shares %v started %v, used to %.2f", seed, units, shares, had, used)
		}
		mean += least / float64(n)
	}
	t.Logf("the flow that has least has %.3f of its share on the average", mean)
	if mean < 0.9 {
		t.Errorf("the flow that has least has %.3f of its share on the average", mean)
	}
}
