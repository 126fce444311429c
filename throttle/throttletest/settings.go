package throttletest

import (
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// settings are what was set at run time.
type settings struct {
	pauses map[scopeKey]int64
	limits map[scopeKey][]throttle.Limit // an empty key: of all keys
	modes  map[string]throttle.Mode      // an empty scope: of all
}

func newSettings() settings {
	return settings{make(map[scopeKey]int64), make(map[scopeKey][]throttle.Limit), make(map[string]throttle.Mode)}
}

// ruling is a limit, and how it is in force.
type ruling struct {
	limit        throttle.Limit
	counts       bool // only: another is in force instead
	shadow, told bool // told: in just its precision
	atRunTime    bool
}

func (r ruling) free() bool { return r.counts || r.shadow }

// rule is what is counted for a scope key, which limits are in force, and the mode.
func (m *Model) rule(scope throttle.Scope, key string) (rulings []ruling, inForce []throttle.Limit, mode throttle.Mode) {
	mode = max(scope.Mode, m.options.Mode)
	if set, is := m.set.modes[""]; is {
		mode = set
	}
	if set, is := m.set.modes[scope.Name]; is {
		mode = set
	}
	inForce = scope.Limits
	set, isSet := m.set.limits[scopeKey{scope.Name, key}]
	if !isSet {
		set, isSet = m.set.limits[scopeKey{scope.Name, ""}]
	}
	if isSet {
		inForce = set
	}
	if mode == throttle.Off {
		return nil, inForce, mode
	}
	for _, limit := range inForce {
		if limit.Units != throttle.Unlimited {
			rulings = append(rulings, ruling{limit: limit, shadow: mode == throttle.Shadow, told: isSet, atRunTime: isSet})
		}
	}
	for _, limit := range scope.Limits {
		has := slices.ContainsFunc(rulings, func(r ruling) bool { return r.limit.Window == limit.Window })
		if limit.Units != throttle.Unlimited && !has {
			rulings = append(rulings, ruling{limit: limit, counts: true})
		}
	}
	return rulings, inForce, mode
}

// fits refuses a weight as a Throttle does before it asks the script.
func (m *Model) fits(job throttle.Job) error {
	for _, scope := range m.scopes {
		key, has := job.Keys[scope.Name]
		if !has && scope.Name != throttle.Global {
			continue
		}
		rulings, _, _ := m.rule(scope, key)
		for _, r := range rulings {
			switch {
			case r.free() || job.Weight <= r.limit.Units:
			case !r.atRunTime:
				return &throttle.NeverFitsError{Job: job.ID, Weight: job.Weight, Scope: scope.Name, Key: key, Limit: r.limit}
			case r.limit.Units > 0:
				return &throttle.BlockedError{Job: job.ID, Weight: job.Weight, Scope: scope.Name, Key: key, Limit: r.limit}
			}
		}
	}
	return nil
}

// pauses finds what closes the call's scope keys, and until when.
func (v *visit) pauses() {
	for i, k := range v.met {
		scope := v.model.scopes[slices.IndexFunc(v.model.scopes, func(s throttle.Scope) bool { return s.Name == k.scope })]
		_, _, mode := v.model.rule(scope, k.key)
		if ends := v.model.set.pauses[k]; ends > v.opens && mode == throttle.Enforce {
			v.opens, v.closer = ends, len(v.ledgers)+i+1
		}
	}
	for i, r := range v.rulings {
		if r.limit.Units == 0 && !r.free() {
			v.opens, v.closer = v.now+2*throttle.MaxWindow.Microseconds(), i+1 // beyond any lookahead
		}
	}
}

// foresee is what limits in shadow would have done to a job that starts then.
func (v *visit) foresee(weight, start int64) *throttle.Hold {
	holder, latest := 0, start
	for i, r := range v.rulings {
		if !r.shadow {
			continue
		}
		at := start + v.ledgers[i].span
		if weight <= r.limit.Units {
			at = v.ledgers[i].earliest(weight, start, v.now, false)
		}
		if at > latest {
			holder, latest = i+1, at
		}
	}
	if holder == 0 {
		return nil
	}
	hold := v.holds[holder-1]
	hold.Until = time.UnixMicro(latest)
	return &hold
}

// Pause closes a scope key as pause.lua does.
func (m *Model) Pause(now time.Time, scope, key string, until time.Time) (time.Time, error) {
	k := scopeKey{scope, key}
	m.set.pauses[k] = max(m.set.pauses[k], now.UnixMicro(), until.UnixMicro())
	m.line.agenda["!"+scope+":"+key] = m.set.pauses[k]
	return time.UnixMicro(m.set.pauses[k]), nil
}

// ResetLimits takes them back.
func (m *Model) ResetLimits(now time.Time, scope, key string) error {
	return m.SetLimits(now, scope, key, nil)
}

// SetMode sets a mode as set.lua does.
func (m *Model) SetMode(now time.Time, scope string, mode throttle.Mode) error {
	m.set.modes[scope] = mode
	m.RecallStep(now, throttle.Global, "")
	return nil
}

// ResetMode takes it back.
func (m *Model) ResetMode(now time.Time, scope string) error {
	delete(m.set.modes, scope)
	m.RecallStep(now, throttle.Global, "")
	return nil
}

// Limits tells what holds for a scope key as controls.lua does.
func (m *Model) Limits(now time.Time, scope, key string) (throttle.InForce, error) {
	k := scopeKey{scope, key}
	state := throttle.InForce{Scope: scope, Key: key}
	_, state.Limits, state.Mode = m.rule(m.scopes[slices.IndexFunc(m.scopes, func(s throttle.Scope) bool { return s.Name == scope })], key)
	_, ofScope := m.set.limits[scopeKey{scope, ""}]
	_, ofKey := m.set.limits[k]
	switch {
	case ofKey:
		state.Origin = throttle.FromKey
	case ofScope:
		state.Origin = throttle.FromScope
	}
	if ends := m.set.pauses[k]; ends > now.UnixMicro() {
		state.Paused = time.UnixMicro(ends)
	}
	return state, nil
}

// Settle corrects a charge as settle.lua does.
func (m *Model) Settle(now time.Time, granted throttle.Reservation, actual int64) (bool, error) {
	job := granted.Job
	v := m.visit(now, job.Keys)
	r, known := m.granted[job.ID+" "+job.Nonce]
	if kept, isKept := m.records[job.ID]; isKept {
		r = kept
		if r.nonce != job.Nonce || r.settled {
			return false, nil
		}
	}
	if !known || r.start+m.options.SettleWithin.Microseconds() < v.now || r.names.keys != v.names.keys {
		return false, nil
	}
	if delta := actual - r.weight; delta < 0 {
		v.unspend(r.start, -delta)
	} else {
		v.spend(r.start, delta)
	}
	v.written()
	r.settled, r.weight = true, actual
	m.records[job.ID] = r
	m.line.refund(fairOf(v.lane), float64(m.granted[job.ID+" "+job.Nonce].weight-actual)/m.share(fairOf(v.lane)))
	if actual < m.granted[job.ID+" "+job.Nonce].weight {
		v.makeRoom()
		if lane := m.line.lane(v.lane); len(lane.waiting) > 0 {
			m.line.enlist(lane)
		}
	}
	return true, nil
}

// HasRoom tells whether every window that contains a start has room for a job there,
// counting what is booked, and no pause is in its way.
func (m *Model) HasRoom(now time.Time, job throttle.Job, start time.Time) bool {
	v := m.visit(now, job.Keys)
	if v.closer > 0 && v.closer <= len(v.ledgers) {
		return start.UnixMicro() >= v.opens // a limit of 0
	}
	at, holder := v.place(job.Weight, start.UnixMicro(), false)
	return holder == 0 && at == start.UnixMicro()
}
