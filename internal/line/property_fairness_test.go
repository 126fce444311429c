package line_test

import (
	"strings"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
)

// TestFairnessBound: while two flows f and m stand under one scope key, what they have been
// given there differs by no more than
//
//	|W_f/r_f - W_m/r_m| <= (1 + a_f) l_f/r_f + (1 + a_m) l_m/r_m
//
// in any interval, however heavy the jobs of third flows are: W is the units booked or
// granted, r the share, l the heaviest job, and a how many jobs of the flow can be booked
// out of its turn: one for each claim that it has, one that had its turn under this scope
// key and waits under another one, and one that was passed. With a = 0 this
// is the theorem on the fairness of start-time fair queueing (P. Goyal, H. Vin, H. Cheng,
// 1996, theorem 1).
//
// The proof: while a flow stands, its tag moves on by just what it is given. Nobody else is
// booked in turn whose tag is higher, so its tag is not before the virtual time, but for one
// job if it was passed. It is booked in turn only when its tag is the lowest, and
// so is not further than one job behind the virtual time then, and one more for each that is
// booked out of turn.
func TestFairnessBound(t *testing.T) {
	t.Parallel()
	tightest := 0.0
	for seed := range uint64(longtest.Of(10, 400)) {
		h := drawHistory(t, seed)
		h.actual = nil // the bound does not cover units that are given back
		g := &given{history: h, key: "global:", gave: make(map[string]float64), heaviest: make(map[string]float64),
			pairs: make(map[[2]string]*pair), passed: make(map[string]bool)}
		t.Run(id("seed %d", seed), func(t *testing.T) {
			h.t = t
			until := h.now + h.longs
			for h.now < until {
				g.run(h.now + h.r.Int64N(second))
				for range h.r.IntN(h.load) {
					job := h.drawJob()
					g.weighs(job)
					h.bring(job)
					g.note(h.jobs[job.ID])
				}
			}
		})
		tightest = max(tightest, g.tightest)
	}
	t.Logf("up to %.2f of the bound", tightest)
}

// given watches what flows are given under one scope key. It pulls one job at a time.
type given struct {
	*history
	key      string
	gave     map[string]float64 // to each flow, by its share
	heaviest map[string]float64
	pairs    map[[2]string]*pair
	passed   map[string]bool // flows that were passed
	tightest float64
}

// pair is two flows that stand under the scope key together.
type pair struct {
	low, high float64 // of the difference of what they were given, since then
	out       [2]int  // most jobs of each that could be booked out of turn
}

func (g *given) share(flow string) float64 { return float64(shareOf(flow)) }

func (g *given) cost(lane string, costs []int64) float64 {
	_, keys, _ := strings.Cut(lane, "|")
	for i, key := range strings.Split(keys, ",") {
		if key == g.key {
			return float64(costs[i])
		}
	}
	return 0
}

func (g *given) weighs(job line.Job) {
	flow := (&worldJob{job: job}).flow()
	g.heaviest[flow] = max(g.heaviest[flow], g.cost(job.Lane, job.Costs)/g.share(flow))
}

// note counts a job that was granted or booked at once.
func (g *given) note(j *worldJob) {
	if j.started > 0 || j.slot > 0 {
		g.gave[j.flow()] += g.cost(j.job.Lane, j.job.Costs) / g.share(j.flow())
	}
	g.compare()
}

// run goes on until an instant, one booking after the other. Pulls that book nobody end.
func (g *given) run(until int64) {
	idle := 0
	for g.now < until {
		next := until
		if len(g.back) > 0 {
			next = min(next, g.jobs[g.back[0]].comes)
		}
		if due := g.line.Next(); due != 0 {
			next = min(next, due)
		}
		g.now = max(g.now, next)
		if g.now >= until {
			return
		}
		if len(g.back) > 0 && g.jobs[g.back[0]].comes <= g.now {
			j := g.jobs[g.back[0]]
			g.back = g.back[1:]
			g.ask(j)
			g.compare()
			continue
		}
		if idle++; idle > 10_000 {
			g.t.Fatalf("10,000 pulls and nobody was booked\n%s", g.line.Dump(g.now))
		}
		for _, told := range g.line.Pull(g.now, g.settings, 1, 8).Booked {
			idle = 0
			j := g.jobs[told.ID]
			g.gave[j.flow()] += g.cost(told.Lane, j.job.Costs) / g.share(j.flow())
			g.booked(j, told.Slot)
		}
		g.compare()
		g.now++
	}
}

// compare holds the difference of each pair against the bound.
func (g *given) compare() {
	g.t.Helper()
	standing, out := make(map[string]bool), g.line.OutOfTurn(g.key)
	for _, flow := range g.line.Passed(g.key) {
		g.passed[flow] = true
	}
	for flow := range g.passed {
		out[flow]++
	}
	for _, flow := range g.line.Standing(g.key) {
		standing[flow] = true
	}
	for f := range standing {
		for m := range standing {
			if f >= m {
				continue
			}
			name, d := [2]string{f, m}, g.gave[f]-g.gave[m]
			p := g.pairs[name]
			if p == nil {
				p = &pair{low: d, high: d}
				g.pairs[name] = p
			}
			p.low, p.high = min(p.low, d), max(p.high, d)
			p.out[0], p.out[1] = max(p.out[0], out[f]), max(p.out[1], out[m])
			bound := float64(1+p.out[0])*g.heaviest[f] + float64(1+p.out[1])*g.heaviest[m] + 0.01
			g.tightest = max(g.tightest, (p.high-p.low)/bound)
			if p.high-p.low > bound {
				g.t.Fatalf("%s and %s differ by %.2f, more than %.2f, while both stand under %s\n%s", f, m,
					p.high-p.low, bound, g.key, g.line.Dump(g.now))
			}
		}
	}
	for name := range g.pairs {
		if !standing[name[0]] || !standing[name[1]] {
			delete(g.pairs, name)
		}
	}
}
