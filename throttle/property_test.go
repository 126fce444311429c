package throttle_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestPropertyModel goes through random histories and compares the scripts with
// the model at every step. No window may be over its limit, by an independent
// look at the starts. Jobs come early, on time, late and never; several scopes,
// limits and precisions; the clock steps back; answers are asked for again.
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
	h := &machine{
		t:       t,
		scopes:  drawScopes(t),
		options: drawOptions(t),
		now:     time.UnixMicro(1_795_219_498_189_530),
		jobs:    make(map[string]throttle.Job),
		grants:  make(map[string]throttle.Reservation),
		set:     newOverrides(),
	}
	h.starts.of = make(map[string]counted)
	h.seeNow()
	h.redis = newScripted(newThrottle(t, client, h.scopes, &h.options))
	h.model = throttletest.NewModel(h.scopes, h.options)
	t.Repeat(map[string]func(*rapid.T){
		"advance":   h.advance,
		"arrive":    h.arrive,
		"arrive ":   h.arrive, // twice as often
		"come back": h.comeBack,
		"on time":   h.comeOnTime,
		"ask again": h.askAgain,
		"cancel":    h.cancel,
		"pull":      h.pull,
		"pull ":     h.pull, // and on
		"sweep":     h.sweep,
		"lines":     h.lines,
		"release":   h.release,
		"peek":      h.peek,
		"usage":     h.usage,
		"count":     h.count,
		"settle":    h.settle,
		"pause":     h.pause,
		"resume":    h.resume,
		"limits":    h.setLimits,
		"reset":     h.resetLimits,
		"mode":      h.setMode,
	})
}

// drawOptions draws a calendar without end, in which nobody waits in line, as
// often as short ones.
func drawOptions(t *rapid.T) throttle.Options {
	return throttle.Options{
		Grace:     rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 5 * time.Second, time.Minute}).Draw(t, "grace"),
		Lookahead: rapid.SampledFrom([]time.Duration{throttle.MaxWindow, 100 * time.Millisecond, time.Second, 5 * time.Second, 20 * time.Second, throttle.MaxWindow}).Draw(t, "lookahead"),
		FairScope: rapid.SampledFrom([]string{"", "", "domain", throttle.Global}).Draw(t, "fair scope"),
		Shares:    map[string]int{"a": rapid.SampledFrom([]int{1, 2, 3}).Draw(t, "share"), "c": 2},
		Timeout:   30 * time.Second,
	}
}

func drawScopes(t *rapid.T) []throttle.Scope {
	return drawScopesOf(t, time.Second, 7*time.Second, time.Minute, time.Hour)
}

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
		})
	}
	return scopes
}

func drawLimit(windows []time.Duration, units []int64) *rapid.Generator[throttle.Limit] {
	return rapid.Custom(func(t *rapid.T) throttle.Limit {
		limit := throttle.Limit{
			Units:  rapid.SampledFrom(units).Draw(t, "units"),
			Window: rapid.SampledFrom(windows).Draw(t, "window"),
		}
		limit.Precision = rapid.SampledFrom([]time.Duration{0, throttle.Exact, limit.Window / 20, limit.Window / 3, limit.Window}).Draw(t, "precision").Truncate(time.Microsecond)
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
	latest  time.Time // that now ever was
	drawn   int
	ids     []string
	jobs    map[string]throttle.Job // by ID, as last asked for
	slots   []throttle.Reservation
	starts  startLog
	grants  map[string]throttle.Reservation // by job and nonce
	set     overrides
	next    throttle.Lane   // to be pulled
	lanes   []throttle.Lane // that were next
}

func (h *machine) advance(t *rapid.T) {
	step := rapid.OneOf(
		rapid.Int64Range(0, 1000),
		rapid.Int64Range(0, 2_000_000),
		rapid.Int64Range(0, 90_000_000),
		rapid.SampledFrom([]int64{1_000_000, 7_000_000, 60_000_000, 50_000, -1, -500_000, -20_000_000}),
	).Draw(t, "step")
	h.now = h.now.Add(time.Duration(step) * time.Microsecond)
	// A clock further back than this is believed: TestF24 is about that.
	if patience := h.latest.Add(-29 * time.Second); h.now.Before(patience) {
		h.now = patience
	}
	h.seeNow()
}

func (h *machine) seeNow() {
	if h.now.After(h.latest) {
		h.latest = h.now
	}
}

func (h *machine) draw(t *rapid.T) throttle.Job {
	job := throttle.Job{
		Weight:  rapid.Int64Range(1, h.lightest()).Draw(t, "weight"),
		Keys:    map[string]string{"tenant": rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant")},
		MaxWait: time.Duration(rapid.SampledFrom([]int64{0, 0, 1000, 200_000, 2_000_000}).Draw(t, "wait")) * time.Microsecond,
		Nonce:   h.nonce(),
	}
	if domain := rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "domain"); domain != "" {
		job.Keys["domain"] = domain
	}
	if rapid.IntRange(0, 9).Draw(t, "deadline") == 0 {
		job.Deadline = h.now.Add(time.Duration(rapid.Int64Range(-1, 10_000_000).Draw(t, "in")) * time.Microsecond)
	}
	return job
}

// lightest is the heaviest weight that every limit takes.
func (h *machine) lightest() int64 {
	units := int64(40)
	for _, scope := range h.scopes {
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

func (h *machine) arrive(t *rapid.T) {
	job := h.draw(t)
	job.ID, job.Plan = fmt.Sprintf("job%d", len(h.ids)), rapid.IntRange(0, 9).Draw(t, "plan") == 0
	h.ids = append(h.ids, job.ID)
	h.reserve(t, job)
}

// known draws a job that has been here.
func (h *machine) known(t *rapid.T) throttle.Job {
	if len(h.ids) == 0 {
		t.Skip("no job yet")
	}
	return h.jobs[rapid.SampledFrom(h.ids).Draw(t, "id")]
}

// comeBack asks again for a job under a new nonce, sometimes changed.
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

// comeOnTime moves the clock to a slot and asks for its job.
func (h *machine) comeOnTime(t *rapid.T) {
	if len(h.slots) == 0 {
		t.Skip("no slot yet")
	}
	slot := rapid.SampledFrom(h.slots).Draw(t, "slot")
	if slot.Start.After(h.now) {
		h.now = slot.Start.Add(-rapid.SampledFrom([]time.Duration{0, 0, slot.Job.MaxWait, slot.Job.MaxWait / 2}).Draw(t, "early"))
		h.seeNow()
	}
	job := slot.Job
	job.Nonce, job.Deadline, job.Plan = h.nonce(), time.Time{}, false
	h.reserve(t, job)
}

func (h *machine) askAgain(t *rapid.T) { h.reserve(t, h.known(t)) }

func (h *machine) reserve(t *rapid.T, job throttle.Job) {
	got, gotErr := h.redis.Reserve(h.now, job)
	if _, known := h.jobs[job.ID]; !known && gotErr == nil {
		h.checkMinimal(t, got)
	}
	want, wantErr := h.model.Reserve(h.now, job)
	same(t, "Reserve", certain(got), certain(want), gotErr, wantErr)
	h.jobs[job.ID] = job
	if got.Replayed {
		return
	}
	// Asked under the same nonce, a start of before is this one or has moved.
	delete(h.starts.of, job.ID+" "+job.Nonce)
	if gotErr != nil {
		return
	}
	h.next = got.Next
	if got.Outcome == throttle.Waiting {
		h.guesses(t, got)
		return
	}
	if got.Outcome == throttle.Booked {
		h.slots = append(h.slots, got)
		return
	}
	h.grants[job.ID+" "+job.Nonce] = got
	h.started(t, got)
}

func (h *machine) cancel(t *rapid.T) {
	job := h.known(t)
	got, gotErr := h.redis.Cancel(h.now, job)
	want, wantErr := h.model.Cancel(h.now, job)
	same(t, "Cancel", got, want, gotErr, wantErr)
	h.withdrawn(job, got)
}

func (h *machine) release(t *rapid.T) {
	job := h.known(t)
	got, gotErr := h.redis.Release(h.now, job)
	want, wantErr := h.model.Release(h.now, job)
	same(t, "Release", got, want, gotErr, wantErr)
	h.withdrawn(job, got)
}

// withdrawn takes out the start that was given back, if it was a grant's.
func (h *machine) withdrawn(job throttle.Job, done bool) {
	if done {
		delete(h.starts.of, job.ID+" "+job.Nonce)
	}
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

// guesses looks at what is guessed for a job in line.
func (h *machine) guesses(t *rapid.T, r throttle.Reservation) {
	if r.Start.Before(r.Now) || !r.Late.After(r.Start) || r.Hold != nil && !r.Hold.Until.Equal(r.Start) {
		t.Fatalf("guesses of a start: %+v, hold %+v", r, r.Hold)
	}
}

// pull books the next lane, or one that was it once, as a process that is late does.
func (h *machine) pull(t *rapid.T) {
	lane := h.next
	if lane != "" && !slices.Contains(h.lanes, lane) {
		h.lanes = append(h.lanes, lane)
	}
	if len(h.lanes) > 0 && (lane == "" || rapid.IntRange(0, 4).Draw(t, "late") == 0) {
		lane = rapid.SampledFrom(h.lanes).Draw(t, "lane")
	}
	if lane == "" {
		t.Skip("no lane to pull")
	}
	got, gotNext, gotErr := h.redis.Pull(h.now, lane)
	want, wantNext, wantErr := h.model.Pull(h.now, lane)
	same(t, "Pull", got, want, gotErr, wantErr)
	same(t, "Pull, next", gotNext, wantNext, nil, nil)
	for _, r := range got {
		r.Job.Keys, r.Job.MaxWait, r.Job.Lane = h.jobs[r.Job.ID].Keys, h.jobs[r.Job.ID].MaxWait, ""
		h.slots = append(h.slots, r)
	}
	h.next = gotNext
}

func (h *machine) sweep(t *rapid.T) {
	got, gotErr := h.redis.Sweep(h.now)
	want, wantErr := h.model.Sweep(h.now)
	same(t, "Sweep", got, want, gotErr, wantErr)
	maps.DeleteFunc(h.set.pauses, func(_ string, ends time.Time) bool { return !ends.After(h.now) }) // forgotten, whatever the clock does
	h.next = got.Next
}

func (h *machine) lines(t *rapid.T) {
	got, gotErr := h.redis.Lines(h.now, "")
	want, wantErr := h.model.Lines(h.now, "")
	slices.SortFunc(got.Lines, func(a, b throttle.Line) int { return strings.Compare(a.Key, b.Key) })
	for i := range got.Lines {
		got.Lines[i].End = time.Time{}
	}
	same(t, "Lines", got, want, gotErr, wantErr)
}

func (h *machine) usage(t *rapid.T) {
	scope, key := h.drawKey(t)
	got, gotErr := h.redis.Usage(h.now, scope.Name, key)
	want, wantErr := h.model.Usage(h.now, scope.Name, key)
	same(t, "Usage", got, want, gotErr, wantErr)
}

func (h *machine) count(t *rapid.T) {
	scope, key := h.drawKey(t)
	limits := slices.DeleteFunc(slices.Clone(scope.Limits), func(l throttle.Limit) bool { return l.Units == throttle.Unlimited })
	if len(limits) == 0 || h.set.mode(scope) == throttle.Off {
		t.Skip("nothing is counted")
	}
	window := rapid.SampledFrom(limits).Draw(t, "limit").Window
	from := time.Duration(rapid.Int64Range(0, window.Microseconds()).Draw(t, "from")) * time.Microsecond
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

// started checks a start: no window that contains it is over a limit in force, by what
// has started and been settled, not by anybody's counters.
func (h *machine) started(t *rapid.T, r throttle.Reservation) {
	start := counted{at: r.Start, weight: r.Job.Weight, keys: make(map[string]string)}
	for _, scope := range h.scopes {
		key, has := r.Job.Keys[scope.Name]
		if (has || scope.Name == throttle.Global) && h.set.mode(scope) != throttle.Off {
			start.keys[scope.Name] = key
		}
	}
	h.starts.of[r.Job.ID+" "+r.Job.Nonce] = start
	for _, scope := range h.scopes {
		key, has := start.keys[scope.Name]
		if !has || h.set.mode(scope) != throttle.Enforce {
			continue
		}
		if ends := h.set.pauses[scope.Name+":"+key]; ends.After(r.Start) {
			t.Fatalf("%s starts at %s, %s %q is paused until %s", r.Job.ID, r.Start, scope.Name, key, ends)
		}
		for _, limit := range h.set.limits(scope, key) {
			if most := h.starts.most(scope.Name, key, r.Start, limit.Window); limit.Units != throttle.Unlimited && most > limit.Units {
				t.Fatalf("%s at %s: %d units in a window of %s %q %s", r.Job.ID, r.Start, most, scope.Name, key, limit)
			}
		}
	}
}

// checkMinimal: the first answer to a job that is booked, or granted for later, is the
// earliest start with room: a microsecond before there is none, nor at any other instant.
func (h *machine) checkMinimal(t *rapid.T, r throttle.Reservation) {
	if r.Outcome == throttle.Waiting || !r.Start.After(r.Now) {
		return
	}
	for range 10 {
		earlier := time.Duration(rapid.Int64Range(0, r.Start.Sub(r.Now).Microseconds()-1).Draw(t, "earlier")) * time.Microsecond
		if h.model.HasRoom(h.now, r.Job, r.Now.Add(earlier)) {
			t.Fatalf("%s has room %s before its slot %s", r.Job.ID, r.Start.Sub(r.Now.Add(earlier)), r.Start)
		}
	}
	if !h.model.HasRoom(h.now, r.Job, r.Start) {
		t.Fatalf("%s has no room at its slot %s", r.Job.ID, r.Start)
	}
	if h.model.HasRoom(h.now, r.Job, r.Start.Add(-time.Microsecond)) {
		t.Fatalf("%s has room a microsecond before its slot %s", r.Job.ID, r.Start)
	}
}

// settle settles a grant, perhaps for the second time.
func (h *machine) settle(t *rapid.T) {
	if len(h.grants) == 0 {
		t.Skip("no grant yet")
	}
	id := rapid.SampledFrom(slices.Sorted(maps.Keys(h.grants))).Draw(t, "grant")
	actual := rapid.SampledFrom([]int64{0, 1, 2, 7, 100}).Draw(t, "actual")
	got, gotErr := h.redis.Settle(h.now, h.grants[id], actual)
	want, wantErr := h.model.Settle(h.now, h.grants[id], actual)
	same(t, "Settle", got, want, gotErr, wantErr)
	if start, counts := h.starts.of[id]; counts && got {
		start.weight = actual
		h.starts.of[id] = start
	}
}

func (h *machine) pause(t *rapid.T) {
	scope, key := h.drawKey(t)
	until := h.now.Add(time.Duration(rapid.SampledFrom([]int64{-1, 1, 500_000, 3_000_000, 30_000_000, 400_000_000}).Draw(t, "length")) * time.Microsecond)
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

// setLimits sets limits of windows that are counted already: further back than the
// scope's longest window nothing is known.
func (h *machine) setLimits(t *rapid.T) {
	scope, key := h.drawOverridden(t)
	longest := time.Duration(0)
	for _, limit := range scope.Limits {
		if limit.Units != throttle.Unlimited {
			longest = max(longest, limit.Window)
		}
	}
	if longest == 0 {
		t.Skip("nothing is counted")
	}
	windows := slices.DeleteFunc([]time.Duration{time.Second, 5 * time.Second, 7 * time.Second, time.Minute, time.Hour}, func(w time.Duration) bool { return w > longest })
	limits := rapid.SliceOfNDistinct(drawLimit(windows, []int64{0, 1, 2, 5, 40, 1000, throttle.Unlimited}), 1, 2,
		func(l throttle.Limit) time.Duration { return l.Window }).Draw(t, "limits")
	same(t, "SetLimits", true, true, h.redis.SetLimits(h.now, scope.Name, key, limits), h.model.SetLimits(h.now, scope.Name, key, limits))
	h.set.own[scope.Name+":"+key] = limits
}

func (h *machine) resetLimits(t *rapid.T) {
	scope, key := h.drawOverridden(t)
	same(t, "ResetLimits", true, true, h.redis.ResetLimits(h.now, scope.Name, key), h.model.ResetLimits(h.now, scope.Name, key))
	delete(h.set.own, scope.Name+":"+key)
}

func (h *machine) setMode(t *rapid.T) {
	scope := rapid.SampledFrom([]string{"", throttle.Global, "tenant", "domain"}).Draw(t, "of")
	mode := rapid.SampledFrom([]throttle.Mode{-1, throttle.Enforce, throttle.Shadow, throttle.Off}).Draw(t, "mode")
	if mode < 0 {
		same(t, "ResetMode", true, true, h.redis.ResetMode(h.now, scope), h.model.ResetMode(h.now, scope))
		delete(h.set.modes, scope)
		return
	}
	same(t, "SetMode", true, true, h.redis.SetMode(h.now, scope, mode), h.model.SetMode(h.now, scope, mode))
	h.set.modes[scope] = mode
}

// drawOverridden draws a scope key, or a scope for all its keys.
func (h *machine) drawOverridden(t *rapid.T) (throttle.Scope, string) {
	scope, key := h.drawKey(t)
	if rapid.Bool().Draw(t, "all keys") {
		key = ""
	}
	return scope, key
}

func same[T any](t *rapid.T, call string, got, want T, gotErr, wantErr error) {
	t.Helper()
	var gotLate, wantLate *throttle.DeadlineError
	if errors.As(wantErr, &wantLate) && errors.As(gotErr, &gotLate) {
		gotErr, wantErr = nil, nil
		if diff := cmp.Diff(wantLate, gotLate); diff != "" {
			t.Fatalf("%s (-model +script):\n%s", call, diff)
		}
	}
	var gotBlocked, wantBlocked *throttle.BlockedError
	var gotNever, wantNever *throttle.NeverFitsError
	if errors.As(wantErr, &wantBlocked) && errors.As(gotErr, &gotBlocked) && *gotBlocked == *wantBlocked ||
		errors.As(wantErr, &wantNever) && errors.As(gotErr, &gotNever) && *gotNever == *wantNever {
		return
	}
	if gotErr != nil || wantErr != nil {
		t.Fatalf("%s: script says %v, model says %v", call, gotErr, wantErr)
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(throttle.Reservation{}, "Ledgers")); diff != "" {
		t.Fatalf("%s (-model +script):\n%s", call, diff)
	}
}
