package line_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
)

// TestRunningHistories: the histories of TestRandomHistories with limits on what runs at once
// beside the windows, jobs that end sooner and later, renew in time and late, die, and cool
// down, and a clock that steps back:
//   - at no instant are there more units than the limit of jobs that have started, not ended,
//     and been heard of within a lease, and of those that cool down, by an account of its own,
//   - what a job is told when it renews or ends agrees with that account: it held its place
//     while its lease was not over, and not when it had been over for a while,
//   - and what those histories ask: windows, no waits with room, all starts in the end.
func TestRunningHistories(t *testing.T) {
	t.Parallel()
	var sum tally
	for seed := range uint64(longtest.Of(8, 400)) {
		h := drawRunning(t, seed)
		t.Run(id("seed %d", seed), func(t *testing.T) {
			h.t = t
			disturbed, steps := h.r.IntN(2) == 0, h.actual == nil && h.r.IntN(2) == 0
			until := h.now + h.skew + h.longs
			for h.now+h.skew < until {
				h.run(h.now + h.r.Int64N(second))
				h.lookUnlessStepped()
				for range h.r.IntN(h.load) {
					h.bring(h.drawJob())
				}
				if disturbed && h.r.IntN(20) == 0 {
					h.disturb()
				}
				if steps && h.r.IntN(100) == 0 {
					h.stepBack([]int64{milli, second, 20 * second, 70 * second, hour}[h.r.IntN(5)])
				}
			}
			h.calm()
			for range 600 {
				h.run(h.now + 100*milli)
				h.lookUnlessStepped()
			}
			h.drain()
			sum.add(h.beside.tally)
		})
	}
	t.Logf("%+v", sum)
	if sum.full == 0 || sum.renewed == 0 || sum.lapsed == 0 || sum.cooled == 0 || sum.late == 0 || sum.twice == 0 {
		t.Error("these histories do not have everything that they are about")
	}
}

// drawRunning is a history in which some scopes limit what runs at once.
func drawRunning(t testing.TB, seed uint64) *history {
	h := drawHistory(t, seed)
	r := rand.New(rand.NewPCG(seed, 2))
	lease := []int64{second, 5 * second, 30 * second, 10 * minute}[r.IntN(4)]
	h.longs = min(h.longs, 2*minute)
	if !longtest.Full() { // days of virtual time until all have started
		for name, scope := range h.settings.Scopes {
			scope.Limits = slices.DeleteFunc(scope.Limits, func(l line.Limit) bool { return l.Length > hour })
			h.settings.Scopes[name] = scope
		}
	}
	limited := 0
	for _, name := range []string{"domain", "global", "tenant"} {
		if r.IntN(3) == 0 && (name != "tenant" || limited > 0) {
			continue
		}
		limited++
		scope := h.settings.Scopes[name]
		own := max(100*milli, lease/(1+r.Int64N(3)))
		limit := line.Limit{Units: 1 + r.Int64N(10), Span: line.Lease(own), Precision: own / 1000}
		if name == "global" {
			limit.Units *= 3
		}
		scope.Limits = append([]line.Limit{limit}, scope.Limits...)
		h.settings.Scopes[name] = scope
	}
	h.beside = &handlers{world: h.world, r: r, typical: lease / []int64{100, 10, 1}[r.IntN(3)],
		places: make(map[string][]*placeHeld)}
	return h
}

// stepBack has the clock step back. Who waits for a slot does so by a clock that does not,
// and all look at the line soon.
func (h *history) stepBack(by int64) {
	h.now, h.skew, h.pulled = h.now-by, h.skew+by, 0
	for _, id := range h.back {
		h.jobs[id].comes -= by
	}
	h.pull()
}

// lookUnlessStepped looks at who waits with room. After a step back the time of a scope key
// may begin anew when all in it is over, sooner than the line was to look at it.
func (h *history) lookUnlessStepped() {
	if h.skew == 0 {
		h.look()
	}
}

// tally is what has happened to the jobs of histories.
type tally struct {
	runs    int // jobs
	full    int // grants with which all places were taken
	renewed int
	lapsed  int // jobs that died, or were told that their lease was over
	late    int // renewals after the lease
	cooled  int
	twice   int // jobs that ended twice
}

func (t *tally) add(o tally) {
	t.runs, t.full, t.renewed, t.lapsed = t.runs+o.runs, t.full+o.full, t.renewed+o.renewed, t.lapsed+o.lapsed
	t.late, t.cooled, t.twice = t.late+o.late, t.cooled+o.cooled, t.twice+o.twice
}

// handlers run the jobs of a world, and keep account of who has a place by what they did
// themselves. All times in it are of a clock that does not step back.
type handlers struct {
	*world
	r       *rand.Rand
	typical int64 // how long a job takes
	events  []event
	places  map[string][]*placeHeld // by scope key
	lasts   int64                   // the longest that a job may run
	tally   tally
}

type event struct {
	at int64
	do func()
}

// placeHeld are the units that a job has under a running limit, from its start until it has
// ended or its lease is over.
type placeHeld struct {
	key                       string
	units, lease, from, until int64
	over                      bool
}

// running is one job that runs.
type running struct {
	grant  line.Grant
	places []*placeHeld
	ends   int64 // when its handler returns
}

func (h *handlers) time() int64 { return h.now + h.skew }

func (h *handlers) at(at int64, do func()) {
	i, _ := slices.BinarySearchFunc(h.events, at, func(e event, at int64) int {
		if e.at <= at {
			return -1
		}
		return 1
	})
	h.events = slices.Insert(h.events, i, event{at, do})
}

// next is when the next of it happens by the world's clock, or until.
func (h *handlers) next(until int64) int64 {
	if h == nil || len(h.events) == 0 {
		return until
	}
	return h.events[0].at - h.skew
}

// longest is how long a job may run at most.
func (h *handlers) longest() int64 {
	if h == nil {
		return 0
	}
	return h.lasts
}

func (h *handlers) happen() bool {
	if h == nil || len(h.events) == 0 || h.events[0].at > h.time() {
		return false
	}
	e := h.events[0]
	h.events = h.events[1:]
	e.do()
	return true
}

// began notes the places of a job that was granted, looks whether there were that many, and
// draws what becomes of it.
func (h *handlers) began(j *worldJob, at int64) {
	from := at + h.skew
	run := &running{grant: line.Grant{ID: j.job.ID, Lane: j.job.Lane, Costs: j.job.Costs, Start: at}}
	for i, key := range j.keys {
		limit := h.atOnce(key)
		if limit == nil {
			continue
		}
		p := &placeHeld{key: key, units: j.job.Costs[i], lease: limit.Length, from: from, until: from + limit.Length}
		run.places = append(run.places, p)
		h.places[key] = append(slices.DeleteFunc(h.places[key], func(p *placeHeld) bool { return p.until <= h.time() }), p)
		h.check(key, from, limit.Units)
	}
	if len(run.places) == 0 {
		return
	}
	h.tally.runs++
	run.ends = from + h.r.Int64N(2*h.typical)
	if h.r.IntN(20) == 0 {
		run.ends += 2 * run.shortest()
	}
	h.lasts = max(h.lasts, run.ends-from+3*run.longest())
	switch h.r.IntN(20) {
	case 0: // its process dies
		h.tally.lapsed++
		if h.r.IntN(2) == 0 { // and somebody ends it long after
			h.at(run.ends+2*run.longest(), func() { h.done(run) })
		}
	case 1: // it renews once, after its lease, and so may have lost its place
		run.ends += 3 * run.longest()
		h.at(from+run.shortest()+h.r.Int64N(run.shortest()), func() { h.renew(run) })
	default:
		h.next3(run, from)
	}
}

// next3 has a job end, or renewed a third of its lease later.
func (h *handlers) next3(run *running, at int64) {
	if again := at + run.shortest()/3; again < run.ends {
		h.at(again, func() { h.renew(run) })
		return
	}
	h.at(run.ends, func() { h.done(run) })
}

func (h *handlers) atOnce(key string) *line.Limit {
	for _, limit := range h.limits(key) {
		if limit.Kind == line.Running {
			return &limit
		}
	}
	return nil
}

func (r *running) shortest() int64 {
	lease := r.places[0].lease
	for _, p := range r.places {
		lease = min(lease, p.lease)
	}
	return lease
}

func (r *running) longest() int64 {
	lease := int64(0)
	for _, p := range r.places {
		lease = max(lease, p.lease)
	}
	return lease
}

// check looks at all instants from one on: the places are at most so many.
func (h *handlers) check(key string, from, most int64) {
	h.t.Helper()
	for _, at := range h.places[key] {
		if at.from < from {
			continue
		}
		if taken := h.taken(key, at.from); taken > most {
			h.t.Fatalf("%d units run at %d under %s, more than %d", taken, at.from, key, most)
		} else if taken == most {
			h.tally.full++
		}
	}
}

func (h *handlers) taken(key string, at int64) int64 {
	units := int64(0)
	for _, p := range h.places[key] {
		if p.from <= at && at < p.until {
			units += p.units
		}
	}
	return units
}

// told compares what a job was told of its places with the account.
func (h *handlers) told(verb string, run *running, held bool) {
	h.t.Helper()
	// whether they count still; up to two thousandths of the lease longer, or while time stands still
	holds, surely := true, true
	for _, p := range run.places {
		holds = holds && !p.over && h.time() < p.until
		surely = surely && !p.over && h.time() < p.until+2*(p.lease/1000)+h.skew
	}
	if held && !surely || !held && holds {
		h.t.Fatalf("%s of %s at %d, %d us before the end of its lease: held %t", verb, run.grant.ID, h.time(),
			run.places[0].until-h.time(), held)
	}
}

func (h *handlers) renew(run *running) {
	h.t.Helper()
	if h.time() >= run.places[0].from+run.shortest() && run.places[0].until == run.places[0].from+run.places[0].lease {
		h.tally.late++
	}
	held := h.line.Renew(h.now, h.settings, []line.Grant{run.grant})[0]
	h.told("a renewal", run, held)
	for _, p := range run.places {
		if held {
			p.until = h.time() + p.lease
			h.keep(p)
		} else {
			p.until, p.over = min(p.until, h.time()), true
		}
	}
	if !held {
		h.tally.lapsed++
		return
	}
	h.tally.renewed++
	h.next3(run, h.time())
}

// keep has a place in the account that may have been taken for lapsed by a little.
func (h *handlers) keep(p *placeHeld) {
	h.t.Helper()
	if !slices.Contains(h.places[p.key], p) {
		h.places[p.key] = append(h.places[p.key], p)
	}
	if most := h.atOnce(p.key).Units; h.taken(p.key, h.time()) > most && h.own[p.key] == nil && !h.sank(p.key) {
		h.t.Fatalf("%d units run at %d under %s after a renewal, more than %d", h.taken(p.key, h.time()), h.time(),
			p.key, most)
	}
}

// sank tells whether a scope key may hold more than its limit since that was higher before.
func (h *handlers) sank(key string) bool {
	_, changed := h.own[key]
	return changed
}

func (h *handlers) done(run *running) {
	h.t.Helper()
	cooldowns := make(map[string]int64)
	for _, p := range run.places {
		if scope, _, _ := strings.Cut(p.key, ":"); h.r.IntN(4) == 0 {
			cooldowns[scope] = h.r.Int64N(p.lease)
		}
	}
	held := h.line.Done(h.now, h.settings, []line.Grant{run.grant}, cooldowns)[0]
	h.told("the end", run, held)
	for _, p := range run.places {
		p.over = true
		if !held {
			p.until = min(p.until, h.time())
			continue
		}
		scope, _, _ := strings.Cut(p.key, ":")
		p.until = h.time() + min(cooldowns[scope], p.lease)
		if cooldowns[scope] > 0 {
			h.tally.cooled++
		}
	}
	if h.r.IntN(10) == 0 {
		h.tally.twice++
		verb := func() bool { return h.line.Done(h.now, h.settings, []line.Grant{run.grant}, nil)[0] }
		if h.r.IntN(2) == 0 {
			verb = func() bool { return h.line.Renew(h.now, h.settings, []line.Grant{run.grant})[0] }
		}
		if verb() {
			h.t.Fatalf("%s ended twice", run.grant.ID)
		}
	}
}

// TestNothingIsGrantedAheadOfALease: a place that only the end of a lease makes free is
// granted to nobody before that, however long a job may wait in place: who has it may renew.
func TestNothingIsGrantedAheadOfALease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, settingsOf(map[string][]line.Limit{
		"tenant": {{Units: 1, Span: line.Lease(second), Precision: milli}},
	}))
	w.gone = func(*worldJob) bool { return true } // who is booked is asked for here
	began := w.now
	a := w.arrive("a", "a", []string{"tenant:x"}, 1)
	w.now = began + 900*milli
	b := w.arrive("b", "b", []string{"tenant:x"}, 1)
	if a.started == 0 || b.started != 0 || b.slot != began+second+milli {
		t.Fatalf("a started at %d, b at %d, its slot is %d", a.started, b.started, b.slot-began)
	}
	grant := []line.Grant{{ID: "a", Lane: a.job.Lane, Costs: a.job.Costs, Start: began}}
	w.now = began + 950*milli
	if !w.line.Renew(w.now, w.settings, grant)[0] {
		t.Error("a lost its place within its lease")
	}
	w.now = b.slot
	w.ask(b)
	if b.started != 0 {
		t.Errorf("b started at %d beside a", b.started-began)
	}
	w.now = began + 1500*milli
	w.line.Done(w.now, w.settings, grant, nil)
	if w.ask(b); b.started != b.slot {
		t.Errorf("b started at %d, want at its slot, %d, when a had ended", b.started-began, b.slot-began)
	}
}

// TestStartAheadHasItsPlaceAlready: a job that was granted a start to come has its place from
// then on, beside those who may renew until that start.
func TestStartAheadHasItsPlaceAlready(t *testing.T) {
	t.Parallel()
	w := newWorld(t, settingsOf(map[string][]line.Limit{
		"tenant": {{Units: 2, Span: line.Lease(2 * second), Precision: 2 * milli}},
		"domain": {{Units: 1, Span: line.Window(2500 * milli), Precision: 1}},
	}))
	began := w.now
	a := w.arrive("a", "a", []string{"domain:d", "tenant:x"}, 1)
	w.now = began + 1900*milli
	w.maxWait = second
	ahead := w.arrive("ahead", "a", []string{"domain:d", "tenant:x"}, 1)
	if ahead.started != began+2500*milli {
		t.Fatalf("the second starts at %d", ahead.started-began)
	}
	if third := w.arrive("third", "b", []string{"tenant:x"}, 1); third.started != 0 || third.slot < began+2*second {
		t.Errorf("a third starts at %d, or has a slot at %d, beside one that runs and one that will",
			third.started-began, third.slot-began)
	}
	grant := []line.Grant{{ID: "a", Lane: a.job.Lane, Costs: a.job.Costs, Start: began}}
	if !w.line.Renew(w.now, w.settings, grant)[0] {
		t.Error("the first lost its place")
	}
}

// TestPlaceOfATimeThatBeganAnew: the clock steps back far, and all that a scope key has
// counted is over: its time begins anew, before the sub-window of a job of then. That job has
// lost its place all the same.
func TestPlaceOfATimeThatBeganAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, settingsOf(map[string][]line.Limit{
		"tenant": {{Units: 1, Span: line.Lease(second), Precision: milli}},
	}))
	a := w.arrive("a", "a", []string{"tenant:x"}, 1)
	grant := []line.Grant{{ID: "a", Lane: a.job.Lane, Costs: a.job.Costs, Start: w.now}}
	w.now -= hour
	w.line.Pull(w.now, w.settings, 50, 200)
	// looks at it
	w.line.Reserve(w.now, w.settings, []line.Job{{ID: "plan", Lane: "p|tenant:x", Costs: []int64{1}, Latest: 0}})
	w.now += 10 * second
	if b := w.arrive("b", "b", []string{"tenant:x"}, 1); b.started == 0 {
		t.Fatal("b did not start after the lease")
	}
	if w.line.Renew(w.now, w.settings, grant)[0] {
		t.Error("a renewed a place that is another's")
	}
}

// holds has a job of a flow hold a place under two leases, as two configurations ask for them, while others
// stand there: what its flow is charged by time can be read off its tag.
func holds(t *testing.T) (*world, []line.Grant) {
	limit := func(lease int64) map[string][]line.Limit {
		return map[string][]line.Limit{"global": {{Units: 1, Span: line.Lease(lease), Precision: lease / 1000}}}
	}
	w := newWorld(t, settingsOf(limit(minute)))
	w.settings.Timed = true
	w.arrive("before", "other", []string{"global:"}, 1)
	w.line.Done(w.now, w.settings, []line.Grant{{ID: "before", Start: w.now}}, map[string]int64{"global": 5 * second})
	w.now += 10 * second
	two := settingsOf(limit(hour))
	two.Scopes["global"] = line.Scope{Mode: line.Enforce,
		Limits: append(limit(minute)["global"], limit(hour)["global"]...)}
	two.Timed = true
	w.settings = two
	j := w.arrive("long", "a", []string{"global:"}, 1)
	if j.started == 0 {
		t.Fatal("the first job did not start")
	}
	w.arrive("waits", "b", []string{"global:"}, 1)
	if standing := w.line.Standing("global:"); len(standing) != 1 {
		t.Fatalf("%q stand, want b", standing)
	}
	return w, []line.Grant{{ID: "long", Lane: j.job.Lane, Costs: j.job.Costs, Start: j.started}}
}

// TestTimeIsPaidOnce: a flow pays once for the time that its job holds a place, also where the scope key has
// two leases.
func TestTimeIsPaidOnce(t *testing.T) {
	t.Parallel()
	w, grant := holds(t)
	before := w.line.Tag("global:", "a")
	w.now += 21 * second
	if !w.line.Renew(w.now, w.settings, grant)[0] {
		t.Fatal("the job has lost its place")
	}
	if paid := w.line.Tag("global:", "a") - before; math.Abs(paid-20) > 1e-3 {
		t.Errorf("20 s beyond the first are paid as %.3f s", paid)
	}
}

// TestNoTimeIsGivenBackAfterAStepBack: of the second that a start is charged for a flow gets back what its job
// did not hold its place, and no more, however far the clock has stepped back.
func TestNoTimeIsGivenBackAfterAStepBack(t *testing.T) {
	t.Parallel()
	w, grant := holds(t)
	before := w.line.Tag("global:", "a")
	w.now += 21 * second
	w.line.Renew(w.now, w.settings, grant)
	w.now -= 15 * second
	if !w.line.Done(w.now, w.settings, grant, nil)[0] {
		t.Fatal("the job has lost its place")
	}
	if paid := w.line.Tag("global:", "a") - before; paid < 19 {
		t.Errorf("of 20 s that were paid %.3f are left, want 19 at least", paid)
	}
}
