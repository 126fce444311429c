package throttle_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// driver brings the jobs of a line as a worker does, in the test's own time.
type driver struct {
	t       *testing.T
	server  *miniredis.Miniredis
	script  *scripted
	now     time.Time
	jobs    map[string]throttle.Job
	booked  []throttle.Reservation
	started map[string]time.Time
	absent  func(id string) bool       // who never comes to its slot; nil for nobody
	granted func(throttle.Reservation) // is told of each grant; nil for nobody
	due     time.Time                  // when to pull next, by the last answer
	pulled  time.Time
	pulls   int
}

func newDriver(t *testing.T, scopes []throttle.Scope, opts throttle.Options) *driver {
	t.Helper()
	if opts.Lookahead == 0 {
		opts.Lookahead = time.Second
	}
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	return &driver{
		t: t, server: server, script: newScripted(newThrottle(t, client, scopes, &opts)),
		now:  time.UnixMicro(1_800_000_000_000_000),
		jobs: make(map[string]throttle.Job), started: make(map[string]time.Time),
	}
}

func (d *driver) ask(job throttle.Job) throttle.Reservation {
	d.t.Helper()
	job.Nonce = fmt.Sprint("n", d.now.UnixMicro())
	r, err := d.script.Reserve(d.now, job)
	if err != nil {
		d.t.Fatal(err)
	}
	d.jobs[job.ID], d.due = job, r.Next
	switch r.Outcome {
	case throttle.Granted:
		d.started[job.ID] = r.Start
		if d.granted != nil {
			d.granted(r)
		}
	case throttle.Booked:
		d.booked = append(d.booked, r)
	}
	return r
}

// enqueue asks for jobs that are alike.
func (d *driver) enqueue(n int, name string, weight int64, keys map[string]string) {
	d.t.Helper()
	for i := range n {
		d.ask(throttle.Job{ID: fmt.Sprint(name, i), Weight: weight, Keys: keys})
	}
}

// run lets time pass. It pulls when an answer said so, and every half second anyway, and
// brings each job at its slot.
func (d *driver) run(span, step time.Duration) {
	d.t.Helper()
	for end := d.now.Add(span); d.now.Before(end); {
		d.pass(step)
		if !d.due.IsZero() && !d.due.After(d.now) || d.now.Sub(d.pulled).Abs() >= anyway {
			d.pull()
		}
		due := d.booked
		d.booked = nil
		for _, r := range due {
			if d.absent != nil && d.absent(r.Job.ID) {
				continue
			}
			if r.Start.After(d.now.Add(step)) {
				d.booked = append(d.booked, r)
				continue
			}
			job := d.jobs[r.Job.ID]
			job.MaxWait = step // it comes in time, as a worker's job does
			d.ask(job)
		}
	}
}

// pull pulls until a pull books no job.
func (d *driver) pull() {
	d.t.Helper()
	for {
		found, err := d.script.Pull(d.now)
		if err != nil {
			d.t.Fatal(err)
		}
		d.booked = append(append(d.booked, found.Booked...), found.Overdue...)
		d.due, d.pulled = found.Next, d.now
		d.pulls++
		if len(found.Booked) == 0 || found.Next.IsZero() || found.Next.After(d.now) {
			return
		}
	}
}

func (d *driver) pass(step time.Duration) {
	d.now = d.now.Add(step)
	if step > 0 {
		d.server.FastForward(step)
	}
}

// all fails the test unless this many jobs have started.
func (d *driver) all(want int) {
	d.t.Helper()
	if got := len(d.started); got != want {
		d.t.Errorf("%d jobs have started, want %d", got, want)
	}
}

func tenantsOf(global, tenant throttle.Limit, more ...throttle.Scope) []throttle.Scope {
	return append([]throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{global}},
		{Name: "tenant", Limits: []throttle.Limit{tenant}},
	}, more...)
}

// TestLineOutlivesItsKeys: a backlog is drained to its end, though that takes longer than the line's keys live.
func TestLineOutlivesItsKeys(t *testing.T) {
	t.Parallel()
	d := newDriver(t, globalScope(throttle.Per(1, 10*time.Hour)), throttle.Options{})
	d.enqueue(90, "job", 1, nil)
	d.run(900*time.Hour, longtest.Of(5*time.Hour, 30*time.Minute))
	d.all(90)
}

// TestCancelLeavesNoLaneBehind: a flow that is full waits with one of its lanes. When all jobs of that lane are
// cancelled, the other lanes go on.
func TestCancelLeavesNoLaneBehind(t *testing.T) {
	t.Parallel()
	domain := throttle.Scope{Name: "domain", Limits: []throttle.Limit{throttle.PerSecond(100)}}
	d := newDriver(t, tenantsOf(throttle.PerSecond(100), throttle.Per(2, 10*time.Second), domain), throttle.Options{})
	x, y := map[string]string{"tenant": "a", "domain": "x"}, map[string]string{"tenant": "a", "domain": "y"}
	d.enqueue(4, "before", 1, x)
	d.run(9500*time.Millisecond, 500*time.Millisecond) // two have started, two are booked
	d.enqueue(1, "x", 1, x)
	d.enqueue(1, "y", 1, y)
	d.run(500*time.Millisecond, 500*time.Millisecond)
	for _, id := range []string{"x0", "before2", "before3"} {
		if _, err := d.script.Cancel(d.now, d.jobs[id]); err != nil {
			t.Fatal(err)
		}
	}
	d.run(time.Minute, time.Second)
	if d.started["y0"].IsZero() {
		t.Error("the other lane's job did not start")
	}
}

// TestHeavyHeadIsNotPassedByNewcomers: a job of most of a window stands at the head of
// the line, and a newcomer asks each time a unit becomes free. The head is booked as soon
// as a unit is free, so that it starts within a window, and the others after it.
func TestHeavyHeadIsNotPassedByNewcomers(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	d := newDriver(t, tenantsOf(throttle.PerHour(100), throttle.PerHour(100)), throttle.Options{})
	for i := range 100 {
		d.enqueue(1, fmt.Sprint("first", i, "-"), 1, of("z"))
		d.run(36*time.Second, 36*time.Second)
	}
	d.enqueue(1, "heavy", 90, of("a"))
	d.enqueue(5, "light", 1, of("b"))
	asked := d.now
	for i := range 100 {
		d.enqueue(1, fmt.Sprint("new", i, "-"), 1, of("z"))
		d.run(36*time.Second, 6*time.Second)
	}
	if got := d.started["heavy0"]; got.IsZero() || got.Sub(asked) > time.Hour {
		t.Errorf("the heavy job started at %s, want within an hour after %s", got, asked)
	}
	d.run(3*time.Hour, 30*time.Second)
	d.all(206)
}

// TestClockStepsBackUnderALine: lanes whose timers were set before the clock stepped back are looked at soon after it.
func TestClockStepsBackUnderALine(t *testing.T) {
	t.Parallel()
	d := newDriver(t, globalScope(throttle.Per(5, 10*time.Second)), throttle.Options{})
	d.enqueue(200, "job", 1, nil)
	d.run(time.Minute, 250*time.Millisecond)
	before := len(d.started)
	d.pass(-time.Hour)
	d.booked = nil // they come by their overdue time, an hour later
	d.run(time.Minute, 250*time.Millisecond)
	if got := len(d.started) - before; got < 20 {
		t.Errorf("%d jobs started in the minute after the step, want at least 20", got)
	}
}

// TestRaisedLimitIsSeenByTheLine: a line that waits for a day goes on within five minutes
// after the limit has been raised in the configuration of the process that pulls.
func TestRaisedLimitIsSeenByTheLine(t *testing.T) {
	t.Parallel()
	d := newDriver(t, globalScope(throttle.PerDay(10)), throttle.Options{})
	d.enqueue(30, "job", 1, nil)
	d.run(time.Minute, time.Second)
	raised, err := throttle.New(d.script.throttle.Name(), d.client(), globalScope(throttle.PerDay(90)),
		&throttle.Options{Timeout: patient})
	if err != nil {
		t.Fatal(err)
	}
	d.script = newScripted(raised)
	d.run(5*time.Minute+time.Second, time.Second)
	d.all(30)
}

func (d *driver) client() *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: d.server.Addr()})
	d.t.Cleanup(func() { _ = client.Close() })
	return client
}

// TestForeignLane: one process has a scope that another one lacks, and the other one pulls. The limits of that scope
// hold for the process that has it.
func TestForeignLane(t *testing.T) {
	t.Parallel()
	domain := throttle.Scope{Name: "domain",
		Limits: []throttle.Limit{{Units: 4, Window: 10 * time.Second, Precision: throttle.Exact}}, Optional: true}
	d := newDriver(t, tenantsOf(throttle.PerSecond(2), throttle.PerSecond(2), domain), throttle.Options{})
	full := d.script
	d.enqueue(12, "foreign", 1, map[string]string{"tenant": "a", "domain": "x"})
	d.enqueue(20, "own", 1, of("b"))
	other, err := throttle.New(d.script.throttle.Name(), d.client(),
		tenantsOf(throttle.PerSecond(2), throttle.PerSecond(2)), &throttle.Options{Timeout: patient})
	if err != nil {
		t.Fatal(err)
	}
	pulling := newScripted(other)
	for range 240 {
		d.script = pulling
		d.pass(250 * time.Millisecond)
		d.pull()
		d.script = full
		due := d.booked
		d.booked = nil
		for _, r := range due {
			if job := d.jobs[r.Job.ID]; d.started[r.Job.ID].IsZero() {
				job.MaxWait = time.Second
				d.ask(job)
			}
		}
	}
	d.all(32)
	var starts []throttletest.Start
	for id, at := range d.started {
		starts = append(starts, throttletest.Start{At: at, Weight: 1, Keys: d.jobs[id].Keys})
	}
	for _, over := range throttletest.Check(tenantsOf(throttle.PerSecond(2), throttle.PerSecond(2), domain), starts) {
		t.Errorf("window over its limit: %s", over)
	}
}

// TestForeignDataStopsOneTenant: foreign data under a key of one tenant stops no other tenant.
func TestForeignDataStopsOneTenant(t *testing.T) {
	t.Parallel()
	d := newDriver(t, tenantsOf(throttle.PerSecond(2), throttle.PerSecond(2)), throttle.Options{})
	d.enqueue(20, "a", 1, of("a"))
	d.enqueue(20, "b", 1, of("b"))
	d.booked = nil
	key := "thr:{" + d.script.throttle.Name() + "}:4:key:tenant:a"
	d.server.Del(key)
	if _, err := d.server.Lpush(key, "foreign"); err != nil {
		t.Fatal(err)
	}
	d.run(30*time.Second, 250*time.Millisecond)
	for i := range 20 {
		if id := fmt.Sprint("b", i); d.started[id].IsZero() {
			t.Errorf("job %s did not start", id)
		}
	}
}

// mostUnits is the largest number of units of a limit.
const mostUnits = 1 << 53

// TestVeryManyUnitsInLine: sums of units stay at 2^53 when they would pass it, and tags of that size still move.
func TestVeryManyUnitsInLine(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	d := newDriver(t, tenantsOf(throttle.PerSecond(mostUnits), throttle.PerSecond(mostUnits)), throttle.Options{})
	d.enqueue(1100, "a", mostUnits, of("a"))
	d.enqueue(100, "b", mostUnits, of("b"))
	d.run(150*time.Second, 500*time.Millisecond)
	of := func(name string) (n int) {
		for id := range d.started {
			if id[:1] == name {
				n++
			}
		}
		return n
	}
	if a, b := of("a"), of("b"); a < 60 || b < 60 {
		t.Errorf("a started %d and b %d jobs, want about as many", a, b)
	}
}

// TestAllAreLookedAtAnew: 1,000 tenants wait for limits of their own that are raised for all of them at
// once, and then the clock steps back. No call goes through all of their timers, and each is looked
// at within a second, whatever it waited for.
func TestAllAreLookedAtAnew(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	const tenants = 1000
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := nearly(t, client, tenantAndGlobal(throttle.PerHour(1), throttle.Per(10_000, time.Hour)), throttle.Options{})
		jobs := func(name string, want throttle.Outcome) {
			for i := range tenants {
				comes(t, s, 0, throttle.Job{ID: fmt.Sprintf("%s-%d", name, i), Keys: of(fmt.Sprint("tenant", i))}, want)
			}
		}
		jobs("first", granted)
		jobs("second", waiting)
		jobs("third", waiting)
		booked := 0
		pull := func(from time.Duration) {
			for n := range 40 {
				pulled, err := s.Pull(dawn.Add(from + time.Duration(n)*25*time.Millisecond))
				if err != nil {
					t.Fatal(err)
				}
				booked += len(pulled.Booked)
			}
		}
		if err := s.SetLimits(dawn.Add(time.Minute), "tenant", "", []throttle.Limit{throttle.PerHour(2)},
			time.Time{}); err != nil {
			t.Fatal(err)
		}
		pull(time.Minute)
		if booked != tenants {
			t.Errorf("%d jobs were booked after the limits were raised, want %d", booked, tenants)
		}
		if err := s.SetMode(dawn.Add(2*time.Minute), "tenant", throttle.Shadow, time.Time{}); err != nil {
			t.Fatal(err)
		}
		pull(90 * time.Second) // the clock steps back by half a minute
		if booked != 2*tenants {
			t.Errorf("%d jobs were booked after nothing held them any more, want %d", booked, 2*tenants)
		}
	})
}

// TestLateJobIsNotPassedForEver: a job that always comes a second after its slot stands in a lane to which more jobs
// come than may start. These take over some of its slots, and not all that it gets: it starts soon.
func TestLateJobIsNotPassedForEver(t *testing.T) {
	t.Parallel()
	scopes, options := globalScope(throttle.PerSecond(5)), throttle.Options{Lookahead: time.Second}
	for name, s := range map[string]throttletest.Subject{
		"scripts": newScripted(newThrottle(t, miniClient(t), scopes, &options)),
		"model":   throttletest.NewModel(scopes, options),
	} {
		t.Run(name, func(t *testing.T) { lateJobStarts(t, s) })
	}
}

func lateJobStarts(t *testing.T, s throttletest.Subject) {
	t.Helper()
	comes := make(map[string]time.Time) // the jobs in line that have a slot, and when they come
	now, slots, started := dawn, 0, false
	booked := func(id string, slot time.Time) {
		if id == "late" {
			slots++
			slot = slot.Add(time.Second)
		}
		comes[id] = slot
	}
	ask := func(id string) {
		r, err := s.Reserve(now, throttle.Job{ID: id, Weight: 1})
		if err != nil {
			t.Fatal(err)
		}
		delete(comes, id)
		switch r.Outcome {
		case throttle.Booked:
			booked(id, r.Start)
		case throttle.Granted:
			started = started || id == "late"
		}
	}
	for i := range 20 {
		ask(fmt.Sprint("before", i))
	}
	ask("late")
	for i := 0; i < 1200 && !started; i++ {
		now = now.Add(50 * time.Millisecond)
		pulled, err := s.Pull(now)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range pulled.Booked {
			booked(r.Job.ID, r.Start)
		}
		if i%3 == 0 {
			ask(fmt.Sprint("new", i))
		}
		for _, id := range slices.Sorted(maps.Keys(comes)) {
			if !comes[id].After(now) {
				ask(id)
			}
		}
		for _, r := range pulled.Overdue {
			if r.Job.ID == "late" && comes["late"].IsZero() {
				comes["late"] = now.Add(time.Second)
			}
		}
	}
	t.Logf("it starts after %s, and had %d slots", now.Sub(dawn), slots)
	if !started || slots > 8 {
		t.Errorf("it has started: %t, after %s with %d slots; want a start and at most 8", started, now.Sub(dawn), slots)
	}
}
