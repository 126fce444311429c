package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/internal/wallclock"
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

func history(t *rapid.T, client *redis.Client) {
	h := newMachine(t, client)
	h.keepEdges(t)
	t.Repeat(h.actions())
}

// keepEdges has Redis keep all edges that the history may come to. Beyond the edges that Redis keeps, scripts take
// hours for open until that time comes; the model computes every edge.
func (h *machine) keepEdges(t *rapid.T) {
	h.redis.at(h.now)
	limits := slices.Clone(openHours)
	for _, calendar := range calendars {
		limits = append(limits, throttle.Limit{Calendar: calendar})
	}
	if err := h.redis.throttle.KeepEdges(context.Background(), h.now, h.now.AddDate(3, 0, 0), limits...); err != nil {
		t.Fatal(err)
	}
}

func newMachine(t *rapid.T, client *redis.Client) *machine {
	h := &machine{
		t:       t,
		options: drawOptions(t),
		now:     historiesBegin,
		jobs:    make(map[string]throttle.Job),
		grants:  make(map[string]throttle.Reservation),
		starts:  make(map[string]spent),
		set:     newOverrides(),
		places:  make(map[string][]*heldPlace),
	}
	h.scopes = drawHours(t, drawQuotas(t, drawRunning(t, drawScopes(t), h.options.Lookahead)))
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
		"ramp":         h.steer,
	}
}

// once lets a job arrive if there is nothing yet for an action to act on: a fuzzer may draw only
// actions that need something.
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

// lightest returns the heaviest weight that every limit of some scopes takes.
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

// arriveTogether asks for several jobs at once, new jobs and some earlier ones.
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

// known draws a job that has asked before.
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

// certain returns an answer without its guesses.
func certain(r throttle.Reservation) throttle.Reservation {
	if r.Outcome == throttle.Waiting {
		r.Start, r.AskAgain, r.Hold = time.Time{}, time.Time{}, nil
	}
	return r
}

// guesses checks the guesses for a job in line: it asks again after its guessed start, or after
// ten days.
func (h *machine) guesses(t *rapid.T, r throttle.Reservation) {
	late := r.AskAgain.After(r.Start) || r.AskAgain.Sub(r.Now) >= 240*time.Hour
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

// report reports what an upstream said of a request that was made a while ago.
func (h *machine) report(t *rapid.T) {
	scope, key := h.drawKey(t)
	r := drawReport(t, h.now)
	got, gotErr := h.redis.Report(h.now, scope.Name, key, r)
	want, wantErr := h.model.Report(h.now, scope.Name, key, r)
	got.Throttle, want.Throttle = "", ""
	same(t, "Report", got, want, gotErr, wantErr)
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

// costOf returns what a job takes of a scope; 0 if the scope does not concern it.
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
	start := spent{at: r.Start, units: make(map[string]int64), labels: make(map[string][]string)}
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
				start.labels[name] = append(start.labels[name], limit.Label())
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
			if limit.Hours != "" && !wallclock.IsOpen(limit.Hours, r.Start) {
				t.Fatalf("%s starts at %s, %s is not %s then", r.Job.ID, r.Start, name, limit)
			}
			if limit.Units == throttle.Unlimited {
				continue
			}
			if most := h.most(name, r.Start, limit); most > unitsAt(limit, r.Start) {
				t.Fatalf("%s at %s: %d units in a window of %s %s", r.Job.ID, r.Start, most, name, limit)
			}
		}
	}
}

// same fails the test if the scripts and the model differ in their answers or errors.
func same[T any](t *rapid.T, call string, got, want T, gotErr, wantErr error) {
	t.Helper()
	if diff := cmp.Diff(refusal(wantErr), refusal(gotErr)); diff != "" {
		t.Fatalf("%s: script says %v, model says %v (-model +script):\n%s", call, gotErr, wantErr, diff)
	}
	if diff := cmp.Diff(want, got, whole); diff != "" {
		t.Fatalf("%s (-model +script):\n%s", call, diff)
	}
}

// refusal returns the data of an error that refuses a job, and the text of any other error.
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
