package delivery

import (
	"cmp"
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/check"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/plot"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// longRun is from when on a run under quotas or hours is drawn by the clock, in seconds.
const longRun = 2 * 3600

// zoneOf returns the time zone of the first quota or hours of some scopes, if there is one.
func zoneOf(scopes []throttle.Scope) (*time.Location, bool) {
	for _, scope := range scopes {
		for _, limit := range scope.Limits {
			if zone, err := time.LoadLocation(limit.Zone()); limit.Zone() != "" && err == nil {
				return zone, true
			}
		}
	}
	return nil, false
}

// daysOf returns the graphs of a row by the clock of a zone: what started in each hour, and what started so far in each
// period of its quota; without a quota, what arrived and started.
func daysOf(r result, one row, zone *time.Location, end float64) []plot.Graph {
	limits := slices.Concat(rig.LimitsOf(r.law.Scopes, throttle.Global), one.limits)
	started := plot.Days{Title: one.title + ": units started per hour; hours are closed where it is shaded",
		Began: r.began.In(zone), Moments: one.starts}
	for _, limit := range limits {
		if limit.Hours != "" {
			started.Pauses = append(started.Pauses, r.closed(limit.Hours, end)...)
		}
	}
	i := slices.IndexFunc(one.limits, func(l throttle.Limit) bool { return l.Calendar != throttle.Calendar{} })
	if i < 0 {
		return []plot.Graph{started, one.flow(started.Began)}
	}
	soFar := started
	soFar.Title, soFar.Quota = one.title+": units of the "+one.limits[i].Calendar.Unit+" so far", one.limits[i]
	units := soFar.Quota.UnitsAt(r.began)
	soFar.Allowed = []plot.Moment{{Units: float64(units)}}
	for _, edge := range check.Edges(soFar.Quota.Calendar, r.began, r.at(end)) {
		soFar.Anew = append(soFar.Anew, r.since(edge))
		if then := soFar.Quota.UnitsAt(edge); then != units {
			units, soFar.Allowed = then, append(soFar.Allowed, plot.Moment{At: r.since(edge), Units: float64(then)})
		}
	}
	return []plot.Graph{started, soFar}
}

// closed returns when hours are closed, from the beginning to an end.
func (r result) closed(hours string, end float64) []plot.Pause {
	openings := check.Openings(hours, r.began, r.at(end))
	slices.SortFunc(openings, func(a, b check.Open) int { return cmp.Compare(a.From.UnixMicro(), b.From.UnixMicro()) })
	var pauses []plot.Pause
	at := 0.0
	for _, open := range openings {
		if from := min(r.since(open.From), end); from > at {
			pauses = append(pauses, plot.Pause{From: at, Until: from})
		}
		at = max(at, r.since(open.Until))
	}
	if at < end {
		pauses = append(pauses, plot.Pause{From: at, Until: end})
	}
	return pauses
}

// at returns the instant a number of seconds after the beginning of the run.
func (r result) at(seconds float64) time.Time {
	return r.began.Add(time.Duration(seconds * float64(time.Second)))
}
