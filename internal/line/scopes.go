package line

// Scope is what a process has configured for the keys of a scope.
type Scope struct {
	Mode   Mode
	Limits []Limit // by window, ascending
}

// Settings are what a process has configured.
type Settings struct {
	Scopes    map[string]Scope
	Lookahead int64 // us
	Grace     int64 // us
	Timed     bool  // flows are charged for the time that they hold places of running limits
	Lower     int64 // units of a priority for each of the next lower one, while jobs of both wait; 0: nine
	Counts    bool  // the process bounds the line of any scope: jobs that come are counted
}

// scopeSet is what is set for a whole scope; a Mode of 0 or nil Limits: nothing.
type scopeSet struct {
	mode      Mode
	modeEnds  int64 // Never: it is set until it is taken back
	limits    []Limit
	limitsEnd int64 // as modeEnds
}

// asOf returns what is left of the set at an instant.
func (s scopeSet) asOf(now int64) scopeSet {
	if s.mode == 0 || s.modeEnds <= now {
		s.mode, s.modeEnds = 0, Never
	}
	if s.limits == nil || s.limitsEnd <= now {
		s.limits, s.limitsEnd = nil, Never
	}
	return s
}

// inForce are the settings in force for the keys of a scope that have no limits of their own.
type inForce struct {
	mode   Mode
	limits []Limit
	origin byte
	after  []Limit // those that are in force when limits end
	ends   int64   // when the next of what is set ends; Never: nothing does
}

func (l *Line) inForce(scope string) inForce {
	configured, set, all := l.settings.Scopes[scope], l.set[scope].asOf(l.now), l.all.asOf(l.now)
	f := inForce{mode: configured.Mode, limits: configured.Limits, origin: 'c', ends: min(set.modeEnds, set.limitsEnd)}
	if configured.Mode == 0 {
		f.mode = Off // no scope of this process
	} else if all.mode != 0 {
		f.mode, f.ends = all.mode, min(f.ends, all.modeEnds)
	}
	if set.mode != 0 {
		f.mode = set.mode
	}
	if set.limitsEnd < Never {
		f.after = f.limits
	}
	if set.limits != nil {
		f.limits, f.origin = set.limits, 's'
	}
	return f
}

func (l *Line) setScope(scope string, set scopeSet) {
	l.set[scope] = set
	l.forgetEnded()
	l.hurryAll(scope + ":")
}

// forgetEnded forgets settings of scopes that have ended.
func (l *Line) forgetEnded() {
	l.all = l.all.asOf(l.now)
	for scope, set := range l.set {
		if set = set.asOf(l.now); set.mode == 0 && set.limits == nil {
			delete(l.set, scope)
		} else {
			l.set[scope] = set
		}
	}
}
