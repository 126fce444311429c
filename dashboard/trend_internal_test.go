package dashboard

import (
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestBacklogIsDrawn: the notes are drawn over the fewest hours that contain them all, each note
// until the next one; a time without notes has no bars.
func TestBacklogIsDrawn(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	at := func(ago time.Duration, jobs int64, waited time.Duration) inspect.Backlog {
		return inspect.Backlog{At: now.Add(-ago), Jobs: jobs, Waited: waited}
	}
	minutely := func(from, to int, jobs int64) (noted []inspect.Backlog) {
		for ago := from; ago > to; ago-- {
			noted = append(noted, at(time.Duration(ago)*time.Minute, jobs, time.Duration(jobs)*time.Second))
		}
		return noted
	}
	for name, c := range map[string]struct {
		noted              []inspect.Backlog
		title              string
		bars               int
		now, most, longest string
	}{
		"half an hour":       {minutely(30, 0, 7), "Over the last hour", 24, "7", "7", "7s"},
		"two hours":          {minutely(120, 0, 700), "Over the last 3 hours", 32, "700", "700", "11m40s"},
		"more than is drawn": {minutely(800, 0, 7), "Over the last 12 hours", 48, "7", "7", "7s"},
		"nobody any more":    {minutely(60, 30, 7), "Over the last hour", 32, "not noted", "7", "7s"},
		"a gap": {
			append(minutely(60, 50, 7), minutely(10, 0, 70)...),
			"Over the last hour", 24, "70", "70", "1m10s",
		},
		"too many": {
			append(minutely(30, 10, 7), at(10*time.Minute, -1, 0), at(time.Minute, 3, time.Second)),
			"Over the last hour", 24, "3", "more than is counted", "7s",
		},
		"a clock set back": {
			[]inspect.Backlog{at(-time.Hour, 7, time.Second), at(time.Minute, 3, time.Second)},
			"Over the last hour", 1, "3", "3", "1s",
		},
	} {
		drawn := backlogOf(c.noted, now)
		if drawn == nil || len(drawn.Trends) != 2 {
			t.Errorf("%s: nothing is drawn", name)
			continue
		}
		jobs, waited := drawn.Trends[0], drawn.Trends[1]
		if drawn.Title != c.title || len(jobs.Bars) != c.bars || jobs.Now != c.now || jobs.Most != c.most ||
			waited.Most != c.longest {
			t.Errorf("%s: %q, %d bars, now %q, most %q, longest %q", name,
				drawn.Title, len(jobs.Bars), jobs.Now, jobs.Most, waited.Most)
		}
	}
	if c := backlogOf(nil, now); c != nil {
		t.Errorf("without a note %+v is drawn", c)
	}
	if c := backlogOf(minutely(30, 0, 0), now); c == nil || len(c.Trends) != 0 {
		t.Errorf("where nothing waits %+v is drawn", c)
	}
}

// TestLastUnder: the last of many jobs waits for the windows that the others fill.
func TestLastUnder(t *testing.T) {
	t.Parallel()
	full := inspect.LimitUsage{Limit: throttle.PerMinute(30), Used: 30}
	for _, c := range []struct {
		jobs   int64
		mode   throttle.Mode
		limits []inspect.LimitUsage
		want   string
		wait   time.Duration
	}{
		{381, throttle.Enforce, []inspect.LimitUsage{full}, "30/1m", 12 * time.Minute},
		{30, throttle.Enforce, []inspect.LimitUsage{full}, "", 0},
		{61, throttle.Enforce, []inspect.LimitUsage{{Limit: throttle.PerMinute(30)}}, "30/1m", time.Minute},
		{
			381, throttle.Enforce, []inspect.LimitUsage{full, {Limit: throttle.PerHour(100), Used: 90}},
			"100/1h", 3 * time.Hour,
		},
		{381, throttle.Shadow, []inspect.LimitUsage{full}, "", 0},
		{381, throttle.Enforce, []inspect.LimitUsage{
			{Limit: throttle.PerMinute(0)}, {Limit: throttle.PerMinute(throttle.Unlimited)}, {Limit: throttle.Running(2)},
		}, "", 0},
	} {
		limit, wait := lastUnder(inspect.Usage{Mode: c.mode, Limits: c.limits}, c.jobs)
		if wait != c.wait || wait > 0 && limit.String() != c.want {
			t.Errorf("%d jobs under %v: %v keeps the last back for %s, want %s for %s",
				c.jobs, c.limits, limit, wait, c.want, c.wait)
		}
	}
}

// TestLastUnderALimitThatEnds: a limit holds the last of many jobs back no longer than it is set.
func TestLastUnderALimitThatEnds(t *testing.T) {
	t.Parallel()
	u := inspect.Usage{Now: start, Ends: start.Add(10 * time.Minute),
		Limits: []inspect.LimitUsage{{Limit: throttle.PerMinute(30), Used: 30}, {Limit: throttle.PerHour(100), Used: 90}}}
	if limit, wait := lastUnder(u, 200); wait != 6*time.Minute || limit != throttle.PerMinute(30) {
		t.Errorf("%v keeps the last back for %s, want 30/1m for 6m", limit, wait)
	}
}
