package line

import "strings"

// Pause closes a scope key until a time, unless it is closed for longer already, and returns when the pause ends. A
// time of 0 opens the scope key.
func (l *Line) Pause(now int64, settings Settings, name string, until int64) (before, is int64) {
	l.begin(now, settings)
	k := l.key(name)
	if before = k.paused(); before <= now {
		before = 0
	}
	if until != 0 {
		k.pause = max(k.pause, until)
	} else {
		k.pause, k.adapted.closed, k.adapted.closedAt = 0, 0, 0
	}
	is = k.paused()
	l.hurry(name)
	l.end()
	return before, is
}

// SetLimits sets the limits of a scope key, or those of a scope if the name has no colon, until an
// instant; Never: until nil takes them back. With nil, a scope key's served share is whole again.
func (l *Line) SetLimits(now int64, settings Settings, name string, limits []Limit, ends int64) {
	l.begin(now, settings)
	if scope, _, isKey := strings.Cut(name, ":"); isKey {
		k := l.key(name)
		k.ownEnds = ends
		if k.own = limits; limits == nil {
			k.adapted.less, k.adapted.refusals = 0, 0
		}
		l.hurry(name)
	} else {
		set := l.set[scope]
		set.limits, set.limitsEnd = limits, ends
		l.setScope(scope, set)
	}
	l.end()
}

// SetMode sets the mode of a scope, or with an empty name that of all, until an instant; Never:
// until it is taken back, by 0.
func (l *Line) SetMode(now int64, settings Settings, scope string, mode Mode, ends int64) {
	l.begin(now, settings)
	if scope == "" {
		l.all.mode, l.all.modeEnds = mode, ends
		l.forgetEnded()
		l.hurryAll("")
	} else {
		set := l.set[scope]
		set.mode, set.modeEnds = mode, ends
		l.setScope(scope, set)
	}
	l.end()
}
