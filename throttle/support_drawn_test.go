package throttle_test

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/internal/wallclock"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// drawOptions draws options. An endless lookahead, with which no job waits in line, is as frequent as a short one.
func drawOptions(t *rapid.T) throttle.Options {
	return throttle.Options{
		Grace: rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 5 * time.Second,
			time.Minute}).Draw(t, "grace"),
		Lookahead: rapid.SampledFrom([]time.Duration{maxWindow, 100 * time.Millisecond, time.Second,
			time.Second, 5 * time.Second, 20 * time.Second}).Draw(t, "lookahead"),
		FairScope:     rapid.SampledFrom([]string{"", "", "domain", throttle.Global}).Draw(t, "fair scope"),
		Shares:        map[string]int{"a": rapid.SampledFrom([]int{1, 2, 3}).Draw(t, "share"), "c": 2},
		Timeout:       30 * time.Second,
		PriorityFloor: rapid.SampledFrom([]float64{0, 0.25, 0.5, 0.01}).Draw(t, "priority floor"),
	}
}

// windows are those that limits have.
var windows = []time.Duration{time.Second, 5 * time.Second, 7 * time.Second, time.Minute, time.Hour, 24 * time.Hour}

func drawScopes(t *rapid.T) []throttle.Scope { return drawScopesOf(t, windows...) }

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
			Floor:    rapid.SampledFrom([]float64{0.1, 0.1, 0.5, 0}).Draw(t, "floor"),
		})
	}
	return scopes
}

// drawRunning puts limits on what runs at once beside some scopes' windows.
func drawRunning(t *rapid.T, scopes []throttle.Scope, lookahead time.Duration) []throttle.Scope {
	if lookahead > maxLease/2 {
		return scopes
	}
	for i := range scopes {
		if rapid.Bool().Draw(t, "limits what runs") {
			scopes[i].Limits = append(scopes[i].Limits, drawAtOnce(t, lookahead))
			scopes[i].Cooldown = rapid.SampledFrom([]time.Duration{0, 0, 700 * time.Millisecond}).Draw(t, "cool-down")
		}
	}
	return scopes
}

// historiesBegin is the first instant of histories: a Saturday, the 21st of November 2026, some minutes after midnight
// in UTC.
var historiesBegin = time.UnixMicro(1_795_219_498_189_530)

// calendars are those that quotas have.
var calendars = []throttle.Calendar{
	{Unit: throttle.Day, Zone: "UTC"},
	{Unit: throttle.Day, Hours: 1, Zone: "Europe/Paris"},
	{Unit: throttle.Day, Zone: "Asia/Kolkata"},
	{Unit: throttle.Day, Hours: 21, Zone: "America/St_Johns"},
	{Unit: throttle.Week, Days: 5, Zone: "UTC"},
	{Unit: throttle.Month, Days: 21, Hours: 2, Zone: "America/Los_Angeles"},
}

// ramps have steps before and after the beginning of histories, in the periods of calendars.
var ramps = []throttle.Limit{
	throttle.Ramp("1 2 3 10/day from 2026-11-21 @UTC"),
	throttle.Ramp("2 5 30 1000/day+1h every 2d from 2026-11-20 @Europe/Paris"),
	throttle.Ramp("1 30 1000/day from 2026-11-23 @Asia/Kolkata"),
	throttle.Ramp("1 2 3 4 5 1000/day+21h from 2026-11-18 @America/St_Johns"),
	throttle.Ramp("5 10/week+5d from 2026-11-14 @UTC"),
	throttle.Ramp("1 1000/month+21d+2h from 2026-10-22 @America/Los_Angeles"),
}

// drawRamp draws a ramp, held as often as not. One that is held before it begins would never let a job start.
func drawRamp(t *rapid.T) throttle.Limit {
	ramp := rapid.SampledFrom(ramps).Draw(t, "ramp")
	if rapid.Bool().Draw(t, "is held") {
		at := historiesBegin.AddDate(0, 0, rapid.IntRange(-3, 3).Draw(t, "days ago"))
		if held := ramp.Held(at); held.UnitsAt(at) > 0 {
			return held
		}
	}
	return ramp
}

// drawQuota draws a quota, or a ramp.
func drawQuota(t *rapid.T) throttle.Limit {
	if rapid.IntRange(0, 2).Draw(t, "grows") == 0 {
		return drawRamp(t)
	}
	return throttle.Limit{Units: rapid.SampledFrom([]int64{1, 2, 5, 10, 30, 1000, throttle.Unlimited}).Draw(t, "quota"),
		Calendar: rapid.SampledFrom(calendars).Draw(t, "calendar")}
}

// drawQuotas puts quotas beside some scopes' windows.
func drawQuotas(t *rapid.T, scopes []throttle.Scope) []throttle.Scope {
	for i := range scopes {
		if rapid.IntRange(0, 2).Draw(t, "has a quota") == 0 {
			scopes[i].Limits = append(scopes[i].Limits, drawQuota(t))
		}
	}
	return scopes
}

// openHours are drawn by histories, which begin on a Saturday some minutes after midnight in UTC. The first are open
// now and then within seconds; the others have changes of clocks, half hours, nights and closed dates. All of them
// are open on some Wednesday.
var openHours = []throttle.Limit{
	throttle.OpenHours("Mon-Sun 00:00-00:05, Mon-Sun 00:06-24:00 @UTC"),
	throttle.OpenHours("Tue-Sun 00:05-00:06, Wed 00:00-24:00 @UTC"),
	throttle.OpenHours("Mon-Fri 09:00-17:00 @America/New_York"),
	throttle.OpenHours("22:00-06:00 @Asia/Kolkata", "2026-11-24"),
	throttle.OpenHours("Sat 10:00-12:00, Tue-Thu 00:00-24:00 @Australia/Lord_Howe"),
}

// allOpen reports whether all hours are open, by the clocks of their zones.
func allOpen(at time.Time) bool {
	return !slices.ContainsFunc(openHours, func(l throttle.Limit) bool { return !wallclock.IsOpen(l.Hours, at) })
}

func drawOpen(t *rapid.T) throttle.Limit { return rapid.SampledFrom(openHours).Draw(t, "hours") }

// drawHours puts hours beside some scopes' windows.
func drawHours(t *rapid.T, scopes []throttle.Scope) []throttle.Scope {
	for i := range scopes {
		if rapid.IntRange(0, 5).Draw(t, "has hours") == 0 {
			scopes[i].Limits = append(scopes[i].Limits, drawOpen(t))
		}
	}
	return scopes
}

// maxLease is the longest that a running limit may have.
const maxLease = 24 * time.Hour

// drawAtOnce draws a running limit whose lease is long enough for the lookahead.
func drawAtOnce(t *rapid.T, lookahead time.Duration) throttle.Limit {
	return throttle.Limit{
		Units: rapid.SampledFrom([]int64{1, 2, 3, 5, 10, 30}).Draw(t, "at once"), Running: true,
		Lease: max(2*lookahead,
			rapid.SampledFrom([]time.Duration{time.Second, 5 * time.Second, 30 * time.Second}).Draw(t, "lease")),
	}
}

func drawLimit(windows []time.Duration, units []int64) *rapid.Generator[throttle.Limit] {
	return rapid.Custom(func(t *rapid.T) throttle.Limit {
		limit := throttle.Limit{
			Units:  rapid.SampledFrom(units).Draw(t, "units"),
			Window: rapid.SampledFrom(windows).Draw(t, "window"),
		}
		limit.Precision = rapid.SampledFrom(
			[]time.Duration{0, throttle.Exact, limit.Window / 20, limit.Window / 3, limit.Window}).Draw(
			t, "precision").Truncate(time.Microsecond)
		return limit
	})
}

// drawWeight draws light weights, and those near the whole of what a limit takes.
func drawWeight(most int64) *rapid.Generator[int64] {
	return rapid.OneOf(
		rapid.SampledFrom([]int64{0, 1, 1, 1, min(2, most)}),
		rapid.SampledFrom([]int64{most, most, most - most/10, most / 2, most - 1}),
	)
}

func drawReport(t *rapid.T, now time.Time) throttle.Report {
	r := throttle.Report{
		Refused:    rapid.Bool().Draw(t, "refused"),
		RetryAfter: rapid.SampledFrom([]time.Duration{0, 0, 1, time.Second, time.Minute}).Draw(t, "asks to wait"),
	}
	if ago := rapid.SampledFrom([]time.Duration{-1, 0, time.Millisecond, time.Minute}).Draw(t, "ago"); ago >= 0 {
		r.Started = now.Add(-ago)
	}
	for range rapid.IntRange(0, 2).Draw(t, "told") {
		r.Limits = append(r.Limits, throttle.ReportedLimit{
			Window:    rapid.SampledFrom(append([]time.Duration{0}, windows...)).Draw(t, "of"),
			Units:     rapid.SampledFrom([]int64{0, 1, 3, 60, 500, 1 << 53}).Draw(t, "serves"),
			Remaining: rapid.SampledFrom([]int64{-1, 0, 1, 30, 1 << 53}).Draw(t, "remaining"),
		})
	}
	return r
}
