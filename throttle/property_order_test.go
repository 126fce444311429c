package throttle_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestPropertyOrder draws histories with a short lookahead, in which most jobs wait in line. The line is pulled when an
// answer says so, and every half second. Every job starts, at its slot and within the limits. No job is passed by a
// later job of its lane that weighs as much or more; a lighter job may fill the gap before a heavier one.
//
// In every other history some jobs come late. Then these jobs may be passed:
//   - late jobs;
//   - jobs that lost their slot to a late job;
//   - jobs with a slot around that of a late job, by jobs that take the room which the late job leaves free;
//   - jobs that wait, by a job that comes and takes over the slot of a late job of its lane.
func TestPropertyOrder(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		rapid.Check(t, func(t *rapid.T) { order(t, client) })
	})
}

// How often the crew of these tests pulls: at most, and at least while jobs are in line.
const (
	soonest = 50 * time.Millisecond
	anyway  = 500 * time.Millisecond
)

func order(t *rapid.T, client *redis.Client) {
	const longest = 3 * time.Second
	scopes := drawScopesOf(t, 500*time.Millisecond, time.Second, longest)
	options := drawOptions(t)
	options.Lookahead = rapid.SampledFrom(
		[]time.Duration{100 * time.Millisecond, 300 * time.Millisecond, time.Second, 2 * time.Second}).Draw(t, "near")
	c := &crew{
		subject: newScripted(newThrottle(t, client, scopes, &options)),
		now:     historiesBegin,
		jobs:    make(map[string]throttle.Job), excused: make(map[string]bool), around: make(map[string]bool),
	}
	c.arrivals = drawArrivals(t, scopes, c.now)
	for _, job := range c.arrivals {
		c.jobs[job.ID] = job.Job
	}
	const latest = 7 * time.Second // the longest grace is over
	if rapid.Bool().Draw(t, "some are late") {
		c.late = make(map[string]time.Duration)
		onTime := rapid.Just(int64(0))
		for _, job := range c.arrivals {
			c.late[job.ID] = time.Duration(rapid.OneOf(onTime, onTime, onTime, onTime,
				rapid.Int64Range(1, 1_000_000), rapid.Int64Range(1, latest.Microseconds())).
				Draw(t, "late")) * time.Microsecond
		}
	}
	// Were they all to start one by one, each would wait for the longest window, of
	// which sub-windows can make two, and for a pull, and come late.
	last := c.arrivals[len(c.arrivals)-1].at
	end := last.Add(time.Duration(len(c.arrivals)+1) * (2*longest + options.Lookahead + latest + 2*time.Second))
	for len(c.starts) < len(c.jobs) {
		c.step(t)
		if c.now.After(end) {
			t.Fatalf("%s after the last arrival %d of %d jobs have started", c.now.Sub(last), len(c.starts), len(c.jobs))
		}
	}
	inOrder(t, c)
	starts := make([]throttletest.Start, len(c.starts))
	for i, s := range c.starts {
		starts[i] = throttletest.Start{At: s.at, Weight: s.Weight, Keys: s.Keys}
	}
	for _, over := range throttletest.Check(scopes, starts) {
		t.Fatalf("window over its limit: %s", over)
	}
}

// drawArrivals draws jobs in the order of their arrival, every other time all of one weight.
func drawArrivals(t *rapid.T, scopes []throttle.Scope, now time.Time) []happening {
	heaviest := (&machine{}).lightest(scopes...)
	if rapid.Bool().Draw(t, "of one weight") {
		heaviest = 1
	}
	arrivals := make([]happening, rapid.IntRange(1, 30).Draw(t, "jobs"))
	for i := range arrivals {
		now = now.Add(
			time.Duration(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 400_000),
				rapid.Int64Range(0, 3_000_000)).Draw(t, "gap")) * time.Microsecond)
		job := throttle.Job{
			ID:     fmt.Sprintf("job%d", i),
			Weight: rapid.Int64Range(1, heaviest).Draw(t, "weight"),
			Keys:   map[string]string{"tenant": rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant")},
		}
		if domain := rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "domain"); domain != "" {
			job.Keys["domain"] = domain
		}
		arrivals[i] = happening{Job: job, at: now}
	}
	return arrivals
}

// happening is a job at an instant: its arrival, its slot or its start.
type happening struct {
	throttle.Job
	at time.Time
}

// failer is a test, or a check of a property.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// crew does what the workers do: brings jobs when they arrive and at their slots, and
// pulls the line when it is due.
type crew struct {
	subject  *scripted
	now      time.Time
	pulled   time.Time // when it pulled last; zero: never
	next     time.Time // when the last answer says to pull; zero: nothing waits
	jobs     map[string]throttle.Job
	arrivals []happening // in order; those of the past are kept
	arrived  int
	slots    []happening // ahead, in order
	starts   []happening
	late     map[string]time.Duration // how long after its first slot a job comes
	excused  map[string]bool          // who is late, lost its slot to one that was, or took over its slot
	around   map[string]bool          // who was given a slot while one of these had one
	belated  bool                     // a late one has come
}

// due returns when to pull next, while a job is in line.
func (c *crew) due() time.Time {
	due := c.pulled.Add(anyway)
	if !c.next.IsZero() && c.next.Before(due) {
		due = later(c.next, c.pulled.Add(soonest))
	}
	return later(c.now, due)
}

// step goes to what comes next and does it: a slot before an arrival before a pull.
func (c *crew) step(t failer) {
	due := c.due()
	slot, arrival := len(c.slots) > 0, c.arrived < len(c.arrivals)
	idle := c.arrived == len(c.starts)+len(c.slots) // nobody is in line, there is nothing to pull
	if slot && arrival && c.arrivals[c.arrived].at.Before(c.slots[0].at) {
		slot = false
	}
	switch {
	case slot && (idle || !c.slots[0].at.After(due)):
		job := c.slots[0]
		c.slots = c.slots[1:]
		c.bring(t, job, true)
	case !slot && arrival && (idle || !c.arrivals[c.arrived].at.After(due)):
		c.arrived++
		c.bring(t, c.arrivals[c.arrived-1], false)
	default:
		c.now = due
		c.pull(t)
	}
}

// bring asks for a job. At its slot the job must be granted, unless a late job has come.
func (c *crew) bring(t failer, job happening, atSlot bool) {
	c.now = job.at
	r, err := c.subject.Reserve(c.now, job.Job)
	if err != nil {
		t.Fatal(err)
	}
	if r.Outcome == throttle.Granted && !atSlot && c.awaits(job) {
		c.excused[job.ID], c.belated = true, true
	}
	switch {
	case r.Outcome == throttle.Granted && r.Start.Equal(c.now):
		c.starts = append(c.starts, job)
	case atSlot && !c.excused[job.ID] && !c.belated || r.Outcome == throttle.Granted:
		t.Fatalf("%s comes at %s, at its slot: %t; it is %s, %s", job.ID, c.now, atSlot, r.Outcome, r.Start)
	case r.Outcome == throttle.Booked:
		c.keep(t, r)
	}
	if atSlot && r.Outcome != throttle.Granted {
		c.excused[job.ID] = true
		for _, other := range c.slots {
			c.around[other.ID] = true
		}
	}
	c.belated = c.belated || atSlot && c.excused[job.ID]
	c.next = r.Next
}

// awaits reports whether a late job of the same lane has not come.
func (c *crew) awaits(job happening) bool {
	return slices.ContainsFunc(c.slots, func(other happening) bool { return c.excused[other.ID] && sameLane(job, other) })
}

func sameLane(a, b happening) bool {
	return a.Keys["tenant"] == b.Keys["tenant"] && a.Keys["domain"] == b.Keys["domain"]
}

// pull books the jobs whose turn has come.
func (c *crew) pull(t failer) {
	pulled, err := c.subject.Pull(c.now)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range pulled.Overdue {
		if !c.excused[r.Job.ID] {
			t.Fatalf("Pull finds %s overdue, which came at its slot", r.Job.ID)
		}
	}
	for _, r := range pulled.Booked {
		c.keep(t, r)
	}
	c.pulled, c.next = c.now, pulled.Next
}

func (c *crew) keep(t failer, r throttle.Reservation) {
	if r.Start.Before(c.now) {
		t.Fatalf("at %s job %s has the slot %s", c.now, r.Job.ID, r.Start)
	}
	for _, other := range c.slots {
		if c.excused[other.ID] {
			c.around[r.Job.ID] = true
		}
	}
	late := c.late[r.Job.ID]
	if late > 0 {
		c.excused[r.Job.ID] = true
		delete(c.late, r.Job.ID)
	}
	c.slots = append(c.slots, happening{Job: c.jobs[r.Job.ID], at: r.Start.Add(late)})
	slices.SortStableFunc(c.slots, func(a, b happening) int { return a.at.Compare(b.at) })
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// inOrder looks at every two jobs of a lane.
func inOrder(t *rapid.T, c *crew) {
	started := make(map[string]time.Time)
	for _, start := range c.starts {
		if _, twice := started[start.ID]; twice {
			t.Fatalf("job %s started twice", start.ID)
		}
		started[start.ID] = start.at
	}
	for i, first := range c.arrivals {
		if started[first.ID].Before(first.at) {
			t.Fatalf("job %s started at %s, before it arrived at %s", first.ID, started[first.ID], first.at)
		}
		for _, second := range c.arrivals[i+1:] {
			if c.excused[first.ID] || c.around[first.ID] || c.excused[second.ID] {
				continue
			}
			if sameLane(first, second) && second.Weight >= first.Weight && started[second.ID].Before(started[first.ID]) {
				t.Fatalf("%s (weight %d) started at %s, %s of the same lane (weight %d), which came after it, at %s",
					first.ID, first.Weight, started[first.ID], second.ID, second.Weight, started[second.ID])
			}
		}
	}
}
