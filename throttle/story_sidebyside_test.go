package throttle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// sideBySide is two processes with the same throttle and different global limits. Each
// observes its own calls to Redis.
type sideBySide struct {
	a, b *scripted
	told [2]*heard
}

func newSideBySide(t testing.TB, client *redis.Client, a, b []throttle.Limit) sideBySide {
	t.Helper()
	s := sideBySide{told: [2]*heard{new(heard), new(heard)}}
	first := newThrottle(t, client, globalScope(a...), &throttle.Options{Observer: s.told[0]})
	s.a = newScripted(first)
	s.b = newScripted(sameAs(t, client, first, globalScope(b...), throttle.Options{Observer: s.told[1]}))
	return s
}

// ask reserves one unit for a job, and returns the decision as text.
func (s sideBySide) ask(t testing.TB, who *scripted, at time.Duration, id string) string {
	t.Helper()
	r, err := who.Reserve(dawn.Add(at), throttle.Job{ID: id, Weight: 1})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s at %s", outcomeOf(r), r.Start.Sub(dawn))
}

func (s sideBySide) expect(t testing.TB, who *scripted, at time.Duration, id, want string) {
	t.Helper()
	if got := s.ask(t, who, at, id); got != want {
		t.Errorf("%s after %s: %s, want %s", id, at, got, want)
	}
}

// TestConfigurationsSideBySide: each process decides by its own limits, and counts what
// the other has started and booked. Limits that are set in Redis hold for both.
func TestConfigurationsSideBySide(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := newSideBySide(t, client, []throttle.Limit{throttle.Per(2, 10*time.Second)},
			[]throttle.Limit{throttle.Per(4, 10*time.Second)})
		s.expect(t, s.a, 0, "a1", "granted at 0s")
		s.expect(t, s.b, time.Second, "b1", "granted at 1s")
		s.expect(t, s.a, 2*time.Second, "a2", "booked by global 2/10s at 10s")
		s.expect(t, s.b, 2*time.Second, "b2", "granted at 2s")
		s.expect(t, s.a, 2*time.Second, "a3", "booked by global 2/10s at 12s")
		s.expect(t, s.b, 2*time.Second, "b3", "granted at 2s")
		s.expect(t, s.b, 2*time.Second, "b4", "booked by global 4/10s at 11s")
		if err := s.a.SetLimits(dawn.Add(3*time.Second), throttle.Global, "",
			[]throttle.Limit{throttle.Per(5, 10*time.Second)}, time.Time{}); err != nil {
			t.Fatal(err)
		}
		s.expect(t, s.b, 3*time.Second, "b5", "granted at 3s")
		s.expect(t, s.a, 3*time.Second, "a4", "booked by global 5/10s at 12s")
		for name, scripts := range map[string][]string{"a": s.told[0].scripts(), "b": s.told[1].scripts()} {
			want := []string{"reserve", "reserve", "reserve", "set", "reserve"}
			if name == "b" {
				want = []string{"reserve", "reserve", "reserve", "reserve", "reserve"}
			}
			if diff := cmp.Diff(want, scripts); diff != "" {
				t.Errorf("scripts of %s (-want +got):\n%s", name, diff)
			}
		}
	})
}

// TestPrecisionsSideBySide: the process that asks first decides the precision of a ledger. It holds
// for both processes, as long as the ledger has entries. Each decision takes one call.
func TestPrecisionsSideBySide(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		exact := throttle.Limit{Units: 2, Window: 10 * time.Second, Precision: throttle.Exact}
		coarse := throttle.Limit{Units: 2, Window: 10 * time.Second, Precision: time.Second}
		s := newSideBySide(t, client, []throttle.Limit{exact}, []throttle.Limit{coarse})
		s.expect(t, s.a, 300*time.Millisecond, "a1", "granted at 300ms")
		s.expect(t, s.b, 1300*time.Millisecond, "b1", "granted at 1.3s")
		s.expect(t, s.a, 2*time.Second, "a2", "booked by global 2/10s@1µs at 10.3s")
		s.expect(t, s.b, 2*time.Second, "b2", "booked by global 2/10s@1s at 11.3s")
		s.expect(t, s.a, 10300*time.Millisecond, "a2", "granted at 10.3s")
		s.expect(t, s.b, 11300*time.Millisecond, "b2", "granted at 11.3s")
		// At 22.5 s the ledger is empty, and begins anew, with the precision of b.
		s.expect(t, s.b, 22500*time.Millisecond, "b3", "granted at 22.5s")
		s.expect(t, s.a, 22500*time.Millisecond, "a3", "granted at 22.5s")
		s.expect(t, s.a, 22500*time.Millisecond, "a4", "booked by global 2/10s@1µs at 33s")
		// Limits set at run time behave the same: units hold at once, a precision when the ledger is empty.
		if err := s.a.SetLimits(dawn.Add(23*time.Second), throttle.Global, "", []throttle.Limit{exact},
			time.Time{}); err != nil {
			t.Fatal(err)
		}
		s.expect(t, s.b, 23*time.Second, "b4", "booked by global 2/10s at 33s")
		for name, scripts := range map[string][]string{"a": s.told[0].scripts(), "b": s.told[1].scripts()} {
			want := map[string]int{"a": 6, "b": 5}[name] // one for each decision, and one for the setting
			if len(scripts) != want {
				t.Errorf("%s called %v, want %d calls", name, scripts, want)
			}
		}
	})
}

// TestWindowsSideBySide: if the windows of two processes differ, each process also charges the windows
// of the other, once the other has asked for the first time. Each decision takes one call.
func TestWindowsSideBySide(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := newSideBySide(t, client, []throttle.Limit{throttle.Per(3, 10*time.Second)},
			[]throttle.Limit{throttle.PerMinute(5)})
		s.expect(t, s.a, 0, "a1", "granted at 0s")
		s.expect(t, s.b, 1*time.Second, "b1", "granted at 1s")
		s.expect(t, s.a, 2*time.Second, "a2", "granted at 2s")
		s.expect(t, s.a, 3*time.Second, "a3", "booked by global 3/10s at 10s")
		s.expect(t, s.b, 4*time.Second, "b2", "granted at 4s")
		s.expect(t, s.a, 10*time.Second, "a3", "booked by global 3/10s at 11s")
		// The minute of b has counted b1, a2 and b2, and the booking of a3.
		s.expect(t, s.b, 11*time.Second, "b3", "granted at 11s")
		s.expect(t, s.b, 11*time.Second, "b4", "booked by global 5/1m at 1m1s")
		if n := len(s.told[1].scripts()); n != 4 {
			t.Errorf("b made %d calls for 4 decisions, each after one of a", n)
		}
	})
}

// TestPlanOfALongerLookahead: a job that one process plans keeps its slot although another process pulls, whose
// lookahead does not reach the slot.
func TestPlanOfALongerLookahead(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := globalScope(throttle.Per(1, 5*time.Second))
		first := newThrottle(t, client, scopes, &throttle.Options{Lookahead: 10 * time.Second})
		planner := newScripted(first)
		other := newScripted(sameAs(t, client, first, scopes, throttle.Options{Lookahead: time.Second}))
		job := throttle.Job{ID: "planned", Weight: 1, Plan: true}
		comes(t, planner, 0, throttle.Job{ID: "first", Weight: 1}, throttle.Granted)
		slot := comes(t, planner, 0, job, throttle.Booked).Start
		pulled, err := other.Pull(dawn.Add(time.Second))
		if err != nil || len(pulled.Overdue) > 0 || len(pulled.Booked) != 1 || !pulled.Booked[0].Start.Equal(slot) {
			t.Errorf("pulled %+v, %v; want the planned job with its slot, %s", pulled, err, slot)
		}
		job.Plan = false
		comes(t, other, slot.Sub(dawn), job, throttle.Granted)
	})
}

// TestTurnsSideBySide: each start of one process counts once for the other, however often they take
// turns. Only the first start of a does not count for b: the window of b did not exist yet.
func TestTurnsSideBySide(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := newSideBySide(t, client, []throttle.Limit{throttle.Per(1000, 10*time.Second)},
			[]throttle.Limit{throttle.PerMinute(1000)})
		for i := range 20 {
			at := time.Duration(i) * 50 * time.Millisecond
			s.expect(t, s.a, at, fmt.Sprint("a", i), fmt.Sprintf("granted at %s", at))
			s.expect(t, s.b, at, fmt.Sprint("b", i), fmt.Sprintf("granted at %s", at))
		}
		for name, want := range map[string]struct {
			who  *scripted
			used int64
		}{"a": {s.a, 40}, "b": {s.b, 39}} {
			usage, err := want.who.Usage(dawn.Add(time.Second), throttle.Global, "")
			if err != nil || usage.Limits[0].Used != want.used {
				t.Errorf("%s: %d units used, %v; want %d", name, usage.Limits[0].Used, err, want.used)
			}
		}
	})
}

// counting models which starts the windows of a scope key count. An empty window begins anew when a
// process asks for it.
type counting struct {
	starts []time.Time
	since  map[time.Duration]int       // by window: the index of the first start that it counts
	until  map[time.Duration]time.Time // by window: the last instant at which it is not empty
}

// asked notes that a process with these limits asked.
func (c *counting) asked(limits []throttle.Limit, at time.Time) {
	for _, limit := range limits {
		if until, is := c.until[limit.Window]; !is || until.Before(at) {
			c.since[limit.Window], c.until[limit.Window] = len(c.starts), at
		}
	}
}

// started notes that a job has started.
func (c *counting) started(at time.Time) {
	c.starts = append(c.starts, at)
	for window, until := range c.until {
		if end := at.Add(window - time.Microsecond); !until.Before(at) && end.After(until) {
			c.until[window] = end
		}
	}
}

// most returns how many starts the fullest window of this length holds that contains an instant.
func (c *counting) most(at time.Time, window time.Duration) int64 {
	known := startLog{of: make(map[string]counted)}
	for i, start := range c.starts[c.since[window]:] {
		known.of[fmt.Sprint(i)] = counted{at: start, weight: 1, keys: map[string]string{throttle.Global: ""}}
	}
	return known.most(throttle.Global, "", at, window)
}

// TestPropertySideBySide: two processes have limits that differ in units, windows and
// precision. When a process starts a job, its own limits hold, and count the starts of both
// processes since the window began to count.
func TestPropertySideBySide(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		rapid.Check(t, func(t *rapid.T) {
			limits := func(name string) []throttle.Limit {
				var drawn []throttle.Limit
				for _, window := range []time.Duration{time.Second, 10 * time.Second, time.Minute} {
					if rapid.Bool().Draw(t, "has") || len(drawn) == 0 && window == time.Minute {
						drawn = append(drawn, drawLimit([]time.Duration{window}, []int64{2, 5, 10}).Draw(t, name))
					}
				}
				return drawn
			}
			own := [][]throttle.Limit{limits("a"), limits("b")}
			first := newThrottle(t, client, globalScope(own[0]...), nil)
			second, err := throttle.New(first.Name(), client, globalScope(own[1]...),
				&throttle.Options{Timeout: patient, Lookahead: maxWindow})
			if err != nil {
				t.Fatal(err)
			}
			both := []*scripted{newScripted(first), newScripted(second)}
			now, slots, jobs := dawn, make(map[string]time.Time), 0
			windows := &counting{since: make(map[time.Duration]int), until: make(map[time.Duration]time.Time)}
			for i, who := range both { // the windows of both processes begin to count
				id := fmt.Sprint("first", i)
				r, err := who.Reserve(now, throttle.Job{ID: id, Weight: 1})
				if err != nil {
					t.Fatal(err)
				}
				windows.asked(own[i], now)
				if r.Outcome == throttle.Granted {
					windows.started(r.Start)
				}
			}
			t.Repeat(map[string]func(*rapid.T){
				"advance": func(t *rapid.T) {
					now = now.Add(time.Duration(rapid.Int64Range(1, 8_000_000).Draw(t, "step")) * time.Microsecond)
				},
				"reserve": func(t *rapid.T) {
					id := fmt.Sprint("job", jobs)
					if known := rapid.IntRange(0, 2*jobs).Draw(t, "known"); known < jobs {
						id = fmt.Sprint("job", known)
						if slot, booked := slots[id]; booked && slot.After(now) {
							now = slot
						}
					} else {
						jobs++
					}
					who := rapid.IntRange(0, 1).Draw(t, "who")
					r, err := both[who].Reserve(now, throttle.Job{ID: id, Weight: 1})
					if err != nil {
						t.Fatal(err)
					}
					windows.asked(own[who], now)
					if r.Outcome != throttle.Granted {
						slots[id] = r.Start
						return
					}
					windows.started(r.Start)
					for _, limit := range own[who] {
						if most := windows.most(r.Start, limit.Window); most > limit.Units {
							t.Fatalf("%s of process %d at %s: %d units in a window of %s", id, who, r.Start.Sub(dawn), most, limit)
						}
					}
				},
			})
		})
	})
}

// TestF54_ConfigurationsSideBySide: an old and a new process each decide by their own
// configuration, and count what the other has started. A window that only one of them has
// counts from the time when this process asked first.
func TestF54_ConfigurationsSideBySide(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		old := newThrottle(t, client, globalScope(throttle.PerMinute(10), throttle.PerHour(20)), nil)
		changed, err := throttle.New(old.Name(), client, globalScope(throttle.PerHour(5), throttle.PerDay(50)),
			&throttle.Options{Timeout: patient, Lookahead: maxWindow})
		if err != nil {
			t.Fatal(err)
		}
		reserve(t, old, throttle.Job{ID: "1", Weight: 4})
		// The new limit of the hour is below what was used: nothing more starts.
		if got := reserve(t, changed, throttle.Job{ID: "2", Weight: 2}); got.Outcome != throttle.Booked ||
			got.Hold == nil || got.Hold.Limit != throttle.PerHour(5) {
			t.Errorf("lowered: got %+v, want booked because of 5/1h", got)
		}
		reserve(t, changed, throttle.Job{ID: "3", Weight: 1})
		for name, test := range map[string]struct {
			th   *throttle.Throttle
			want []inspect.LimitUsage // Used and Booked
		}{
			"old":     {old, []inspect.LimitUsage{{Used: 5, Booked: 2}, {Used: 5, Booked: 2}}},
			"changed": {changed, []inspect.LimitUsage{{Used: 5, Booked: 2}, {Used: 1, Booked: 2}}}, // the day is new to it
		} {
			usage, err := inspect.New(test.th).Usage(t.Context(), throttle.Global, "")
			if err != nil {
				t.Fatal(err)
			}
			for i := range usage.Limits {
				u := usage.Limits[i]
				usage.Limits[i] = inspect.LimitUsage{Used: u.Used, Booked: u.Booked}
			}
			if diff := cmp.Diff(test.want, usage.Limits); diff != "" {
				t.Errorf("%s: usage (-want +got):\n%s", name, diff)
			}
		}
		// The old configuration allows more in an hour, so it has room at once, until the jobs
		// of both processes fill its minute.
		if got := reserve(t, old, throttle.Job{ID: "4", Weight: 3}); got.Outcome != throttle.Granted {
			t.Errorf("raised: got %+v, want granted", got)
		}
	})
}
