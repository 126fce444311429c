package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func usageOf(scope, key string, limits ...inspect.LimitUsage) inspect.Usage {
	return inspect.Usage{Scope: scope, Key: key, Now: noon, Served: 1, Limits: limits}
}

func full(limit throttle.Limit, free time.Duration) inspect.LimitUsage {
	return inspect.LimitUsage{Limit: limit, Units: limit.Units, Used: limit.Units, Free: noon.Add(free),
		Counts: limit.Length()}
}

// TestAnswerNamesWhatBinds: of several limits the answer names that under which the job starts
// last, which need not be the one that its lane waits for now.
func TestAnswerNamesWhatBinds(t *testing.T) {
	t.Parallel()
	global, acme := usageOf(throttle.Global, "", full(throttle.PerSecond(3), 300*time.Millisecond)),
		usageOf("tenant", "acme", full(throttle.PerMinute(30), 20*time.Second))
	one := map[string]int64{throttle.Global: 1, "tenant": 1, "domain": 1}
	lanes := []inspect.Lane{
		{Flow: "acme", Keys: map[string]string{"tenant": "acme", "domain": "a"}, Jobs: 151, Costs: one},
		{Flow: "acme", Keys: map[string]string{"tenant": "acme", "domain": "b"}, Jobs: 230, Costs: one},
	}
	for _, other := range []string{"b", "c", "d"} {
		lanes = append(lanes, inspect.Lane{Flow: other, Keys: map[string]string{"tenant": other}, Jobs: 117,
			Costs: one})
	}
	job := inspect.Explanation{Job: "j", Now: noon, Arrived: noon.Add(-time.Minute), Before: 97, Waiting: 151,
		Costs:   one,
		Blocked: &throttle.Hold{Scope: throttle.Global}, Expected: noon.Add(8*time.Minute + 36*time.Second)}
	paused := usageOf("domain", "a")
	paused.Paused = noon.Add(time.Hour)
	shadow := acme
	shadow.Mode = throttle.Shadow
	day := inspect.LimitUsage{Limit: throttle.PerDay(100_000), Units: 100_000, Used: 3, Free: noon,
		Counts: 24 * time.Hour}
	ages := full(throttle.Per(1, 400*24*time.Hour), 0)
	ages.Used = 500                            // the limit was lowered
	global.Limits = append(global.Limits, day) // it lets all through, however seldom on average
	for name, c := range map[string]struct {
		usage     []inspect.Usage
		key, has  string
		help      string
		untilHour bool
	}{
		"its own": {[]inspect.Usage{global, acme}, "tenant acme",
			"tenant acme has a limit of 30/1m and 381 jobs in line",
			"A higher limit of tenant acme would help.", false},
		"of all": {[]inspect.Usage{global, shadow}, "global",
			"global has a limit of 3/1s, for which 732 jobs of 4 flows take turns", "a higher priority", false},
		"a pause": {[]inspect.Usage{global, acme, paused}, "domain a", "domain a is paused", "Resume it", true},
		"for ages": {[]inspect.Usage{global, usageOf("tenant", "acme", ages)}, "tenant acme",
			"tenant acme has a limit of 1/9600h and 381 jobs in line", "A higher limit", false},
		"closed": {[]inspect.Usage{global,
			usageOf("tenant", "acme", inspect.LimitUsage{Limit: throttle.PerMinute(0)})}, "tenant acme",
			"tenant acme is closed by its limit 0/1m", "higher limit", false},
		"its turn": {[]inspect.Usage{usageOf(throttle.Global, "")}, "", "its turn has not come", "", false},
		"unlimited": {[]inspect.Usage{usageOf("tenant", "acme",
			inspect.LimitUsage{Limit: throttle.PerMinute(throttle.Unlimited)})}, "", "its turn has not come", "", false},
	} {
		of := job
		of.Usage = c.usage
		e := explanationOf("smtp", of)
		e.answer(of, crowdOf(lanes, "tenant"))
		binds := ""
		if e.Binds != nil {
			binds = strings.TrimSpace(e.Binds.Scope + " " + e.Binds.Key)
		}
		if binds != c.key || !strings.Contains(e.Why, c.has) || !strings.Contains(e.Help, c.help) ||
			e.InLine != 732 || e.Until.Equal(noon.Add(time.Hour)) != c.untilHour {
			t.Errorf("%s: %q binds, %q, %q, %d in line, until %s", name, binds, e.Why, e.Help, e.InLine, e.Until)
		}
	}
}

// TestAnswerCountsUnits: where jobs take other units of each scope, the answer names the limit whose
// units they wait for, not the one that counts more jobs; without units to go by, what the lane
// waits for.
func TestAnswerCountsUnits(t *testing.T) {
	t.Parallel()
	costs := map[string]int64{"tokens": 2000, "requests": 1}
	keys := map[string]string{"tokens": "large", "requests": "large"}
	tokens := usageOf("tokens", "large", inspect.LimitUsage{Limit: throttle.PerMinute(200_000), Units: 200_000,
		Used: 199_500, Free: noon, Counts: time.Minute})
	requests := usageOf("requests", "large", inspect.LimitUsage{Limit: throttle.PerMinute(500), Units: 500,
		Used: 90, Free: noon, Counts: time.Minute})
	for name, c := range map[string]struct {
		jobs     int64
		costs    map[string]int64
		has, not string
	}{
		"more jobs than requests": {600, costs, "tokens large has a limit of 200000/1m and 600 jobs of 1200000 units", ""},
		"fewer":                   {20, costs, "tokens large has a limit of 200000/1m and 20 jobs of 40000 units", ""},
		"of no known units":       {600, nil, "its lane waits for tokens large: 200000/1m, 199500 used, 0 booked", "help"},
	} {
		of := inspect.Explanation{Job: "j", Now: noon, Arrived: noon.Add(-time.Minute), Before: c.jobs - 1, Waiting: c.jobs,
			Blocked: &throttle.Hold{Scope: "tokens", Key: "large"}, Usage: []inspect.Usage{requests, tokens}, Costs: c.costs}
		e := explanationOf("llm", of)
		e.answer(of, crowdOf([]inspect.Lane{{Keys: keys, Jobs: c.jobs, Costs: c.costs}}, ""))
		if !strings.Contains(e.Why, c.has) || strings.Contains(e.Why+e.Help, "requests") ||
			strings.Contains(e.Help, "no other") || c.not != "" && strings.Contains(e.Help, c.not) {
			t.Errorf("%s: %q, %q", name, e.Why, e.Help)
		}
	}
}

// TestAnswerOfATask: asynq's reason for holding a task back comes before the throttle's.
func TestAnswerOfATask(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state     string
		task      Task
		why, help string
	}{
		"paused in line": {Waiting, Task{State: "scheduled", Paused: true}, "its queue is paused in asynq",
			"Resume the queue"},
		"pending":   {Unknown, Task{State: "pending"}, "no worker has taken it", "More workers"},
		"archived":  {Unknown, Task{State: "archived"}, "asynq has archived it", "When the cause of its last error"},
		"active":    {Unknown, Task{State: "active"}, "a worker has it now", ""},
		"completed": {Unknown, Task{State: "completed"}, "it has run", ""},
		"put back": {Unknown, Task{State: "retry", PutBack: "throttled: Redis cannot decide", Next: noon.Add(time.Hour)},
			"it was put back, and asynq keeps it", ""},
		"scheduled": {Unknown, Task{State: "scheduled", Next: noon.Add(time.Hour)}, "asynq keeps it", ""},
		"failed": {Unknown, Task{State: "retry", LastError: "421 try later", Next: noon.Add(time.Hour)},
			"it failed, and asynq keeps it for its next try", ""},
		"booked":  {Booked, Task{State: "retry"}, "it has a slot", ""},
		"overdue": {Overdue, Task{State: "retry"}, "it did not come to its slot", "When it asks again"},
	} {
		e := Explanation{State: c.state, Now: noon, Task: &c.task}
		e.answer(inspect.Explanation{Now: noon}, crowd{})
		if !strings.Contains(e.Why, c.why) || !strings.HasPrefix(e.Help, c.help) || c.help == "" && e.Help != "" {
			t.Errorf("%s: %q, %q", name, e.Why, e.Help)
		}
	}
}

// TestHeld: no start is told of a job that does not start when its turn comes.
func TestHeld(t *testing.T) {
	t.Parallel()
	dead := Task{State: "retry", Deadline: noon.Add(time.Minute)}
	for name, c := range map[string]struct {
		e    Explanation
		held bool
		why  string
	}{
		"gone":         {Explanation{State: Waiting, gone: true}, true, "asynq has no such task"},
		"gone unknown": {Explanation{State: Unknown, gone: true}, false, "the throttle knows nothing"},
		"idle":         {Explanation{State: Booked, idle: true}, true, "no process of the throttle is alive"},
		"idle unknown": {Explanation{State: Unknown, idle: true}, false, "the throttle knows nothing"},
		"unpulled": {Explanation{State: Waiting, looked: noon.Add(-9 * time.Minute)}, true,
			"no worker has looked at the line for 9m, so nothing starts"},
		"pulled": {Explanation{State: Waiting, looked: noon.Add(-time.Second)}, false, "its turn has not come"},
		"paused": {Explanation{State: Booked, Task: &Task{State: "retry", Paused: true}}, true, "its queue is paused"},
		"late": {Explanation{State: Waiting, Task: &dead, Expected: noon.Add(time.Hour)}, true,
			"its turn has not come, and its deadline 2026-11-22 12:01:00 UTC is before its turn at 2026-11-22 13:00:00 UTC"},
		"in time": {Explanation{State: Waiting, Task: &dead, Expected: noon}, false, "its turn has not come"},
	} {
		c.e.Now = noon
		c.e.answer(inspect.Explanation{Now: noon}, crowd{})
		if c.e.Held() != c.held || !strings.HasPrefix(c.e.Why, c.why) {
			t.Errorf("%s: held %t, %q", name, c.e.Held(), c.e.Why)
		}
	}
}

// TestBookedUnderAPause: a job does not start at its slot where a pause began after the booking.
func TestBookedUnderAPause(t *testing.T) {
	t.Parallel()
	slot := noon.Add(time.Minute)
	for _, c := range []struct {
		paused time.Duration
		why    string
		until  time.Time
	}{
		{time.Hour, "tenant acme is paused beyond its slot; it then comes to the front of its lane", noon.Add(time.Hour)},
		{time.Second, "it has a slot, at which all its limits have room", slot},
		{0, "it has a slot, at which all its limits have room", slot},
	} {
		u := usageOf("tenant", "acme")
		u.Paused = noon.Add(c.paused)
		e := explanationOf("smtp", inspect.Explanation{Now: noon, Slot: slot, Expected: slot})
		e.answer(inspect.Explanation{Now: noon, Slot: slot, Usage: []inspect.Usage{u}}, crowd{})
		if e.Why != c.why || !e.Until.Equal(c.until) || e.Expected.IsZero() == c.until.Equal(slot) {
			t.Errorf("paused for %s: %q until %s, expected %s", c.paused, e.Why, e.Until, e.Expected)
		}
	}
}
