package simulation_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// plan is everything that is drawn for one run, before the run begins: the order in which its goroutines run does not
// change the plan.
type plan struct {
	seed      uint64
	kind      kind
	span      time.Duration // the time in which jobs arrive and faults happen
	scopes    []throttle.Scope
	options   throttle.Options
	tenants   []string
	domains   []string
	jobs      []*job
	processes []process // the processes that run from the beginning
	faults    []fault
	said      []said
	running   bool // there are limits on what runs at once
	bounded   bool // lines may only get so long
	scheduled bool // there are quotas or hours
	advances  bool // some processes have advances
	begins    time.Time
}

// kind is how rough a run is.
type kind int

const (
	calm  kind = iota // no faults
	rough             // some of everything
	even              // no faults, one burst, one limit for all: the shares are measured
)

func (k kind) String() string { return [...]string{"calm", "rough", "even"}[k] }

// process is one asynq server with a Shaper and a Throttle of its own.
type process struct {
	begins       time.Duration
	concurrency  int
	maxWait      time.Duration
	check, delay time.Duration // asynq's intervals
	retry        time.Duration // how long asynq waits after a failure
	advance, lag time.Duration // used in worlds with advances only
}

// job is one task and all that its handler will do.
type job struct {
	id             string
	tenant, domain string
	weight         int64
	costs          map[string]int64 // the costs in scopes where it takes other units than the weight
	priority       int
	arrives        time.Duration
	how            how
	retries        int
	handle         time.Duration
	outcomes       []outcome // the outcomes of the handler's calls, one after the other; later calls succeed

	said map[string]throttle.Report // what the upstream of each scope says with each call
}

// how is the way in which a job is enqueued.
type how int

const (
	plain   how = iota // enqueued by asynq alone
	spare              // made by worker.NewTask
	planned            // enqueued by worker.Client
)

// outcome is what one call of a handler does.
type outcome struct {
	does  deed
	units int64            // the units for which the handler settles
	costs map[string]int64 // the costs for which it settles instead, by scope
	wait  time.Duration    // the wait that the upstream asks for
	scope string           // the scope for which it asks
}

type deed int

const (
	succeeds deed = iota
	fails
	panics
	waits     // the upstream asks to wait
	untouched // the call fails before the upstream was touched
	settles   // the call settles and succeeds
	skips     // the call fails for good
)

func (d deed) String() string {
	return [...]string{"succeeds", "fails", "panics", "waits", "untouched", "settles", "skips"}[d]
}

// dice draws.
type dice struct{ *rand.Rand }

func (d dice) chance(p float64) bool { return d.Float64() < p }

func (d dice) between(low, high time.Duration) time.Duration {
	return (low + time.Duration(d.Float64()*float64(high-low))).Truncate(time.Microsecond)
}

func (d dice) count(low, high int) int { return low + d.IntN(high-low+1) }

func one[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }

// base is the default of how long the arrivals of a run last, in virtual time.
const base = 72 * time.Second

func draw(seed uint64, span time.Duration) *plan {
	d := dice{rand.New(rand.NewPCG(seed, 0x5113))}
	p := &plan{seed: seed, span: span}
	p.kind = one(d, calm, calm, even, rough, rough, rough, rough, rough)
	for i := range d.count(1, 5) {
		p.tenants = append(p.tenants, fmt.Sprintf("t%d", i))
	}
	if p.kind == even {
		p.tenants = p.tenants[:1:1]
		for i := range d.count(1, 3) {
			p.tenants = append(p.tenants, fmt.Sprintf("t%d", i+1))
		}
	} else {
		for i := range d.count(0, 3) {
			p.domains = append(p.domains, fmt.Sprintf("d%d.example", i))
		}
	}
	p.drawJobs(d)
	if more := (dice{rand.New(rand.NewPCG(seed, 0x5117))}); more.chance(0.5) {
		p.drawCosts(more)
	}
	p.drawScopes(d)
	p.forgetCosts()
	p.drawOptions(d)
	p.drawProcesses(d)
	if p.kind == rough {
		p.drawFaults(d)
	}
	if more := (dice{rand.New(rand.NewPCG(seed, 0x5114))}); p.kind != even && more.chance(0.5) {
		p.drawRunning(more)
	}
	if more := (dice{rand.New(rand.NewPCG(seed, 0x5115))}); p.kind != even && more.chance(0.5) {
		p.drawFollowing(more)
	}
	if more := (dice{rand.New(rand.NewPCG(seed, 0x5116))}); more.chance(0.5) {
		p.drawPriorities(more)
	}
	if more := (dice{rand.New(rand.NewPCG(seed, 0x5118))}); p.kind != even && more.chance(0.5) {
		p.drawBounds(more)
	}
	if more := (dice{rand.New(rand.NewPCG(seed, 0x511a))}); p.kind != even && !p.running && more.chance(*advanced) {
		p.drawAdvances(more)
	}
	if more := (dice{rand.New(rand.NewPCG(seed, 0x5119))}); p.kind != even && more.chance(*scheduled) {
		p.drawSchedule(more)
	}
	return p
}

// drawPriorities draws the jobs' priorities, and the part that is left to lower ones.
func (p *plan) drawPriorities(d dice) {
	p.options.PriorityFloor = one(d, 0, 0, 0.25, 0.5)
	for _, j := range p.jobs {
		j.priority = one(d, 0, 0, 1, 2)
	}
}

func (p *plan) drawJobs(d dice) {
	n := int(float64(d.count(30, 130)) * float64(p.span) / float64(base))
	heavy := one[int64](d, 1, 1, 5, 20)
	troubles := one(d, 0, 0.05, 0.2)
	if p.kind == even {
		troubles = 0
	}
	slow := one(d, 20*time.Millisecond, 100*time.Millisecond, time.Second, 5*time.Second)
	for len(p.jobs) < n {
		burst, at := 1, d.between(0, p.span)
		if d.chance(0.2) {
			burst = d.count(2, max(2, n/3))
		}
		way, tenant := one(d, plain, spare, spare, planned), one(d, p.tenants...)
		if p.kind == even {
			at, burst, way, tenant = 0, n, spare, ""
		}
		for range min(burst, n-len(p.jobs)) {
			j := &job{
				id: fmt.Sprintf("j%05d", len(p.jobs)), tenant: tenant, weight: d.Int64N(3) + 1, arrives: at, how: way,
				retries: one(d, 0, 1, 3, 25, 25, 25), handle: d.between(time.Millisecond, slow),
			}
			if tenant == "" || d.chance(0.1) {
				j.tenant = one(d, p.tenants...)
			}
			if d.chance(0.1) {
				j.weight = heavy
			}
			if len(p.domains) > 0 && d.chance(0.8) {
				j.domain = one(d, p.domains...)
			}
			if j.how == plain && j.retries == 0 && d.chance(0.8) {
				j.retries = 25 // tasks that wait inside their handler hold up the others
			}
			for d.chance(troubles) {
				j.outcomes = append(j.outcomes, p.drawOutcome(d, j))
			}
			p.jobs = append(p.jobs, j)
		}
	}
	slices.SortStableFunc(p.jobs, func(a, b *job) int { return int(a.arrives - b.arrives) })
}

func (p *plan) drawOutcome(d dice, j *job) outcome {
	o := outcome{does: one(d, fails, fails, fails, panics, waits, untouched, settles, settles, settles, skips)}
	switch o.does {
	case waits:
		o.wait, o.scope = d.between(500*time.Millisecond, 8*time.Second), "tenant"
		if j.domain != "" && d.chance(0.5) {
			o.scope = "domain"
		}
	case settles:
		o.units = d.Int64N(2*j.weight + 1)
	}
	return o
}

// calls returns how often a job's handler is called if nothing goes wrong.
func (j *job) calls() int {
	state := progress{job: j}
	n := 0
	for !state.ended {
		state.advance()
		n++
	}
	return n
}

// demand returns how many units of a scope key all jobs ask for.
func (p *plan) demand(scope, key string) (units int64) {
	for _, j := range p.jobs {
		if j.key(scope) == key && (scope == throttle.Global || key != "") {
			units += j.cost(scope) * int64(j.calls())
			for _, o := range j.outcomes {
				units += max(0, j.actual(o, scope)-j.cost(scope))
			}
		}
	}
	return units
}

// key returns a job's key in a scope.
func (j *job) key(scope string) string {
	switch scope {
	case "tenant":
		return j.tenant
	case "domain":
		return j.domain
	}
	return ""
}

// keys returns the keys of a scope.
func (p *plan) keys(scope string) []string {
	switch scope {
	case "tenant":
		return p.tenants
	case "domain":
		return p.domains
	}
	return []string{""}
}

func (p *plan) drawScopes(d dice) {
	if p.kind == even {
		p.scopes = []throttle.Scope{{Name: throttle.Global, Limits: p.drawLimits(d, throttle.Global)[:1]}, {Name: "tenant"}}
		return
	}
	if d.chance(0.8) {
		p.scopes = append(p.scopes, throttle.Scope{Name: throttle.Global, Limits: p.drawLimits(d, throttle.Global)})
	}
	tenant := throttle.Scope{Name: "tenant"}
	if len(p.scopes) == 0 || d.chance(0.8) {
		tenant.Limits = p.drawLimits(d, "tenant")
	}
	p.scopes = append(p.scopes, tenant)
	if len(p.domains) > 0 {
		p.scopes = append(p.scopes, throttle.Scope{Name: "domain", Limits: p.drawLimits(d, "domain"), Optional: true})
	}
	d.Shuffle(len(p.scopes), func(i, j int) { p.scopes[i], p.scopes[j] = p.scopes[j], p.scopes[i] })
}

// drawLimits draws limits under which the busiest key's work takes about as long as the
// jobs take to arrive.
func (p *plan) drawLimits(d dice, scope string) []throttle.Limit {
	var busiest int64
	for _, key := range p.keys(scope) {
		busiest = max(busiest, p.demand(scope, key))
	}
	windows := []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second,
		10 * time.Second, 20 * time.Second}
	d.Shuffle(len(windows), func(i, j int) { windows[i], windows[j] = windows[j], windows[i] })
	var limits []throttle.Limit
	for _, window := range windows[:one(d, 1, 1, 2, 3)] {
		takes := d.between(p.span/4, p.span)
		limit := throttle.Limit{Units: max(1, p.heaviest(scope), int64(float64(busiest)*float64(window)/float64(takes))+1),
			Window: window}
		limit.Precision = p.drawPrecision(d, window)
		limits = append(limits, limit)
	}
	return limits
}

func (p *plan) drawPrecision(d dice, window time.Duration) time.Duration {
	switch d.IntN(5) {
	case 0:
		return throttle.Exact
	case 1:
		return (window / time.Duration(d.count(2, 30))).Truncate(time.Microsecond)
	}
	return 0
}

func (p *plan) drawOptions(d dice) {
	p.options = throttle.Options{
		Grace:     one(d, 0, 0, time.Second, 20*time.Second),
		Lookahead: one(d, 0, 0, 200*time.Millisecond, 5*time.Second, 30*time.Second),
		Shares:    map[string]int{},
	}
	for _, tenant := range p.tenants {
		if d.chance(0.3) {
			p.options.Shares[tenant] = d.count(1, 5)
		}
	}
	if p.kind != even && d.chance(0.15) {
		p.options.FairScope = throttle.Global
	}
}

func (p *plan) drawProcesses(d dice) {
	for i := range d.count(1, 3) {
		next := drawProcess(d)
		if i > 0 {
			next.begins = d.between(0, p.span/2)
		}
		p.processes = append(p.processes, next)
	}
	if p.kind == even {
		p.processes = p.processes[:1]
		p.processes[0].concurrency, p.processes[0].begins = 64, 0
	}
}

func drawProcess(d dice) process {
	return process{
		concurrency: d.count(1, 8),
		maxWait:     one(d, 0, 0, 50*time.Millisecond, time.Second),
		check:       d.between(250*time.Millisecond, 500*time.Millisecond),
		delay:       d.between(500*time.Millisecond, time.Second),
		retry:       d.between(500*time.Millisecond, 3*time.Second),
	}
}
