package throttle_test

import (
	stdcmp "cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestPropertyModel goes through random histories and compares the scripts with
// the model at every step. No window may be over its limit, by an independent
// look at the starts. Jobs come early, on time, late and never, one by one and in
// batches; several scopes, costs, limits and precisions; what is set at run time changes.
func TestPropertyModel(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		rapid.Check(t, func(t *rapid.T) { history(t, client) })
	})
}

// FuzzHistory lets the fuzzer look for such a history, on miniredis.
func FuzzHistory(f *testing.F) {
	client := miniClient(f)
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) { history(t, client) }))
}

func history(t *rapid.T, client *redis.Client) { t.Repeat(newMachine(t, client).actions()) }

func newMachine(t *rapid.T, client *redis.Client) *machine {
	h := &machine{
		t:       t,
		options: drawOptions(t),
		now:     time.UnixMicro(1_795_219_498_189_530),
		jobs:    make(map[string]throttle.Job),
		grants:  make(map[string]throttle.Reservation),
		starts:  make(map[string]spent),
		set:     newOverrides(),
		places:  make(map[string][]*heldPlace),
	}
	h.scopes = drawRunning(t, drawScopes(t), h.options.Lookahead)
	th := newThrottle(t, client, h.scopes, &h.options)
	th.TakeSteps(1_000_000) // the model counts none: TestAgree has calls that end before that
	h.redis = newScripted(th)
	h.model = throttletest.NewModel(h.scopes, h.options)
	return h
}

// actions are what may happen next in a history.
func (h *machine) actions() map[string]func(*rapid.T) {
	jobs, slots, grants := h.once(func() int { return len(h.ids) }), h.once(func() int { return len(h.slots) }),
		h.once(func() int { return len(h.correctable()) })
	return map[string]func(*rapid.T){
		"advance":      h.advance,
		"arrive":       h.arrive,
		"arrive ":      h.arrive, // twice as often
		"in a batch":   h.arriveTogether,
		"come back":    jobs(h.comeBack),
		"on time":      slots(h.comeOnTime),
		"on time ":     slots(h.comeOnTime),
		"cancel":       jobs(h.cancel),
		"leave":        jobs(h.leave),
		"pull":         h.pull,
		"pull ":        h.pull,
		"lines":        h.lines,
		"release":      grants(h.release),
		"peek":         h.peek,
		"usage":        h.usage,
		"count":        h.count,
		"settle":       grants(h.settle),
		"settle costs": grants(h.settleCosts),
		"refund":       grants(h.refund),
		"done":         grants(h.done),
		"done ":        grants(h.done),
		"renew":        grants(h.renew),
		"report":       h.report,
		"report ":      h.report,
		"pause":        h.pause,
		"resume":       h.resume,
		"limits":       h.setLimits,
		"reset":        h.resetLimits,
		"mode":         h.setMode,
	}
}

// once has a job arrive where there is nothing yet that an action needs: a fuzzer may draw
// nothing but such actions.
func (h *machine) once(there func() int) func(do func(*rapid.T)) func(*rapid.T) {
	return func(do func(*rapid.T)) func(*rapid.T) {
		return func(t *rapid.T) {
			if there() == 0 {
				h.arrive(t)
			} else {
				do(t)
			}
		}
	}
}

// drawOptions draws a lookahead without end, in which nobody waits in line, as often as
// short ones.
func drawOptions(t *rapid.T) throttle.Options {
	return throttle.Options{
		Grace: rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 5 * time.Second,
			time.Minute}).Draw(t, "grace"),
		Lookahead: rapid.SampledFrom([]time.Duration{maxWindow, 100 * time.Millisecond, time.Second,
			time.Second, 5 * time.Second, 20 * time.Second}).Draw(t, "lookahead"),
		FairScope:     rapid.SampledFrom([]string{"", "", "domain", throttle.Global}).Draw(t, "fair scope"),
		Shares:        map[string]int{"a": rapid.SampledFrom([]int{1, 2, 3}).Draw(t, "share"), "c": 2},
		Timeout:       30 * time.Second,
		PriorityFloor: rapid.SampledFrom([]float64{0, 0.25, 0.5, 0.01}).Draw(t, "priority floor"),
	}
}

// windows are those that limits have.
var windows = []time.Duration{time.Second, 5 * time.Second, 7 * time.Second, time.Minute, time.Hour, 24 * time.Hour}

func drawScopes(t *rapid.T) []throttle.Scope { return drawScopesOf(t, windows...) }

// drawScopesOf draws limits of these windows.
func drawScopesOf(t *rapid.T, windows ...time.Duration) []throttle.Scope {
	limits := drawLimit(windows, []int64{1, 2, 3, 5, 10, 30, 101, 1000, throttle.Unlimited})
	distinct := func(l throttle.Limit) time.Duration { return l.Window }
	var scopes []throttle.Scope
	for _, name := range []string{throttle.Global, "tenant", "domain"} {
		scopes = append(scopes, throttle.Scope{
			Name:     name,
			Limits:   rapid.SliceOfNDistinct(limits, 0, 3, distinct).Draw(t, name),
			Optional: name == "domain",
			Floor:    rapid.SampledFrom([]float64{0.1, 0.1, 0.5, 0}).Draw(t, "floor"),
		})
	}
	return scopes
}

// drawRunning puts limits on what runs at once beside some scopes' windows.
func drawRunning(t *rapid.T, scopes []throttle.Scope, lookahead time.Duration) []throttle.Scope {
	if lookahead > maxLease/2 {
		return scopes
	}
	for i := range scopes {
		if rapid.Bool().Draw(t, "limits what runs") {
			scopes[i].Limits = append(scopes[i].Limits, drawAtOnce(t, lookahead))
			scopes[i].Cooldown = rapid.SampledFrom([]time.Duration{0, 0, 700 * time.Millisecond}).Draw(t, "cool-down")
		}
	}
	return scopes
}

// maxLease is the longest that a running limit may have.
const maxLease = 24 * time.Hour

// drawAtOnce draws a running limit whose lease is long enough for the lookahead.
func drawAtOnce(t *rapid.T, lookahead time.Duration) throttle.Limit {
	return throttle.Limit{
		Units: rapid.SampledFrom([]int64{1, 2, 3, 5, 10, 30}).Draw(t, "at once"), Running: true,
		Lease: max(2*lookahead,
			rapid.SampledFrom([]time.Duration{time.Second, 5 * time.Second, 30 * time.Second}).Draw(t, "lease")),
	}
}

func drawLimit(windows []time.Duration, units []int64) *rapid.Generator[throttle.Limit] {
	return rapid.Custom(func(t *rapid.T) throttle.Limit {
		limit := throttle.Limit{
			Units:  rapid.SampledFrom(units).Draw(t, "units"),
			Window: rapid.SampledFrom(windows).Draw(t, "window"),
		}
		limit.Precision = rapid.SampledFrom(
			[]time.Duration{0, throttle.Exact, limit.Window / 20, limit.Window / 3, limit.Window}).Draw(
			t, "precision").Truncate(time.Microsecond)
		return limit
	})
}

// machine holds the scripts and the model side by side.
type machine struct {
	t       *rapid.T
	scopes  []throttle.Scope
	options throttle.Options
	redis   *scripted
	model   *throttletest.Model
	now     time.Time
	next    time.Time // when the line is to be pulled
	drawn   int
	ids     []string
	jobs    map[string]throttle.Job // by ID, as last asked for
	slots   []throttle.Reservation
	starts  map[string]spent                // by job and nonce
	grants  map[string]throttle.Reservation // the same
	set     overrides
	places  map[string][]*heldPlace
}

// heldPlace is what a grant holds of a running limit of a scope key, "scope:key", from its
// start until it has ended or its lease is over.
type heldPlace struct {
	id, name    string
	lease       time.Duration
	units       int64
	from, until time.Time
	sign        time.Time // the last of life
}

// spent is a start with what it took of scope keys, "scope:key", and the windows that
// counted it there.
type spent struct {
	at      time.Time
	units   map[string]int64
	windows map[string][]time.Duration
}

func (h *machine) advance(t *rapid.T) {
	step := rapid.OneOf(
		rapid.Int64Range(0, 1000),
		rapid.Int64Range(0, 2_000_000),
		rapid.Int64Range(0, 90_000_000),
		rapid.SampledFrom([]int64{1_000_000, 7_000_000, 60_000_000, 50_000, 3600_000_000, 86_400_000_000}),
	).Draw(t, "step")
	h.now = h.now.Add(time.Duration(step) * time.Microsecond)
}

func (h *machine) draw(t *rapid.T) throttle.Job {
	job := throttle.Job{
		Weight:   max(1, drawWeight(h.lightest(h.scopes...)).Draw(t, "weight")),
		Priority: rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "priority"),
		Keys:     map[string]string{"tenant": rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant")},
		MaxWait: time.Duration(rapid.SampledFrom([]int64{0, 0, 1000, 200_000, 1_200_000, 2_000_000}).Draw(
			t, "wait")) * time.Microsecond,
		Nonce: h.nonce(),
	}
	if domain := rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "domain"); domain != "" {
		job.Keys["domain"] = domain
	}
	if rapid.IntRange(0, 2).Draw(t, "costs") == 0 {
		scope := rapid.SampledFrom(h.scopes).Draw(t, "costs of")
		job.Costs = map[string]int64{scope.Name: drawWeight(h.lightest(scope)).Draw(t, "cost")}
	}
	if rapid.IntRange(0, 9).Draw(t, "deadline") == 0 {
		job.Deadline = h.now.Add(time.Duration(rapid.Int64Range(-1, 10_000_000).Draw(t, "in")) * time.Microsecond)
	}
	return job
}

// drawWeight draws light weights, and those near the whole of what a limit takes.
func drawWeight(most int64) *rapid.Generator[int64] {
	return rapid.OneOf(
		rapid.SampledFrom([]int64{0, 1, 1, 1, min(2, most)}),
		rapid.SampledFrom([]int64{most, most, most - most/10, most / 2, most - 1}),
	)
}

// lightest is the heaviest weight that every limit of some scopes takes.
func (h *machine) lightest(scopes ...throttle.Scope) int64 {
	units := int64(2000)
	for _, scope := range scopes {
		for _, limit := range scope.Limits {
			if limit.Units != throttle.Unlimited {
				units = min(units, limit.Units)
			}
		}
	}
	return units
}

func (h *machine) nonce() string {
	h.drawn++
	return fmt.Sprintf("n%d", h.drawn)
}

func (h *machine) drawNew(t *rapid.T) throttle.Job {
	job := h.draw(t)
	job.ID, job.Plan = fmt.Sprintf("job%d", len(h.ids)), rapid.IntRange(0, 9).Draw(t, "plan") == 0
	h.ids = append(h.ids, job.ID)
	return job
}

func (h *machine) arrive(t *rapid.T) { h.reserve(t, h.drawNew(t)) }

// arriveTogether asks for several jobs at once, new ones and some that were here.
func (h *machine) arriveTogether(t *rapid.T) {
	var jobs []throttle.Job
	for range rapid.SampledFrom([]int{2, 3, 8}).Draw(t, "batch") {
		if len(jobs) > 0 && rapid.IntRange(0, 3).Draw(t, "known") == 0 {
			job := h.jobs[rapid.SampledFrom(slices.Sorted(maps.Keys(h.jobs))).Draw(t, "id")]
			job.Nonce = h.nonce()
			jobs = append(jobs, job)
			continue
		}
		job := h.drawNew(t)
		h.jobs[job.ID] = job
		jobs = append(jobs, job)
	}
	got, want := h.redis.ReserveAll(h.now, jobs), h.model.ReserveAll(h.now, jobs)
	for i, job := range jobs {
		h.answered(t, job, got[i], want[i])
	}
}

// known draws a job that has been here.
func (h *machine) known(t *rapid.T) throttle.Job {
	if len(h.ids) == 0 {
		t.Skip("no job yet")
	}
	return h.jobs[rapid.SampledFrom(h.ids).Draw(t, "id")]
}

// comeBack asks again for a job, sometimes changed.
func (h *machine) comeBack(t *rapid.T) {
	job := h.known(t)
	job.Nonce, job.Deadline = h.nonce(), time.Time{}
	if rapid.IntRange(0, 9).Draw(t, "changed") == 0 {
		id := job.ID
		job = h.draw(t)
		job.ID = id
	}
	h.reserve(t, job)
}

// comeOnTime moves the clock to a slot, or a little beside it, and asks for its job.
func (h *machine) comeOnTime(t *rapid.T) {
	if len(h.slots) == 0 {
		t.Skip("no slot yet")
	}
	i := rapid.IntRange(0, len(h.slots)-1).Draw(t, "slot")
	slot := h.slots[i]
	h.slots = slices.Delete(h.slots, i, i+1)
	if slot.Start.After(h.now) {
		late := rapid.SampledFrom([]time.Duration{0, 0, -slot.Job.MaxWait, -slot.Job.MaxWait / 2,
			50 * time.Millisecond}).Draw(t, "late")
		if at := slot.Start.Add(late); at.After(h.now) {
			h.now = at
		}
	}
	job := slot.Job
	job.Nonce, job.Deadline, job.Plan = h.nonce(), time.Time{}, false
	h.reserve(t, job)
}

func (h *machine) reserve(t *rapid.T, job throttle.Job) {
	var got, want throttle.Answer
	got.Reservation, got.Err = h.redis.Reserve(h.now, job)
	want.Reservation, want.Err = h.model.Reserve(h.now, job)
	h.answered(t, job, got, want)
}

func (h *machine) answered(t *rapid.T, job throttle.Job, got, want throttle.Answer) {
	same(t, "Reserve", got.Reservation, want.Reservation, got.Err, want.Err)
	h.jobs[job.ID] = job
	if got.Err != nil {
		return
	}
	r := got.Reservation
	h.next = r.Next
	switch r.Outcome {
	case throttle.Waiting:
		h.guesses(t, r)
	case throttle.Booked:
		h.slots = append(h.slots, r)
	case throttle.Granted:
		if job.Plan {
			t.Fatalf("%s, which is only planned, got %+v", job.ID, r)
		}
		h.grants[job.ID+" "+job.Nonce] = r
		h.started(t, r)
		h.forgetTwins(r)
	}
}

func (h *machine) cancel(t *rapid.T) {
	job := h.known(t)
	got, gotErr := h.redis.Cancel(h.now, job)
	want, wantErr := h.model.Cancel(h.now, job)
	same(t, "Cancel", got, want, gotErr, wantErr)
}

func (h *machine) leave(t *rapid.T) {
	if len(h.ids) == 0 {
		t.Skip("no job yet")
	}
	ids := rapid.SliceOfN(rapid.SampledFrom(h.ids), 1, 5).Draw(t, "ids")
	slices.Sort(ids)
	ids = append(slices.Compact(ids), "nobody")
	got, gotErr := h.redis.Leave(h.now, ids)
	want, wantErr := h.model.Leave(h.now, ids)
	same(t, "Leave", got, want, gotErr, wantErr)
}

func (h *machine) peek(t *rapid.T) {
	job := h.draw(t)
	job.ID, job.Deadline = "peeking", time.Time{}
	got, gotErr := h.redis.Peek(h.now, job)
	want, wantErr := h.model.Peek(h.now, job)
	same(t, "Peek", certain(got), certain(want), gotErr, wantErr)
}

// certain leaves out of an answer what is guessed.
func certain(r throttle.Reservation) throttle.Reservation {
	if r.Outcome == throttle.Waiting {
		r.Start, r.Late, r.Hold = time.Time{}, time.Time{}, nil
	}
	return r
}

// guesses looks at what is guessed for a job in line: it asks again after its start, or
// after ten days.
func (h *machine) guesses(t *rapid.T, r throttle.Reservation) {
	late := r.Late.After(r.Start) || r.Late.Sub(r.Now) >= 240*time.Hour
	if r.Start.Before(r.Now) || !late || r.Hold != nil && !r.Hold.Until.Equal(r.Start) {
		t.Fatalf("guesses of a start: %+v, hold %+v", r, r.Hold)
	}
}

// pull pulls the line, now or when it is due.
func (h *machine) pull(t *rapid.T) {
	if h.next.After(h.now) && rapid.Bool().Draw(t, "when due") {
		h.now = h.next
	}
	h.pullOnce(t)
}

// pullOnce pulls the line, after some jobs have ended.
func (h *machine) pullOnce(t *rapid.T, ended ...throttle.Reservation) throttle.Pulled {
	got, gotErr := h.redis.Pull(h.now, ended...)
	want, wantErr := h.model.Pull(h.now, ended...)
	same(t, "Pull", got, want, gotErr, wantErr)
	h.next = got.Next
	for _, r := range got.Booked {
		r.Job = h.jobs[r.Job.ID]
		h.slots = append(h.slots, r)
	}
	return got
}

func (h *machine) lines(t *rapid.T) {
	got, gotErr := h.redis.Lines(h.now, "")
	want, wantErr := h.model.Lines(h.now, "")
	same(t, "Lines", got, want, gotErr, wantErr)
}

func (h *machine) usage(t *rapid.T) {
	scope, key := h.drawKey(t)
	got, gotErr := h.redis.Usage(h.now, scope.Name, key)
	want, wantErr := h.model.Usage(h.now, scope.Name, key)
	same(t, "Usage", got, want, gotErr, wantErr)
}

// report is what an upstream said of a request that was made a while ago.
func (h *machine) report(t *rapid.T) {
	scope, key := h.drawKey(t)
	r := drawReport(t, h.now)
	got, gotErr := h.redis.Report(h.now, scope.Name, key, r)
	want, wantErr := h.model.Report(h.now, scope.Name, key, r)
	got.Throttle, want.Throttle = "", ""
	same(t, "Report", got, want, gotErr, wantErr)
}

func drawReport(t *rapid.T, now time.Time) throttle.Report {
	r := throttle.Report{
		Refused:    rapid.Bool().Draw(t, "refused"),
		RetryAfter: rapid.SampledFrom([]time.Duration{0, 0, 1, time.Second, time.Minute}).Draw(t, "asks to wait"),
	}
	if ago := rapid.SampledFrom([]time.Duration{-1, 0, time.Millisecond, time.Minute}).Draw(t, "ago"); ago >= 0 {
		r.Started = now.Add(-ago)
	}
	for range rapid.IntRange(0, 2).Draw(t, "told") {
		r.Limits = append(r.Limits, throttle.ReportedLimit{
			Window:    rapid.SampledFrom(append([]time.Duration{0}, windows...)).Draw(t, "of"),
			Units:     rapid.SampledFrom([]int64{0, 1, 3, 60, 500, 1 << 53}).Draw(t, "serves"),
			Remaining: rapid.SampledFrom([]int64{-1, 0, 1, 30, 1 << 53}).Draw(t, "remaining"),
		})
	}
	return r
}

func (h *machine) count(t *rapid.T) {
	scope, key := h.drawKey(t)
	from := time.Duration(rapid.Int64Range(0, 90_000_000).Draw(t, "from")) * time.Microsecond
	to := time.Duration(rapid.Int64Range(0, from.Microseconds()).Draw(t, "to")) * time.Microsecond
	got, gotErr := h.redis.Count(h.now, scope.Name, key, from, to)
	want, wantErr := h.model.Count(h.now, scope.Name, key, from, to)
	same(t, "Count", got, want, gotErr, wantErr)
}

func (h *machine) drawKey(t *rapid.T) (throttle.Scope, string) {
	scope := rapid.SampledFrom(h.scopes).Draw(t, "scope")
	if scope.Name == throttle.Global {
		return scope, ""
	}
	return scope, rapid.SampledFrom([]string{"a", "b", "x", "y"}).Draw(t, "key")
}

// costOf is what a job takes of a scope; none if it does not concern it.
func costOf(job throttle.Job, scope string) int64 {
	if _, has := job.Keys[scope]; !has && scope != throttle.Global {
		return 0
	}
	if cost, own := job.Costs[scope]; own {
		return cost
	}
	return job.Weight
}

// started checks a start: no window that contains it is over a limit in force, by what
// has started and been settled, not by anybody's counters.
func (h *machine) started(t *rapid.T, r throttle.Reservation) {
	start := spent{at: r.Start, units: make(map[string]int64), windows: make(map[string][]time.Duration)}
	for _, scope := range h.scopes {
		key := r.Job.Keys[scope.Name]
		name, cost := scope.Name+":"+key, costOf(r.Job, scope.Name)
		if cost == 0 || h.set.mode(scope, r.Start) == throttle.Off {
			continue
		}
		start.units[name] = cost
		var leases []time.Duration // of limits with the same lease one place counts
		for _, limit := range slices.Concat(h.set.counted(scope, key, r.Start)...) {
			if limit.Running {
				if lease := leaseOf(limit); !slices.Contains(leases, lease) {
					leases = append(leases, lease)
					h.holds(r, name, cost, limit)
				}
			} else if limit.Units != throttle.Unlimited {
				start.windows[name] = append(start.windows[name], limit.Window)
			}
		}
	}
	h.starts[r.Job.ID+" "+r.Job.Nonce] = start
	for _, scope := range h.scopes {
		key := r.Job.Keys[scope.Name]
		name := scope.Name + ":" + key
		if start.units[name] == 0 || h.set.mode(scope, r.Start) != throttle.Enforce {
			continue
		}
		if ends := h.set.pauses[name]; ends.After(r.Start) {
			t.Fatalf("%s starts at %s, %s is paused until %s", r.Job.ID, r.Start, name, ends)
		}
		for _, limit := range h.set.limits(scope, key, r.Start) {
			if limit.Running {
				h.checkPlaces(t, r, name, limit)
				continue
			}
			if limit.Units == throttle.Unlimited {
				continue
			}
			if most := h.most(name, r.Start, limit.Window); most > limit.Units {
				t.Fatalf("%s at %s: %d units in a window of %s %s", r.Job.ID, r.Start, most, name, limit)
			}
		}
	}
}

// leaseOf is the lease of a running limit.
func leaseOf(limit throttle.Limit) time.Duration {
	return stdcmp.Or(limit.Lease, throttle.DefaultLease)
}

// holds notes a place that a grant holds.
func (h *machine) holds(r throttle.Reservation, name string, units int64, limit throttle.Limit) {
	id, lease := r.Job.ID+" "+r.Job.Nonce, leaseOf(limit)
	h.places[id] = append(h.places[id],
		&heldPlace{id: id, name: name, lease: lease, units: units, from: r.Start, until: r.Start.Add(lease), sign: r.Start})
}

// forgetTwins takes a job's places out of the account that has another grant for the same
// instant: Done ends one of them, whichever, and the other one counts for a lease.
func (h *machine) forgetTwins(r throttle.Reservation) {
	own := r.Job.ID + " " + r.Job.Nonce
	for id, other := range h.grants {
		if id != own && other.Job.ID == r.Job.ID && other.Start.Equal(r.Start) {
			delete(h.places, own)
			delete(h.places, id)
		}
	}
}

// checkPlaces checks a start: at no instant from it on do more units run than a limit allows,
// by what was told to have ended or to run still, not by anybody's counters.
func (h *machine) checkPlaces(t *rapid.T, r throttle.Reservation, name string, limit throttle.Limit) {
	var all []*heldPlace
	for _, places := range h.places {
		for _, p := range places {
			if p.name == name && p.lease == leaseOf(limit) {
				all = append(all, p)
			}
		}
	}
	for _, at := range all {
		var units int64
		for _, p := range all {
			if !p.from.After(at.from) && p.until.After(at.from) {
				units += p.units
			}
		}
		if !at.from.Before(r.Start) && at.until.After(at.from) && units > limit.Units {
			t.Fatalf("%s at %s: %d units run at %s under %s %s", r.Job.ID, r.Start, units, at.from, name, limit)
		}
	}
}

// done ends a grant, perhaps one that has ended or whose lease is over.
func (h *machine) done(t *rapid.T) {
	id, granted := h.drawGrant(t)
	cooldown := time.Duration(rapid.SampledFrom([]int64{-1, -1, 0, 300}).Draw(t, "cools down for")) * time.Millisecond
	if cooldown >= 0 {
		granted.Cooldowns = map[string]time.Duration{"tenant": cooldown, throttle.Global: cooldown}
	}
	var got []bool
	if rapid.Bool().Draw(t, "and pull") {
		got = h.pullOnce(t, granted).Held
	} else {
		var gotErr error
		got, gotErr = h.redis.Done(h.now, granted)
		want, wantErr := h.model.Done(h.now, granted)
		same(t, "Done", got, want, gotErr, wantErr)
	}
	h.mustAgree(t, "Done", id, granted, got[0])
	for _, p := range h.places[id] {
		p.until = h.now
		if got[0] {
			p.until = h.now.Add(h.cooldownOf(p, granted))
		}
	}
	for _, p := range h.places[id] {
		p.id = "" // it is to be told of no more
	}
}

func (h *machine) cooldownOf(p *heldPlace, granted throttle.Reservation) time.Duration {
	scope, _, _ := strings.Cut(p.name, ":")
	if own, is := granted.Cooldowns[scope]; is {
		return own
	}
	for _, s := range h.scopes {
		if s.Name == scope {
			return s.Cooldown
		}
	}
	return 0
}

// renew has a grant run on.
func (h *machine) renew(t *rapid.T) {
	id, granted := h.drawGrant(t)
	if places := h.places[id]; len(places) > 0 && rapid.Bool().Draw(t, "before its lease is over") {
		if at := places[0].until.Add(-time.Duration(rapid.Int64Range(-20_000, 500_000).Draw(t, "before")) *
			time.Microsecond); at.After(h.now) {
			h.now = at
		}
	}
	got, gotErr := h.redis.Renew(h.now, granted)
	want, wantErr := h.model.Renew(h.now, granted)
	same(t, "Renew", got, want, gotErr, wantErr)
	h.mustAgree(t, "Renew", id, granted, got[0])
	for _, p := range h.places[id] {
		switch {
		case !got[0]:
			p.until, p.id = earlier(p.until, h.now), ""
		case h.now.Add(p.lease).After(p.until):
			p.until, p.sign = h.now.Add(p.lease), h.now
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// mustAgree compares what was told of a grant's places with the account: it held them while
// its lease was not over, the shortest of those that count it, and not when it had been over for two thousandths of it.
func (h *machine) mustAgree(t *rapid.T, call, id string, granted throttle.Reservation, held bool) {
	if granted.Lease == 0 {
		return
	}
	surely, perhaps := true, true
	for _, p := range h.places[id] {
		surely = surely && p.id != "" && h.now.Before(p.until) && h.now.Before(p.sign.Add(granted.Lease))
		perhaps = perhaps && p.id != "" && h.now.Before(p.until.Add(p.lease/500))
	}
	if len(h.places[id]) > 0 && (held && !perhaps || !held && surely) {
		t.Fatalf("%s of %s at %s: held %t, its lease is over at %s", call, id, h.now, held, h.places[id][0].until)
	}
}

// most are the units of a scope key in that window of this length, of those that contain
// an instant, which holds most. A start that the window did not count, since it was not in
// force then, is left out.
func (h *machine) most(name string, at time.Time, window time.Duration) int64 {
	var counted []spent
	for _, s := range h.starts {
		if slices.Contains(s.windows[name], window) {
			counted = append(counted, s)
		}
	}
	var most int64
	for _, last := range counted {
		if last.at.Before(at) || last.at.Sub(at) >= window {
			continue
		}
		var sum int64
		for _, s := range counted {
			if age := last.at.Sub(s.at); age >= 0 && age < window {
				sum += s.units[name]
			}
		}
		most = max(most, sum)
	}
	return most
}

// drawGrant draws one that was made, perhaps settled before.
func (h *machine) drawGrant(t *rapid.T) (id string, granted throttle.Reservation) {
	grants := h.correctable()
	if len(grants) == 0 {
		t.Skip("no grant yet")
	}
	id = rapid.SampledFrom(grants).Draw(t, "grant")
	return id, h.grants[id]
}

// correctable are the jobs with a grant, but for a minute in which it depends on Redis' own
// clock, not on the test's, whether it is remembered that a grant was settled.
func (h *machine) correctable() (ids []string) {
	for id, granted := range h.grants {
		if left := granted.Start.Add(time.Hour).Sub(h.now); left < 0 || left >= time.Minute {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// corrected notes what a start took, where it was settled and still counts.
func (h *machine) corrected(id string, done bool, actual func(scope string, charged int64) int64) {
	if !done {
		return
	}
	job, start := h.grants[id].Job, h.starts[id]
	for _, scope := range h.scopes {
		name := scope.Name + ":" + job.Keys[scope.Name]
		if _, counted := start.units[name]; counted {
			start.units[name] = actual(scope.Name, start.units[name])
		}
	}
}

func (h *machine) settle(t *rapid.T) {
	id, granted := h.drawGrant(t)
	actual := rapid.SampledFrom([]int64{0, 1, 2, 7, 100}).Draw(t, "actual")
	got, gotErr := h.redis.Settle(h.now, granted, actual)
	want, wantErr := h.model.Settle(h.now, granted, actual)
	same(t, "Settle", got, want, gotErr, wantErr)
	h.corrected(id, got, func(scope string, charged int64) int64 {
		if _, own := granted.Job.Costs[scope]; own {
			return charged
		}
		return actual
	})
}

func (h *machine) settleCosts(t *rapid.T) {
	id, granted := h.drawGrant(t)
	of := rapid.SampledFrom(h.scopes).Draw(t, "of").Name
	actual := map[string]int64{of: rapid.SampledFrom([]int64{0, 1, 2, 7, 100}).Draw(t, "actual")}
	got, gotErr := h.redis.SettleCosts(h.now, granted, actual)
	want, wantErr := h.model.SettleCosts(h.now, granted, actual)
	same(t, "SettleCosts", got, want, gotErr, wantErr)
	h.corrected(id, got, func(scope string, charged int64) int64 {
		if scope == of {
			return actual[of]
		}
		return charged
	})
}

func (h *machine) refund(t *rapid.T) {
	id, granted := h.drawGrant(t)
	got, gotErr := h.redis.Refund(h.now, granted)
	want, wantErr := h.model.Refund(h.now, granted)
	same(t, "Refund", got, want, gotErr, wantErr)
	h.corrected(id, got, func(string, int64) int64 { return 0 })
}

func (h *machine) release(t *rapid.T) {
	id, granted := h.drawGrant(t)
	got, gotErr := h.redis.Release(h.now, granted)
	want, wantErr := h.model.Release(h.now, granted)
	same(t, "Release", got, want, gotErr, wantErr)
	if got {
		delete(h.starts, id)
		delete(h.places, id)
		h.slots = append(h.slots, granted)
	}
}

func (h *machine) pause(t *rapid.T) {
	scope, key := h.drawKey(t)
	until := h.now.Add(
		time.Duration(rapid.SampledFrom([]int64{-1, 1, 500_000, 3_000_000, 30_000_000, 400_000_000}).Draw(
			t, "length")) * time.Microsecond)
	got, gotErr := h.redis.Pause(h.now, scope.Name, key, until)
	want, wantErr := h.model.Pause(h.now, scope.Name, key, until)
	same(t, "Pause", got, want, gotErr, wantErr)
	h.set.pauses[scope.Name+":"+key] = got
}

func (h *machine) resume(t *rapid.T) {
	scope, key := h.drawKey(t)
	got, gotErr := h.redis.Resume(h.now, scope.Name, key)
	want, wantErr := h.model.Resume(h.now, scope.Name, key)
	same(t, "Resume", got, want, gotErr, wantErr)
	delete(h.set.pauses, scope.Name+":"+key)
}

// passes has the clock go on before what is set changes: two scripts are never run within the same
// microsecond.
func (h *machine) passes() { h.now = h.now.Add(time.Microsecond) }

func (h *machine) setLimits(t *rapid.T) {
	h.passes()
	scope, key := h.drawOverridden(t)
	limits := rapid.SliceOfNDistinct(drawLimit(windows, []int64{0, 1, 2, 5, 40, 1000, throttle.Unlimited}), 1, 2,
		func(l throttle.Limit) time.Duration { return l.Window }).Draw(t, "limits")
	if h.options.Lookahead <= maxLease/2 && rapid.Bool().Draw(t, "and what runs") {
		limits = append(limits, drawAtOnce(t, h.options.Lookahead))
	}
	until := h.drawEnd(t)
	same(t, "SetLimits", true, true, h.redis.SetLimits(h.now, scope.Name, key, limits, until),
		h.model.SetLimits(h.now, scope.Name, key, limits, until))
	h.set.own[scope.Name+":"+key] = setUntil[[]throttle.Limit]{limits, until}
}

func (h *machine) resetLimits(t *rapid.T) {
	h.passes()
	scope, key := h.drawOverridden(t)
	same(t, "ResetLimits", true, true, h.redis.ResetLimits(h.now, scope.Name, key),
		h.model.ResetLimits(h.now, scope.Name, key))
	delete(h.set.own, scope.Name+":"+key)
}

func (h *machine) setMode(t *rapid.T) {
	h.passes()
	scope := rapid.SampledFrom([]string{"", throttle.Global, "tenant", "domain"}).Draw(t, "of")
	mode := rapid.SampledFrom([]throttle.Mode{-1, -1, throttle.Enforce, throttle.Enforce, throttle.Shadow,
		throttle.Off}).Draw(t, "mode")
	if mode < 0 {
		same(t, "ResetMode", true, true, h.redis.ResetMode(h.now, scope), h.model.ResetMode(h.now, scope))
		delete(h.set.modes, scope)
		return
	}
	until := h.drawEnd(t)
	same(t, "SetMode", true, true, h.redis.SetMode(h.now, scope, mode, until), h.model.SetMode(h.now, scope, mode, until))
	h.set.modes[scope] = setUntil[throttle.Mode]{mode, until}
}

// drawEnd draws when what is set ends by itself; the zero time: it does not.
func (h *machine) drawEnd(t *rapid.T) time.Time {
	lasts := rapid.SampledFrom([]int64{0, 0, 1, 200_000, 700_000, 3_000_000, 30_000_000, 400_000_000}).Draw(t, "lasts")
	if lasts == 0 {
		return time.Time{}
	}
	return h.now.Add(time.Duration(lasts) * time.Microsecond)
}

// drawOverridden draws a scope key, or a scope for all its keys.
func (h *machine) drawOverridden(t *rapid.T) (throttle.Scope, string) {
	scope, key := h.drawKey(t)
	if rapid.Bool().Draw(t, "all keys") {
		key = ""
	}
	return scope, key
}

// same fails the test where the scripts and the model differ, in what they say or refuse.
func same[T any](t *rapid.T, call string, got, want T, gotErr, wantErr error) {
	t.Helper()
	if diff := cmp.Diff(refusal(wantErr), refusal(gotErr)); diff != "" {
		t.Fatalf("%s: script says %v, model says %v (-model +script):\n%s", call, gotErr, wantErr, diff)
	}
	if diff := cmp.Diff(want, got, whole); diff != "" {
		t.Fatalf("%s (-model +script):\n%s", call, diff)
	}
}

// refusal is an error's data, where it is one of a job that is refused; the text of others.
func refusal(err error) any {
	var late *throttle.DeadlineError
	var blocked *throttle.BlockedError
	var never *throttle.NeverFitsError
	switch {
	case errors.As(err, &late):
		return *late
	case errors.As(err, &blocked):
		return *blocked
	case errors.As(err, &never):
		return *never
	case err != nil:
		return err.Error()
	}
	return nil
}
