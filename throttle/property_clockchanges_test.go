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

// TestPropertyClockChanges: Redis' clock steps back and forth while what has started is settled,
// refunded, released, ends and is renewed, while scope keys are paused and set, upstreams report, and the mode
// of global changes. Weights are light, or near the whole of the lowest limit. By a time that
// goes on with the clock and stands still where it steps back, each start finds its windows and
// places within their limits.
func TestPropertyClockChanges(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		rapid.Check(t, func(t *rapid.T) { newClocked(t, client).play(t) })
	})
}

// clocked is a history of TestPropertyClockChanges.
type clocked struct {
	scopes  []throttle.Scope // global, perhaps with places, and tenant
	lease   time.Duration    // of the places; 0: there are none
	weights []int64
	subject *scripted
	now     time.Time     // by Redis' clock
	passed  time.Duration // by the time that does not step back
	jobs    int
	starts  []*clockedStart
	waiting []throttle.Job
	shadow  bool // the mode of global
}

// clockedStart is a start that was granted.
type clockedStart struct {
	throttle.Reservation
	at      time.Duration // by the time that does not step back
	units   int64
	settled bool
	until   time.Duration // of its place
}

func newClocked(t *rapid.T, client *redis.Client) *clocked {
	distinct := func(l throttle.Limit) time.Duration { return l.Window }
	windows := []time.Duration{time.Second, 7 * time.Second, time.Minute, 10 * time.Minute}
	global := throttle.Scope{Name: throttle.Global,
		Limits: rapid.SliceOfNDistinct(drawLimit(windows, []int64{2, 5, 30, 60, 101, 1000}), 1, 2,
			distinct).Draw(t, "limits")}
	tenant := throttle.Scope{Name: "tenant",
		Limits: []throttle.Limit{drawLimit(windows[1:3], []int64{10, 60, 101}).Draw(t, "tenant's limit")}}
	c := &clocked{now: dawn}
	if rapid.Bool().Draw(t, "places") {
		c.lease = rapid.SampledFrom([]time.Duration{2 * time.Second, 30 * time.Second, 5 * time.Minute}).Draw(t, "lease")
		global.Limits = append(global.Limits,
			throttle.Limit{Units: rapid.SampledFrom([]int64{2, 3, 10}).Draw(t, "at once"), Running: true, Lease: c.lease})
		global.Cooldown = rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(t, "cool-down")
	}
	global.Floor, tenant.Floor = 0.5, 0.3
	c.scopes = []throttle.Scope{global, tenant}
	for _, l := range slices.Concat(global.Limits, tenant.Limits) {
		c.weights = append(c.weights, l.Units)
	}
	least := slices.Min(c.weights)
	c.weights = []int64{1, 1, 1, 1, min(2, least), min(2, least), min(30, least), min(30, least), max(1, least-1), least}
	c.subject = newScripted(newThrottle(t, client, c.scopes, &throttle.Options{
		Lookahead: rapid.SampledFrom([]time.Duration{100 * time.Millisecond, time.Second}).Draw(t, "lookahead"),
		Grace:     rapid.SampledFrom([]time.Duration{time.Millisecond, 5 * time.Second}).Draw(t, "grace"),
	}))
	return c
}

func (c *clocked) play(t *rapid.T) {
	t.Repeat(map[string]func(*rapid.T){
		"arrive":  c.arrive,
		"arrive ": c.arrive,
		"pass": func(t *rapid.T) {
			c.pass(
				rapid.SampledFrom([]time.Duration{time.Millisecond, 300 * time.Millisecond, time.Second,
					5 * time.Second, 20 * time.Second, 61 * time.Second, 10 * time.Minute}).Draw(t, "for"))
		},
		"step": func(t *rapid.T) {
			by := rapid.SampledFrom([]time.Duration{-time.Millisecond, -time.Second, -10 * time.Second,
				-29 * time.Second, -31 * time.Second, -2 * time.Minute, -time.Hour, 10 * time.Second, time.Hour}).Draw(t, "by")
			c.now = c.now.Add(by)
			c.passed += max(0, by)
		},
		"again":  func(t *rapid.T) { c.ask(t, c.takeWaiting(t)) },
		"cancel": func(t *rapid.T) { done(t, "Cancel")(c.subject.Cancel(c.now, c.takeWaiting(t))) },
		"pull":   func(t *rapid.T) { done(t, "Pull")(c.subject.Pull(c.now)) },
		"pause": func(t *rapid.T) {
			until := c.now.Add(rapid.SampledFrom(
				[]time.Duration{time.Microsecond, time.Second, 10 * time.Second}).Draw(t, "for"))
			done(t, "Pause")(c.subject.Pause(c.now, throttle.Global, "", until))
		},
		"set": func(t *rapid.T) {
			done(t, "SetLimits")(nil, c.subject.SetLimits(c.now, throttle.Global, "", c.scopes[0].Limits, time.Time{}))
		},
		"report": c.report,
		"mode":   c.setMode,
		"settle": func(t *rapid.T) {
			s := c.pick(t, func(s *clockedStart) bool { return !s.settled && s.at <= c.passed })
			c.settle(t, s, rapid.SampledFrom([]int64{0, 0, 1, 3, 40}).Draw(t, "actual"))
		},
		"refund the newest": func(t *rapid.T) {
			if len(c.starts) > 0 && !c.starts[len(c.starts)-1].settled {
				c.settle(t, c.starts[len(c.starts)-1], 0)
			}
		},
		"release": c.release,
		"done":    c.end,
		"renew":   c.renew,
	})
}

func (c *clocked) report(t *rapid.T) {
	r := throttle.Report{
		Refused:    rapid.Bool().Draw(t, "refused"),
		RetryAfter: rapid.SampledFrom([]time.Duration{0, 0, time.Second, time.Minute}).Draw(t, "asks to wait"),
	}
	if ago := rapid.SampledFrom([]time.Duration{-1, 0, time.Second, time.Hour}).Draw(t, "started"); ago >= 0 {
		r.Started = c.now.Add(-ago)
	}
	if rapid.Bool().Draw(t, "says what is left") {
		r.Limits = []throttle.ReportedLimit{{Units: rapid.SampledFrom([]int64{1, 5, 1000}).Draw(t, "of"),
			Remaining: rapid.SampledFrom([]int64{0, 1, 900}).Draw(t, "left")}}
	}
	scope, key := throttle.Global, ""
	if rapid.Bool().Draw(t, "of a tenant") {
		scope, key = "tenant", "a"
	}
	done(t, "Report")(c.subject.Report(c.now, scope, key, r))
}

// setMode changes the mode of global. Starts in shadow count, and may exceed the limits.
func (c *clocked) setMode(t *rapid.T) {
	c.shadow = rapid.SampledFrom([]bool{false, false, true}).Draw(t, "shadow")
	mode := throttle.Enforce
	if c.shadow {
		mode = throttle.Shadow
	}
	done(t, "SetMode")(nil, c.subject.SetMode(c.now, throttle.Global, mode, time.Time{}))
}

func (c *clocked) pass(d time.Duration) { c.now, c.passed = c.now.Add(d), c.passed+d }

func (c *clocked) arrive(t *rapid.T) {
	for range rapid.SampledFrom([]int{1, 3, 20, 40}).Draw(t, "jobs") {
		c.jobs++
		c.ask(t, throttle.Job{
			ID: fmt.Sprint(c.jobs), Keys: of(rapid.SampledFrom([]string{"a", "a", "b"}).Draw(t, "tenant")),
			Weight:  rapid.SampledFrom(c.weights).Draw(t, "weight"),
			MaxWait: rapid.SampledFrom([]time.Duration{0, 0, time.Second, time.Minute}).Draw(t, "wait"),
		})
		c.pass(
			rapid.SampledFrom([]time.Duration{0, time.Microsecond, time.Millisecond, 200 * time.Millisecond}).Draw(t, "gap"))
	}
}

func (c *clocked) ask(t *rapid.T, job throttle.Job) {
	r, err := c.subject.Reserve(c.now, job)
	if err != nil {
		t.Fatal(err)
	}
	if r.Outcome != throttle.Granted {
		c.waiting = append(c.waiting, job)
		return
	}
	s := &clockedStart{Reservation: r, at: c.passed + r.Delay(), units: job.Weight}
	s.until = s.at + c.lease
	c.starts = append(c.starts, s)
	c.checkWindows(t, s)
	c.checkPlaces(t, s)
}

// checkWindows checks all windows that contain a start, except windows that were over their limit
// before: a settlement for more has made these a debt.
func (c *clocked) checkWindows(t *rapid.T, started *clockedStart) {
	for _, scope := range c.scopes {
		if c.shadow && scope.Name == throttle.Global {
			continue
		}
		var all []throttletest.Start
		for _, s := range c.starts {
			all = append(all, throttletest.Start{At: dawn.Add(s.at), Weight: s.units, Keys: s.Job.Keys})
		}
		for _, over := range throttletest.Check([]throttle.Scope{windowsOf(scope)}, all) {
			after := over.End.Sub(dawn.Add(started.at))
			if after >= 0 && after < over.Limit.Window && over.Key == started.Job.Keys[scope.Name] {
				t.Fatalf("%s at %s, by the clock %s: %s", started.Job.ID, started.at, c.now.Sub(dawn), over)
			}
		}
	}
}

// windowsOf returns a scope without its running limit.
func windowsOf(scope throttle.Scope) throttle.Scope {
	scope.Limits = slices.DeleteFunc(slices.Clone(scope.Limits), func(l throttle.Limit) bool { return l.Running })
	return scope
}

func (c *clocked) checkPlaces(t *rapid.T, started *clockedStart) {
	var sum int64
	for _, s := range c.starts {
		if s.at <= started.at && s.until > started.at {
			sum += s.Job.Weight
		}
	}
	for _, l := range c.scopes[0].Limits {
		if l.Running && sum > l.Units && !c.shadow {
			t.Fatalf("%s at %s: %d run under %s", started.Job.ID, started.at, sum, l)
		}
	}
}

// takeWaiting draws one of the last jobs that wait.
func (c *clocked) takeWaiting(t *rapid.T) throttle.Job {
	if len(c.waiting) == 0 {
		t.Skip("nobody waits")
	}
	i := rapid.IntRange(max(0, len(c.waiting)-8), len(c.waiting)-1).Draw(t, "who")
	job := c.waiting[i]
	c.waiting = slices.Delete(c.waiting, i, i+1)
	return job
}

// pick draws one of the last starts for which is returns true.
func (c *clocked) pick(t *rapid.T, is func(*clockedStart) bool) *clockedStart {
	var some []*clockedStart
	for _, s := range slices.Backward(c.starts) {
		if is(s) && len(some) < 7 {
			some = append(some, s)
		}
	}
	if len(some) == 0 {
		t.Skip("none is so")
	}
	return rapid.SampledFrom(some).Draw(t, "which")
}

func (c *clocked) settle(t *rapid.T, s *clockedStart, actual int64) {
	is, err := c.subject.Settle(c.now, s.Reservation, actual)
	if err != nil {
		t.Fatal(err)
	}
	if is {
		s.settled, s.units = true, actual
	}
}

func (c *clocked) release(t *rapid.T) {
	s := c.pick(t, func(s *clockedStart) bool { return !s.settled && s.at > c.passed })
	is, err := c.subject.Release(c.now, s.Reservation)
	if err != nil {
		t.Fatal(err)
	}
	if is {
		s.settled, s.units, s.until = true, 0, 0
		c.waiting = append(c.waiting, s.Job)
	}
}

func (c *clocked) end(t *rapid.T) {
	s := c.pick(t, func(s *clockedStart) bool { return s.at <= c.passed && s.until > c.passed })
	held, err := c.subject.Done(c.now, s.Reservation)
	if err != nil {
		t.Fatal(err)
	}
	s.until = c.passed
	if held[0] {
		s.until += c.scopes[0].Cooldown
	}
}

func (c *clocked) renew(t *rapid.T) {
	s := c.pick(t, func(s *clockedStart) bool { return s.at <= c.passed && s.until > c.passed })
	held, err := c.subject.Renew(c.now, s.Reservation)
	if err != nil {
		t.Fatal(err)
	}
	if held[0] {
		s.until = max(s.until, c.passed+c.lease)
	}
}

// TestSpillKeepsTime: entries that go into a ledger's log with a write that charges nothing, here a
// pause, stay before later starts, even if the clock then steps back and the newest start is
// refunded.
func TestSpillKeepsTime(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := tenantAndGlobal(throttle.Limit{Units: 200, Window: 20 * time.Second, Precision: throttle.Exact},
			throttle.Limit{Units: 600, Window: time.Minute, Precision: throttle.Exact})
		s := newScripted(newThrottle(t, client, scopes, &throttle.Options{Lookahead: time.Minute}))
		var starts []throttletest.Start
		ask := func(at time.Duration, id, tenant string, weight int64, wait time.Duration) throttle.Reservation {
			t.Helper()
			r, err := s.Reserve(dawn.Add(at), throttle.Job{ID: id, Weight: weight, Keys: of(tenant), MaxWait: wait})
			if err != nil {
				t.Fatal(err)
			}
			if r.Outcome == throttle.Granted {
				starts = append(starts, throttletest.Start{At: r.Start, Weight: weight})
			}
			return r
		}
		for i := range 20 {
			ask(time.Duration(i-19)*time.Second, fmt.Sprint("before", i), "a", 10, 0)
		}
		var last throttle.Reservation
		for i := range 19 { // for the next seconds, one after the other
			last = ask(0, fmt.Sprint("ahead", i), "a", 10, time.Minute)
		}
		if _, err := s.Pause(dawn.Add(20*time.Second), throttle.Global, "",
			dawn.Add(20*time.Second+time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		// The clock steps back by 15 s, and the last one has not started.
		if _, err := s.Refund(dawn.Add(5*time.Second), last); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Resume(dawn.Add(5*time.Second), throttle.Global, ""); err != nil {
			t.Fatal(err)
		}
		starts = starts[:len(starts)-1]
		ask(6*time.Second, "other", "b", 1, 0)
		for i := range 20 {
			ask(66*time.Second, fmt.Sprint("after", i), fmt.Sprint("c", i), 50, 0)
		}
		for _, over := range throttletest.Check(scopes[1:], starts) {
			t.Errorf("window over its limit: %s", over)
		}
	})
}

// TestSettleOfAChargeWhileTimeStoodStill: the entry of such a charge lies where time stood still, not
// at the start. When the clock has caught up, settling does not find it, and units beyond the charge
// count from now on.
func TestSettleOfAChargeWhileTimeStoodStill(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := globalScope(throttle.Limit{Units: 10, Window: 5 * time.Minute, Precision: throttle.Exact})
		for name, s := range map[string]throttletest.Subject{
			"scripts": newScripted(newThrottle(t, client, scopes, nil)),
			"model":   throttletest.NewModel(scopes, throttle.Options{Lookahead: maxWindow}),
		} {
			var charged throttle.Reservation
			for i, at := range []time.Duration{50 * time.Second, 40 * time.Second} { // the clock steps back by 10 s
				r, err := s.Reserve(dawn.Add(at), throttle.Job{ID: fmt.Sprint(i), Weight: 1})
				if err != nil || r.Outcome != throttle.Granted {
					t.Fatalf("%s: %s, %v", name, r.Outcome, err)
				}
				charged = r
			}
			later := dawn.Add(time.Minute)
			if _, err := s.Settle(later, charged, 5); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if u, err := s.Usage(later, throttle.Global, ""); err != nil || u.Limits[0].Used != 6 {
				t.Errorf("%s: %d units are used, %v; want 6", name, u.Limits[0].Used, err)
			}
		}
	})
}

// TestCorrectionsAfterAStepBack: until the clock has caught up, the entry at a grant's start may belong
// to another grant. So nothing is given back then, units beyond the charge count, and places of running
// limits are left alone.
func TestCorrectionsAfterAStepBack(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		for _, step := range []time.Duration{-20 * time.Second, -2 * time.Minute} {
			window := throttle.Limit{Units: 10, Window: 5 * time.Minute, Precision: throttle.Exact}
			scopes := globalScope(window, throttle.Limit{Units: 3, Running: true, Lease: time.Hour})
			for name, s := range map[string]throttletest.Subject{
				"scripts": newScripted(newThrottle(t, client, scopes, &throttle.Options{Lookahead: time.Second})),
				"model":   throttletest.NewModel(scopes, throttle.Options{}),
			} {
				name = fmt.Sprintf("%s, a step of %s", name, step)
				ask := func(at time.Duration, id string, weight int64) throttle.Reservation {
					t.Helper()
					r, err := s.Reserve(dawn.Add(at), throttle.Job{ID: id, Weight: weight})
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					return r
				}
				used := func(at time.Duration) (used []int64) {
					t.Helper()
					u, err := s.Usage(dawn.Add(at), throttle.Global, "")
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					for _, l := range u.Limits {
						used = append(used, l.Used)
					}
					return used
				}
				first := ask(0, "first", 1)
				second := ask(50*time.Second, "second", 1)
				back := 51*time.Second + step
				if _, err := s.Refund(dawn.Add(back), first); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if got := used(back); got[0] != 2 || got[1] != 2 {
					t.Errorf("%s: a refund leaves %d used, want both", name, got)
				}
				if _, err := s.Settle(dawn.Add(back), second, 5); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if got := used(back); got[0] != 2 || got[1] != 6 {
					t.Errorf("%s: after one was settled for four more %d are used, want 2 places and 6", name, got)
				}
			}
		}
	})
}
