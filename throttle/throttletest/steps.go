package throttletest

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// What some calls do takes several scripts. Where nobody else calls meanwhile they are
// one; else the others see each step.

// Sweep finds what is due, and brings back the lanes that are.
func (m *Model) Sweep(now time.Time) (throttle.Swept, error) {
	swept, lanes, holders := m.SweepStep(now)
	for _, name := range lanes {
		swept.Next = m.BringBackStep(now, name)
	}
	for _, holder := range holders {
		if name := m.AdmitStep(holder); name != "" {
			swept.Next = m.BringBackStep(now, name)
		}
	}
	return swept, nil
}

// SweepStep finds what is due as sweep.lua alone does, and the lanes that are to be
// brought back, and the scope keys that are to let lanes in.
func (m *Model) SweepStep(instant time.Time) (swept throttle.Swept, lanes []throttle.Lane, holders []string) {
	l, now := m.line, instant.UnixMicro()
	due := slices.SortedFunc(maps.Keys(l.agenda), func(a, b string) int {
		return cmp.Or(cmp.Compare(l.agenda[a], l.agenda[b]), cmp.Compare(a, b))
	})
	for _, member := range due {
		late := l.agenda[member] <= now
		stepped := member[0] == '/' && l.agenda[member] > now+asideAtMost.Microseconds()
		if !late && !stepped {
			continue
		}
		name := member[1:]
		switch {
		case member == "*":
			delete(l.agenda, member)
		case member[0] == '!':
			delete(l.agenda, member)
			scope, key, _ := strings.Cut(name, ":")
			delete(m.set.pauses, scopeKey{scope, key})
		case member[0] == '/':
			l.agenda[member] = now + leftAlone.Microseconds()
			lanes = append(lanes, throttle.Lane(name))
		case member[0] == '&':
			l.agenda[member] = now + leftAlone.Microseconds()
			holders = append(holders, name)
		default:
			b := m.bookings[name]
			l.agenda[member] = min(now+max(leftAlone.Microseconds(), (now-b.slot)/2), b.slot+forgetAfter.Microseconds())
			job := throttle.Job{ID: name, Weight: b.weight, Lane: b.lane}
			swept.Overdue = append(swept.Overdue, throttle.Reservation{Job: job, Outcome: throttle.Booked, Now: instant, Start: time.UnixMicro(b.slot)})
			if b.slot+forgetAfter.Microseconds() <= now {
				m.forget(name)
			}
		}
	}
	swept.Next = l.next(now)
	return swept, lanes, holders
}

// BringBackStep makes a lane eligible whose time has come, as pull.lua does for a sweep,
// and returns the one to pull now.
func (m *Model) BringBackStep(now time.Time, name throttle.Lane) throttle.Lane {
	_, next := m.pull(now, name, 0, true)
	return next
}

// Resume ends a pause and has its lanes looked at again.
func (m *Model) Resume(now time.Time, scope, key string) (bool, error) {
	paused := m.ResumeStep(now, scope, key)
	m.RecallStep(now, scope, key)
	return paused, nil
}

// ResumeStep ends a pause as resume.lua does.
func (m *Model) ResumeStep(now time.Time, scope, key string) bool {
	k := scopeKey{scope, key}
	paused := m.set.pauses[k] > now.UnixMicro()
	delete(m.set.pauses, k)
	delete(m.line.agenda, "!"+scope+":"+key)
	return paused
}

// SetLimits sets limits, or takes them back if there are none, and has the lanes looked
// at again.
func (m *Model) SetLimits(now time.Time, scope, key string, limits []throttle.Limit) error {
	m.SetLimitsStep(scope, key, limits)
	m.RecallStep(now, scope, key)
	return nil
}

// SetLimitsStep sets limits, or takes them back if there are none, as set.lua does.
func (m *Model) SetLimitsStep(scope, key string, limits []throttle.Limit) {
	if len(limits) == 0 {
		delete(m.set.limits, scopeKey{scope, key})
		return
	}
	set := slices.Clone(limits)
	for i := range set {
		set[i] = m.asConfigured(scope, set[i])
	}
	m.set.limits[scopeKey{scope, key}] = set
}

// asConfigured gives a limit without a precision the configured one's.
func (m *Model) asConfigured(scope string, limit throttle.Limit) throttle.Limit {
	if limit.Precision != 0 || limit.Units == throttle.Unlimited {
		return limit
	}
	for _, s := range m.scopes {
		for _, own := range s.Limits {
			if s.Name == scope && own.Window == limit.Window && own.Units != throttle.Unlimited &&
				precision(own) != precision(limit) && (limit.Units <= 1000 || precision(own) > precision(limit)) {
				limit.Precision = precision(own)
			}
		}
	}
	return limit
}

// RecallStep brings forward the lanes of a scope key that were set aside, as recall.lua
// does.
func (m *Model) RecallStep(now time.Time, scope, key string) {
	for name, lane := range m.line.lanes {
		member := "/" + string(name)
		at, aside := m.line.agenda[member]
		held := m.line.since[name] && (key == "" || scope != m.options.FairScope)
		if aside && at > now.UnixMicro() && !held && (key == "" || lane.keys[scope] == key) {
			m.line.agenda[member] = now.UnixMicro()
		}
	}
	for member, at := range m.line.agenda {
		if member[0] == '&' && at > now.UnixMicro() && (key == "" || member == "&"+scope+":"+key) {
			m.line.agenda[member] = now.UnixMicro()
		}
	}
	delete(m.line.agenda, "*")
}
