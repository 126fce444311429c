package simulation_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/calendar"
	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/wallclock"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

func isRamp(l throttle.Limit) bool { return l.Ramp != "" }

// drawRamp makes a quota the last step of a ramp that begins some periods before or after the edge. Some ramps are held
// from the beginning, if the heaviest job fits their step and the work takes no more periods than under the quota.
func (p *plan) drawRamp(d dice, s *schedule, quota throttle.Limit, heaviest int64) throttle.Limit {
	var steps []string
	for part := int64(1) << d.count(0, 3); part > 0; part /= 2 {
		if units := fmt.Sprint(quota.Units / part); quota.Units >= part && !slices.Contains(steps, units) {
			steps = append(steps, units)
		}
	}
	days := map[string]int{throttle.Day: 1, throttle.Week: 7, throttle.Month: 31}[quota.Calendar.Unit]
	from := s.local.AddDate(0, 0, days*(d.IntN(5)-3))
	begins, zone, _ := strings.Cut(quota.Calendar.String(), "@")
	every := fmt.Sprint(one(d, 1, 1, 2)) + map[string]string{throttle.Day: "d", throttle.Week: "w",
		throttle.Month: "mo"}[quota.Calendar.Unit]
	ramp := throttle.Ramp(fmt.Sprintf("%s/%s every %s from %s @%s", strings.Join(steps, " "), begins, every,
		from.Format(time.DateOnly), zone))
	held := ramp.Held(s.edge.Add(time.Duration(d.IntN(3*days)) * 24 * time.Hour))
	if d.chance(0.3) && atLast(held) >= max(heaviest, quota.Units/2) {
		return held
	}
	return ramp
}

// atLast returns the units of a limit that hold for good. For a ramp that is held, these are the units of its step.
func atLast(l throttle.Limit) int64 {
	if isRamp(l) {
		return wallclock.UnitsAt(l.Ramp, time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))
	}
	return l.Units
}

// climb returns about how many periods a ramp takes from the beginning of a world to the units that hold for good; 0
// for other limits.
func (p *plan) climb(l throttle.Limit) (periods int) {
	if !isRamp(l) {
		return 0
	}
	for last := atLast(l); wallclock.UnitsAt(l.Ramp, p.begins.Add(time.Duration(periods)*l.Length())) < last; {
		periods++
	}
	return periods
}

// climbs returns how long the ramps of a world take at most. A slot may lie so far ahead.
func (p *plan) climbs() (longest time.Duration) {
	note := func(limits []throttle.Limit) {
		for _, l := range limits {
			if isRamp(l) {
				longest = max(longest, time.Duration(p.climb(l))*(l.Length()+time.Hour))
			}
		}
	}
	for _, scope := range p.scopes {
		note(scope.Limits)
	}
	for _, f := range p.faults {
		note(f.limits)
	}
	return longest
}

// drawRampSet draws what people do to a ramp at run time: they hold it, continue it while it is held, and end it.
func (p *plan) drawRampSet(d dice, scope throttle.Scope) {
	i := slices.IndexFunc(scope.Limits, isRamp)
	if i < 0 {
		return
	}
	set := func(f fault, ramp throttle.Limit) {
		f.limits = slices.DeleteFunc(slices.Clone(scope.Limits), func(l throttle.Limit) bool { return l.Running })
		f.limits[slices.IndexFunc(f.limits, isRamp)] = ramp
		p.faults = append(p.faults, f)
	}
	f := fault{at: d.between(0, p.span), does: limits, lasts: d.between(time.Second, p.span/2), scope: scope.Name}
	if keys := p.keys(scope.Name); d.chance(0.5) {
		f.key = one(d, keys...)
	}
	held := scope.Limits[i].Held(p.begins.Add(f.at))
	set(f, held)
	f.at += d.between(0, f.lasts)
	switch d.IntN(3) {
	case 0:
		set(f, held.Continued(p.begins.Add(f.at)))
	case 1: // as if it had been held for some periods
		set(f, held.Continued(p.begins.Add(f.at+time.Duration(d.count(1, 3))*held.Length())))
	default:
		set(f, held.Ended())
	}
}

// rampTexts returns the texts of a world's ramps, by the steps that the scripts have.
func (p *plan) rampTexts() map[string]string {
	texts := map[string]string{}
	note := func(limits []throttle.Limit) {
		for _, l := range limits {
			if of, err := calendar.RampOf(l.Ramp); err == nil && isRamp(l) {
				texts[line.RampText(of.Steps)+"@"+l.Calendar.String()] = l.Ramp
			}
		}
	}
	for _, scope := range p.scopes {
		note(scope.Limits)
	}
	for _, f := range p.faults {
		note(f.limits)
	}
	return texts
}

// unitsAt returns the units of a limit that are in force at an instant. For a ramp these are the units of its step, by
// the wall clock of its zone.
func (w *wall) unitsAt(l limit, at int64) int64 {
	if l.ramp == "" {
		return l.units
	}
	of := minuteOf{l.ramp, at / time.Minute.Microseconds()}
	units, known := w.units[of]
	if !known {
		units = wallclock.UnitsAt(l.ramp, time.UnixMicro(at))
		w.units[of] = units
	}
	return units
}

// compareInForce compares the units in force that Redis reports with the wall clock, at an instant of the ledgers'
// time.
func (a *account) compareInForce(name string, l limit, at, units int64) {
	if l.ramp == "" {
		return
	}
	a.ramps++
	if want := a.wall.unitsAt(l, at); units != want {
		a.world.errorf("usage of %s: %d units of %s are in force at %s, want %d", name, units, l.ramp,
			a.world.clockAt(at), want)
	}
}
