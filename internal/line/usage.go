package line

// Usage is the state of a limit of a scope key.
type Usage struct {
	Limit        Limit
	Units        int64 // in force: of a ramp those of its step, 0 before it begins
	Used, Booked int64
	Free         int64 // the earliest start of one unit
	Anew         int64 // when the period of a quota ends, or hours open or close; 0 for others
}

// KeyState is the state of a scope key.
type KeyState struct {
	Paused int64
	Part   int64 // of its limits that is served, in thousandths
	Mode   Mode
	Origin byte
	Ends   int64  // when the next of what is set for it ends; 0: nothing does
	Flows  int64  // that stand under it
	Timer  int64  // when a pull looks at these flows; 0 without flows
	Length Length // of its line
	Limits []Usage
}

// State returns the state of a scope key. It changes nothing.
func (l *Line) State(now int64, settings Settings, name string) KeyState {
	l.begin(now, settings)
	k := l.key(name)
	state := KeyState{Part: k.adapted.part(), Mode: k.mode, Origin: k.origin, Length: l.Length(name)}
	if k.ends < Never {
		state.Ends = k.ends
	}
	if k.paused() > now {
		state.Paused = k.paused()
	}
	if q := l.queues[name]; q != nil && q.tags.len() > 0 {
		state.Flows = int64(q.tags.len())
		state.Timer, _ = l.timers.get(name)
	}
	for _, limit := range k.limits {
		u := Usage{Limit: limit, Units: k.unitsAt(&limit, now), Free: now}
		if d := k.ledger(limit.Span); d != nil && limit.Units >= 0 {
			u.Used, u.Booked = d.uses(now + k.shift)
			u.Free = k.free(&limit, now)
		}
		switch {
		case limit.Kind == Quota:
			u.Anew = k.anew(limit, now)
		case limit.Kind.opens():
			u.Free, u.Anew = opensAt(limit.Calendar, now), turnsAt(limit.Calendar, now)
		}
		state.Limits = append(state.Limits, u)
	}
	l.end()
	return state
}

// free returns the earliest start of one unit under a limit, 0 for never.
func (k *key) free(limit *Limit, now int64) int64 {
	if free := k.under(limit, now, now, 1, true); free != Never {
		return free
	}
	return 0
}

// anew returns when the period of a quota ends, by the clock.
func (k *key) anew(limit Limit, now int64) int64 {
	d := k.ledger(limit.Span)
	if d == nil {
		return (&ledger{Span: limit.Span}).leaves(now)
	}
	return d.leaves(now+k.shift) - k.goesOn
}
