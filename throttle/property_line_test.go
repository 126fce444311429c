package throttle_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestPropertyLine: whatever happens to jobs in line, all of them start. Scope keys are paused, the mode of global
// changes, jobs come late and ask again. In most histories more happens: weights and tenants change, jobs leave,
// Redis' clock steps, and Redis loses keys. What is expected is known from the calls alone:
//   - a line is as long as the jobs that have neither started nor left, unless Redis has lost keys;
//   - without more, a job starts before the later jobs of its lane, unless it has a slot or has lost one;
//   - without more, no window of a tenant is over its limit.
func TestPropertyLine(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		rapid.Check(t, func(t *rapid.T) { newLineHistory(t, client).play() })
	})
}

// lineHistory is a history of TestPropertyLine.
type lineHistory struct {
	t       *rapid.T
	client  *redis.Client
	name    string // of the throttle
	scopes  []throttle.Scope
	subject *scripted
	now     time.Time
	jobs    []*lineJob
	starts  []throttletest.Start

	disturbed bool // more happens
	lossy     bool // Redis loses keys
	forgotten bool // Redis may have forgotten a job, after ten minutes without a word of it
	changed   bool // a booked job has asked with another weight: a line's units may be those of either
}

// lineJob is a job of a lineHistory.
type lineJob struct {
	throttle.Job
	number        int       // in the order in which the jobs came
	slot          time.Time // zero: it waits
	lost          bool      // it came late, or found no room at its slot
	started, left bool
}

func (j *lineJob) isGone() bool { return j.started || j.left }

func newLineHistory(t *rapid.T, client *redis.Client) *lineHistory {
	global := throttle.Scope{Name: throttle.Global, MaxWaiting: throttle.Length{Jobs: 1000}, // the jobs are counted
		Limits: []throttle.Limit{throttle.Per(rapid.SampledFrom([]int64{3, 5, 12}).Draw(t, "limit"), 10*time.Second)}}
	if rapid.Bool().Draw(t, "running") {
		global.Limits = append(global.Limits, throttle.Limit{Units: 4, Running: true, Lease: 20 * time.Second})
	}
	scopes := []throttle.Scope{global,
		{Name: "tenant", Limits: []throttle.Limit{throttle.Per(3, 7*time.Second)}}}
	th := newThrottle(t, client, scopes, &throttle.Options{Grace: 2 * time.Second,
		Lookahead: rapid.SampledFrom([]time.Duration{time.Second, 4 * time.Second}).Draw(t, "lookahead")})
	h := &lineHistory{t: t, client: client, name: th.Name(), scopes: scopes, subject: newScripted(th), now: dawn}
	h.disturbed = rapid.Bool().Draw(t, "disturbed")
	h.lossy = h.disturbed && rapid.Bool().Draw(t, "lossy")
	return h
}

func (h *lineHistory) play() {
	usual := []func(){h.arrive, h.arrive, h.arrive, h.askAgain, h.pause, h.setMode, h.pass, h.pass, h.pass}
	more := []func(){h.change, h.leave, h.stepClock, h.lose}
	if h.disturbed {
		usual = slices.Concat(usual, more)
	}
	for range rapid.IntRange(10, 60).Draw(h.t, "steps") {
		rapid.SampledFrom(usual).Draw(h.t, "what")()
		h.checkLength()
	}
	h.allStart()
	h.checkWindows()
}

// arrive brings a new job.
func (h *lineHistory) arrive() {
	h.now = h.now.Add(time.Microsecond)
	n := len(h.jobs)
	j := &lineJob{number: n, Job: throttle.Job{ID: fmt.Sprint("job", n), Weight: 1, Keys: of(h.drawTenant()),
		Priority: rapid.SampledFrom([]int{0, 0, 2}).Draw(h.t, "priority")}}
	if h.disturbed { // a lighter job may pass
		j.Weight = rapid.Int64Range(1, 3).Draw(h.t, "weight")
	}
	h.jobs = append(h.jobs, j)
	h.ask(j)
}

func (h *lineHistory) drawTenant() string {
	return rapid.SampledFrom([]string{"a", "b"}).Draw(h.t, "tenant")
}

// drawn draws a job that has neither started nor left; nil if there is none.
func (h *lineHistory) drawn() *lineJob {
	i := slices.IndexFunc(h.jobs, func(j *lineJob) bool { return !j.isGone() })
	if i < 0 {
		return nil
	}
	if j := rapid.SampledFrom(h.jobs[i:]).Draw(h.t, "job"); !j.isGone() {
		return j
	}
	return h.jobs[i]
}

func (h *lineHistory) ask(j *lineJob) {
	if j.isGone() {
		return
	}
	r, err := h.subject.Reserve(h.now, j.Job)
	if err != nil {
		h.t.Fatal(err)
	}
	j.lost = j.lost || !j.slot.IsZero() && r.Outcome != throttle.Granted
	j.slot = time.Time{}
	switch r.Outcome {
	case throttle.Booked:
		j.slot = r.Start
	case throttle.Granted:
		j.started = true
		h.starts = append(h.starts, throttletest.Start{At: h.now, Weight: j.Weight, Keys: j.Keys})
		h.checkOrder(j)
	}
}

func (h *lineHistory) askAgain() {
	if j := h.drawn(); j != nil {
		h.ask(j)
	}
}

// change has a job ask with another weight, and perhaps for another tenant.
func (h *lineHistory) change() {
	j := h.drawn()
	if j == nil {
		return
	}
	h.changed, j.Weight = true, rapid.Int64Range(1, 3).Draw(h.t, "weight")
	if rapid.IntRange(0, 3).Draw(h.t, "moves") == 0 {
		j.Keys = of(h.drawTenant())
	}
	h.ask(j)
}

// leave has a job leave, and perhaps come back at once.
func (h *lineHistory) leave() {
	j := h.drawn()
	if j == nil {
		return
	}
	done(h.t, "Leave")(h.subject.Leave(h.now, []string{j.ID}))
	j.left, j.slot = true, time.Time{}
	if rapid.Bool().Draw(h.t, "comes back") {
		j.left = false
		h.ask(j)
	}
}

// stepClock has Redis' clock step. What brings jobs at their slots goes by another clock.
func (h *lineHistory) stepClock() {
	step := rapid.SampledFrom([]time.Duration{
		-2 * time.Hour, -31 * time.Second, -time.Second, -time.Microsecond, time.Hour}).Draw(h.t, "step")
	h.pull()
	h.now = h.now.Add(step)
	h.forgotten = h.forgotten || step == time.Hour
	for _, j := range h.jobs {
		if !j.slot.IsZero() && step < 0 {
			j.slot = j.slot.Add(step)
		}
	}
}

// lose has Redis lose a key.
func (h *lineHistory) lose() {
	if !h.lossy {
		return
	}
	keys, err := h.client.Keys(context.Background(), "thr:{"+h.name+"}*").Result()
	if err != nil {
		h.t.Fatal(err)
	}
	if len(keys) == 0 {
		return
	}
	slices.Sort(keys)
	lost := rapid.SampledFrom(keys).Draw(h.t, "lost")
	done(h.t, "Del")(h.client.Del(context.Background(), lost).Result())
}

func (h *lineHistory) pause() {
	lasts := rapid.SampledFrom([]time.Duration{time.Second, 20 * time.Second}).Draw(h.t, "pause")
	done(h.t, "Pause")(h.subject.Pause(h.now, "tenant", h.drawTenant(), h.now.Add(lasts)))
}

func (h *lineHistory) setMode() {
	mode := rapid.SampledFrom([]throttle.Mode{throttle.Enforce, throttle.Shadow, throttle.Off}).Draw(h.t, "mode")
	done(h.t, "SetMode")(nil, h.subject.SetMode(h.now, throttle.Global, mode, time.Time{}))
}

// pass has time go on. Most jobs come at their slots, if these have come; a few are late.
func (h *lineHistory) pass() {
	h.now = h.now.Add(time.Duration(rapid.Int64Range(0, 5_000_000).Draw(h.t, "for")) * time.Microsecond)
	h.pull()
	h.come(func(j *lineJob) bool {
		if j.slot.Equal(h.now) || rapid.IntRange(0, 9).Draw(h.t, "is on time") > 0 {
			return true
		}
		j.lost = true
		return false
	})
}

// come brings the jobs whose slots have come, if comes says so.
func (h *lineHistory) come(comes func(*lineJob) bool) {
	for _, j := range h.jobs {
		if !j.slot.IsZero() && !j.slot.After(h.now) && comes(j) {
			h.ask(j)
		}
	}
}

func (h *lineHistory) pull() {
	found, err := h.subject.Pull(h.now)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, r := range found.Booked {
		if j := h.find(r); !j.left {
			j.slot = r.Start
		}
	}
	for _, r := range found.Overdue {
		h.ask(h.find(r))
	}
}

func (h *lineHistory) find(r throttle.Reservation) *lineJob {
	i := slices.IndexFunc(h.jobs, func(j *lineJob) bool { return j.ID == r.Job.ID })
	if i < 0 {
		h.t.Fatalf("%s never came", r.Job.ID)
	}
	return h.jobs[i]
}

// checkOrder checks that a job that starts passes no other: each earlier job of its lane has started, or has a slot
// or has lost one.
func (h *lineHistory) checkOrder(started *lineJob) {
	for _, j := range h.jobs[:started.number] {
		inLane := j.Keys["tenant"] == started.Keys["tenant"] && j.Priority == started.Priority
		if inLane && !h.disturbed && !j.isGone() && !j.lost && j.slot.IsZero() {
			h.t.Fatalf("%s starts before %s", started.ID, j.ID)
		}
	}
}

// checkLength compares the length of the line with the jobs that are in it.
func (h *lineHistory) checkLength() {
	if h.lossy || h.forgotten {
		return
	}
	usage, err := h.subject.Usage(h.now, throttle.Global, "")
	if err != nil {
		h.t.Fatal(err)
	}
	var want throttle.Length
	for _, j := range h.jobs {
		if !j.isGone() {
			want.Jobs++
			want.Units += j.Weight
		}
	}
	if h.changed {
		want.Units = usage.Line.Units
	}
	if usage.Line != want {
		h.t.Fatalf("the line has %s, expected %s", usage.Line, want)
	}
}

// checkWindows checks the windows of tenants: their mode is never changed.
func (h *lineHistory) checkWindows() {
	if h.disturbed {
		return
	}
	for _, over := range throttletest.Check(h.scopes[1:], h.starts) {
		h.t.Fatalf("window over its limit: %s", over)
	}
}

// allStart takes back what is set and has time go on until all jobs have started. Now and then all of them ask, as
// asynq has them do.
func (h *lineHistory) allStart() {
	done(h.t, "SetMode")(nil, h.subject.SetMode(h.now, throttle.Global, throttle.Enforce, time.Time{}))
	for _, tenant := range []string{"a", "b"} {
		done(h.t, "Resume")(h.subject.Resume(h.now, "tenant", tenant))
	}
	const often, seldom = 500 * time.Millisecond, time.Minute
	ends := h.now.Add(20 * time.Second * time.Duration(len(h.jobs)+10))
	for asked := h.now; h.now.Before(ends); h.now = h.now.Add(often) {
		h.pull()
		h.come(func(*lineJob) bool { return true })
		if slices.IndexFunc(h.jobs, func(j *lineJob) bool { return !j.isGone() }) < 0 {
			return
		}
		if h.now.Sub(asked) >= seldom {
			asked = h.now
			for _, j := range h.jobs {
				h.ask(j)
			}
		}
	}
	for _, j := range h.jobs {
		if !j.isGone() {
			h.t.Fatalf("%s has not started", j.ID)
		}
	}
}
