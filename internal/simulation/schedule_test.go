package simulation_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// turningPoint is an instant near which worlds with schedules begin: a midnight, the end of a month or a year, or a
// change of the clocks in a zone.
type turningPoint struct{ at, zone string }

var turningPoints = []turningPoint{
	{"2027-03-01T00:00:00Z", "UTC"}, // a Monday
	{"2027-12-31T23:00:00Z", "Europe/Paris"},
	{"2027-04-30T18:30:00Z", "Asia/Kolkata"},
	{"2027-05-10T07:00:00Z", "America/Los_Angeles"},
	// 2 o'clock does not exist, or comes twice.
	{"2027-03-28T01:00:00Z", "Europe/Paris"},
	{"2027-10-31T00:00:00Z", "Europe/Paris"},
	{"2027-10-31T01:00:00Z", "Europe/Paris"},
	{"2027-03-14T10:00:00Z", "America/Los_Angeles"},
	{"2027-11-07T08:00:00Z", "America/Los_Angeles"},
	{"2027-04-03T15:00:00Z", "Australia/Lord_Howe"}, // half an hour comes twice
	{"2027-10-02T15:30:00Z", "Australia/Lord_Howe"},
	// Midnight came twice there.
	{"2000-10-29T02:30:00Z", "America/St_Johns"},
	{"2000-10-29T03:30:00Z", "America/St_Johns"},
}

var zones = []string{"UTC", "Europe/Paris", "America/Los_Angeles", "Asia/Kolkata", "Australia/Lord_Howe",
	"America/St_Johns", "Asia/Kathmandu"}

// schedule is what a world with quotas and hours is drawn around: an edge that most of them have, in its zone.
type schedule struct {
	edge  time.Time
	local time.Time
	hours bool // some scope has hours
}

// drawSchedule draws quotas and hours beside the other limits, and a beginning from which their edges come while jobs
// arrive. Later edges come after nights, in which no process runs (nights_test.go).
func (p *plan) drawSchedule(d dice) {
	point := one(d, turningPoints...)
	edge, err := time.Parse(time.RFC3339, point.at)
	zone, unknown := time.LoadLocation(point.zone)
	if err != nil || unknown != nil {
		panic(point)
	}
	s := &schedule{edge: edge, local: edge.In(zone)}
	p.scheduled = true
	p.begins = edge.Add(-d.between(0, p.span))
	if !p.running && d.chance(0.15) { // slots lie in later periods
		p.options.Lookahead = one(d, 26*time.Hour, 40*24*time.Hour)
	}
	for first := d.IntN(len(p.scopes)); !p.hasSchedule(); first = 0 {
		for i := range p.scopes {
			p.drawSchedules(d, s, &p.scopes[(first+i)%len(p.scopes)])
		}
	}
	for _, j := range p.jobs {
		if j.how == plain {
			j.retries = 25 // a task on its last retry waits inside its handler, over a night in vain
		}
	}
	p.drawSettledLater(d, s)
	p.drawScheduleFaults(d, s)
}

// drawSettledLater lets some jobs start shortly before the edge and settle after it: the units that they give back
// belong to the period before.
func (p *plan) drawSettledLater(d dice, s *schedule) {
	if p.bounded && p.kind == calm {
		return
	}
	for _, j := range p.jobs {
		if d.chance(0.1) {
			j.arrives = max(0, s.edge.Sub(p.begins)-d.between(0, 5*time.Second))
			j.handle = d.between(time.Second, 5*time.Second)
			j.outcomes = []outcome{{does: settles, units: d.Int64N(2*j.weight + 1)}}
		}
	}
	slices.SortStableFunc(p.jobs, func(a, b *job) int { return int(a.arrives - b.arrives) })
}

// hasSchedule reports whether any scope has quotas or hours.
func (p *plan) hasSchedule() bool {
	return slices.ContainsFunc(p.scopes, func(s throttle.Scope) bool {
		return slices.ContainsFunc(s.Limits, isScheduled)
	})
}

func isScheduled(l throttle.Limit) bool { return isQuota(l) || l.Hours != "" }

func isQuota(l throttle.Limit) bool { return l.Calendar != throttle.Calendar{} }

// drawSchedules draws quotas and hours of one scope.
func (p *plan) drawSchedules(d dice, s *schedule, scope *throttle.Scope) {
	if d.chance(0.6) {
		for range d.count(1, 2) {
			if quota := p.drawQuota(d, s, scope.Name); !hasLabel(scope.Limits, quota) {
				scope.Limits = append(scope.Limits, quota)
			}
		}
		if scope.Floor > 0 {
			scope.Floor = max(0.5, scope.Floor) // a lower one would take weeks
		}
	}
	if d.chance(0.4) {
		scope.Limits = append(scope.Limits, s.drawHours(d))
	}
	if d.chance(0.3) && len(scope.Limits) > 1 && isScheduled(scope.Limits[len(scope.Limits)-1]) {
		scope.Limits = slices.DeleteFunc(scope.Limits, func(l throttle.Limit) bool { return l.Window > 0 })
	}
}

func hasLabel(limits []throttle.Limit, of throttle.Limit) bool {
	return slices.ContainsFunc(limits, func(l throttle.Limit) bool { return l.Label() == of.Label() })
}

// drawQuota draws a quota that is full after a part of the busiest key's work, or after one heavy job, or the ramp that
// ends with it. In most zones the edge is one of its own.
func (p *plan) drawQuota(d dice, s *schedule, scope string) throttle.Limit {
	var busiest int64
	for _, key := range p.keys(scope) {
		busiest = max(busiest, p.demand(scope, key))
	}
	c := throttle.Calendar{Unit: one(d, throttle.Day, throttle.Day, throttle.Week, throttle.Month), Zone: one(d, zones...)}
	if d.chance(0.5) {
		c.Zone = s.local.Location().String()
	}
	zone, err := time.LoadLocation(c.Zone)
	if err != nil {
		panic(err)
	}
	local := s.edge.In(zone)
	if c.Hours = local.Hour(); d.chance(0.15) {
		c.Hours = d.IntN(24)
	}
	switch c.Unit {
	case throttle.Week:
		c.Days = (int(local.Weekday()) + 6) % 7
	case throttle.Month:
		c.Days = local.Day() - 1
	}
	parts := int64(2)
	if c.Unit == throttle.Day {
		parts = d.Int64N(4) + 1
	}
	heaviest := max(1, p.heaviest(scope))
	units := max(heaviest, busiest/parts+1)
	if busiest/heaviest < 6 && d.chance(0.3) {
		units = heaviest
	}
	quota := throttle.Limit{Units: units, Calendar: c}
	if d.chance(0.4) {
		return p.drawRamp(d, s, quota, heaviest)
	}
	return quota
}

// drawHours draws hours that open or close at the edge: for a minute, for a night, for a closed date or a weekend. If
// another scope has hours already, they close for a minute, so that both are open at some time.
func (s *schedule) drawHours(d dice) throttle.Limit {
	minute := s.local.Hour()*60 + s.local.Minute()
	at := func(after int) string {
		of := (minute + after + 24*60) % (24 * 60)
		return fmt.Sprintf("%02d:%02d", of/60, of%60)
	}
	until := func(after int) string { // midnight ends a day
		if text := at(after); text != "00:00" {
			return text
		}
		return "24:00"
	}
	zone := " @" + s.local.Location().String()
	closes := func(from, to int) string { return at(to) + "-" + until(from) + zone }
	short := closes(0, 1)
	if s.hours {
		return throttle.OpenHours(one(d, short, closes(-1, 0), closes(1, 2)))
	}
	s.hours = true
	week, date := s.local.Format("Mon"), s.local.Format(time.DateOnly)
	switch d.IntN(8) {
	case 0:
		return throttle.OpenHours(short)
	case 1:
		return throttle.OpenHours(closes(-60, 0)) // opens at the edge, after an hour
	case 2:
		return throttle.OpenHours(closes(0, 16*60)) // a night ends
	case 3:
		return throttle.OpenHours("Mon-Fri 09:00-17:00 @" + one(d, zones...))
	case 4:
		return throttle.OpenHours("00:00-24:00"+zone, date)
	case 5:
		return throttle.OpenHours("22:00-06:00"+zone, date, s.local.AddDate(0, 0, 1).Format(time.DateOnly))
	case 6:
		return throttle.OpenHours(week + " " + closes(0, 1))
	}
	return throttle.OpenHours(at(-5) + "-" + until(0) + ", " + at(1) + "-" + until(3) + zone)
}

// drawScheduleFaults lets Redis' clock step over the edge, edges get lost, and quotas and hours be set at run time.
func (p *plan) drawScheduleFaults(d dice, s *schedule) {
	if p.kind != rough {
		return
	}
	before := s.edge.Sub(p.begins)
	if d.chance(0.3) && !p.stepsBack() {
		at := before + d.between(0, 15*time.Second)
		p.faults = append(p.faults, fault{at: at, does: clock, step: -d.between(at-before, 29*time.Second)})
	}
	if d.chance(0.3) {
		at := d.between(0, before+1)
		p.faults = append(p.faults, fault{at: at, does: clock, step: before - at + d.between(0, 10*time.Second)})
	}
	for range d.IntN(4) {
		p.faults = append(p.faults, fault{at: d.between(0, p.span+10*time.Second), does: eviction})
	}
	for range d.IntN(4) {
		scope := one(d, p.scopes...)
		f := fault{at: d.between(0, p.span), does: limits, lasts: d.between(time.Second, p.span/2), scope: scope.Name}
		if keys := p.keys(scope.Name); d.chance(0.7) {
			f.key = one(d, keys...)
		}
		for _, l := range scope.Limits {
			switch {
			case isRamp(l) && d.chance(0.3):
				l = l.Ended()
			case isQuota(l) && !isRamp(l) && d.chance(0.7):
				l.Units = one(d, 0, 1, d.Int64N(l.Units)+1, l.Units, 2*l.Units)
			}
			if !l.Running && d.chance(0.8) {
				f.limits = append(f.limits, l)
			}
		}
		if quota := p.drawQuota(d, s, scope.Name); d.chance(0.5) && !hasLabel(f.limits, quota) {
			f.limits = append(f.limits, quota)
		}
		other := schedule{edge: s.edge, local: s.local}
		if hours := other.drawHours(d); d.chance(0.3) && !hasLabel(f.limits, hours) {
			f.limits = append(f.limits, hours)
		}
		if len(f.limits) > 0 {
			p.faults = append(p.faults, f)
		}
	}
	for _, scope := range p.scopes {
		p.drawRampSet(d, scope)
	}
}
