package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func usageOf(scope, key string, limits ...throttle.LimitUsage) throttle.Usage {
	return throttle.Usage{Scope: scope, Key: key, Now: noon, Served: 1, Limits: limits}
}

func full(limit throttle.Limit, free time.Duration) throttle.LimitUsage {
	return throttle.LimitUsage{Limit: limit, Used: limit.Units, Free: noon.Add(free)}
}

// TestAnswerNamesWhatBinds: of several limits the answer names that under which the job starts
// last, which need not be the one that its lane waits for now.
func TestAnswerNamesWhatBinds(t *testing.T) {
	t.Parallel()
	global, acme := usageOf(throttle.Global, "", full(throttle.PerSecond(3), 300*time.Millisecond)),
		usageOf("tenant", "acme", full(throttle.PerMinute(30), 20*time.Second))
	lanes := []throttle.Lane{
		{Flow: "acme", Keys: map[string]string{"tenant": "acme", "domain": "a"}, Jobs: 151},
		{Flow: "acme", Keys: map[string]string{"tenant": "acme", "domain": "b"}, Jobs: 230},
	}
	for _, other := range []string{"b", "c", "d"} {
		lanes = append(lanes, throttle.Lane{Flow: other, Keys: map[string]string{"tenant": other}, Jobs: 117})
	}
	job := throttle.Explanation{Job: "j", Now: noon, Arrived: noon.Add(-time.Minute), Before: 97, Waiting: 151,
		Blocked: &throttle.Hold{Scope: throttle.Global}, Expected: noon.Add(8*time.Minute + 36*time.Second)}
	paused := usageOf("domain", "a")
	paused.Paused = noon.Add(time.Hour)
	shadow := acme
	shadow.Mode = throttle.Shadow
	day := throttle.LimitUsage{Limit: throttle.PerDay(100_000), Used: 3, Free: noon}
	global.Limits = append(global.Limits, day) // it lets all through, however seldom on average
	for name, c := range map[string]struct {
		usage     []throttle.Usage
		key, has  string
		help      string
		untilHour bool
	}{
		"its own": {[]throttle.Usage{global, acme}, "tenant acme",
			"tenant acme has a limit of 30/1m and 381 jobs in line",
			"A higher limit of tenant acme would help, and no other.", false},
		"of all": {[]throttle.Usage{global, shadow}, "global",
			"global has a limit of 3/1s, for which 732 jobs of 4 flows take turns", "a higher priority", false},
		"a pause": {[]throttle.Usage{global, acme, paused}, "domain a", "domain a is paused", "Resume it", true},
		"closed": {[]throttle.Usage{global,
			usageOf("tenant", "acme", throttle.LimitUsage{Limit: throttle.PerMinute(0)})}, "tenant acme",
			"tenant acme is closed by its limit 0/1m", "higher limit", false},
		"its turn": {[]throttle.Usage{usageOf(throttle.Global, "")}, "", "its turn has not come", "", false},
		"unlimited": {[]throttle.Usage{usageOf("tenant", "acme",
			throttle.LimitUsage{Limit: throttle.PerMinute(throttle.Unlimited)})}, "", "its turn has not come", "", false},
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

// TestAnswerOfATask: what asynq keeps a task back by comes before what the throttle knows.
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
		"archived":  {Unknown, Task{State: "archived"}, "asynq has archived it", "Run it again"},
		"active":    {Unknown, Task{State: "active"}, "a worker has it now", ""},
		"completed": {Unknown, Task{State: "completed"}, "it has run", ""},
		"scheduled": {Unknown, Task{State: "scheduled", Next: noon.Add(time.Hour)}, "asynq keeps it for its time", ""},
		"booked":    {Booked, Task{State: "retry"}, "it has a slot", ""},
		"overdue":   {Overdue, Task{State: "retry"}, "it did not come to its slot", "Asked for again"},
	} {
		e := Explanation{State: c.state, Now: noon, Task: &c.task}
		e.answer(throttle.Explanation{Now: noon}, crowd{})
		if !strings.Contains(e.Why, c.why) || !strings.HasPrefix(e.Help, c.help) || c.help == "" && e.Help != "" {
			t.Errorf("%s: %q, %q", name, e.Why, e.Help)
		}
	}
}
