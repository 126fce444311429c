package throttle_test

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/internal/wallclock"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

func (h *machine) pause(t *rapid.T) {
	scope, key := h.drawKey(t)
	until := h.now.Add(
		time.Duration(rapid.SampledFrom([]int64{-1, 1, 500_000, 3_000_000, 30_000_000, 400_000_000}).Draw(
			t, "length")) * time.Microsecond)
	got, gotErr := h.redis.Pause(h.now, scope.Name, key, until)
	want, wantErr := h.model.Pause(h.now, scope.Name, key, until)
	same(t, "Pause", got, want, gotErr, wantErr)
	h.set.pauses[scope.Name+":"+key] = got
}

func (h *machine) resume(t *rapid.T) {
	scope, key := h.drawKey(t)
	got, gotErr := h.redis.Resume(h.now, scope.Name, key)
	want, wantErr := h.model.Resume(h.now, scope.Name, key)
	same(t, "Resume", got, want, gotErr, wantErr)
	delete(h.set.pauses, scope.Name+":"+key)
}

// passes has the clock go on before what is set changes: two scripts are never run within the same
// microsecond.
func (h *machine) passes() { h.now = h.now.Add(time.Microsecond) }

func (h *machine) setLimits(t *rapid.T) {
	h.passes()
	scope, key := h.drawOverridden(t)
	limits := rapid.SliceOfNDistinct(drawLimit(windows, []int64{0, 1, 2, 5, 40, 1000, throttle.Unlimited}), 1, 2,
		func(l throttle.Limit) time.Duration { return l.Window }).Draw(t, "limits")
	if h.options.Lookahead <= maxLease/2 && rapid.Bool().Draw(t, "and what runs") {
		limits = append(limits, drawAtOnce(t, h.options.Lookahead))
	}
	if rapid.IntRange(0, 2).Draw(t, "and a quota") == 0 {
		limits = append(limits, drawQuota(t))
	}
	if rapid.IntRange(0, 3).Draw(t, "and hours") == 0 {
		limits = append(limits, drawOpen(t))
	}
	until := h.drawEnd(t)
	same(t, "SetLimits", true, true, h.redis.SetLimits(h.now, scope.Name, key, limits, until),
		h.model.SetLimits(h.now, scope.Name, key, limits, until))
	h.set.own[scope.Name+":"+key] = setUntil[[]throttle.Limit]{limits, until}
}

// steer holds, continues or ends the ramp of a scope key's limits, or goes back from a quota to a ramp.
func (h *machine) steer(t *rapid.T) {
	h.passes()
	scope, key := h.drawOverridden(t)
	limits := slices.Clone(h.set.limits(scope, key, h.now))
	i := slices.IndexFunc(limits, func(l throttle.Limit) bool { return l.Calendar != (throttle.Calendar{}) })
	if i < 0 {
		limits, i = append(limits, drawRamp(t)), len(limits)
	}
	switch rapid.SampledFrom([]string{"hold", "hold", "continue", "continue", "end", "begin"}).Draw(t, "do") {
	case "hold":
		limits[i] = limits[i].Held(h.now)
	case "continue":
		limits[i] = limits[i].Continued(h.now)
	case "end":
		limits[i] = limits[i].Ended()
	case "begin":
		limits[i] = drawRamp(t)
		for j := range limits {
			if j != i && limits[j].Calendar == limits[i].Calendar {
				return
			}
		}
	}
	same(t, "SetLimits", true, true, h.redis.SetLimits(h.now, scope.Name, key, limits, time.Time{}),
		h.model.SetLimits(h.now, scope.Name, key, limits, time.Time{}))
	h.set.own[scope.Name+":"+key] = setUntil[[]throttle.Limit]{limits, time.Time{}}
}

// unitsAt returns the units of a limit at an instant, by the clock of its zone.
func unitsAt(limit throttle.Limit, at time.Time) int64 {
	if limit.Ramp != "" {
		return wallclock.UnitsAt(limit.Ramp, at)
	}
	return limit.Units
}

func (h *machine) resetLimits(t *rapid.T) {
	h.passes()
	scope, key := h.drawOverridden(t)
	same(t, "ResetLimits", true, true, h.redis.ResetLimits(h.now, scope.Name, key),
		h.model.ResetLimits(h.now, scope.Name, key))
	delete(h.set.own, scope.Name+":"+key)
}

func (h *machine) setMode(t *rapid.T) {
	h.passes()
	scope := rapid.SampledFrom([]string{"", throttle.Global, "tenant", "domain"}).Draw(t, "of")
	mode := rapid.SampledFrom([]throttle.Mode{-1, -1, throttle.Enforce, throttle.Enforce, throttle.Shadow,
		throttle.Off}).Draw(t, "mode")
	if mode < 0 {
		same(t, "ResetMode", true, true, h.redis.ResetMode(h.now, scope), h.model.ResetMode(h.now, scope))
		delete(h.set.modes, scope)
		return
	}
	until := h.drawEnd(t)
	same(t, "SetMode", true, true, h.redis.SetMode(h.now, scope, mode, until), h.model.SetMode(h.now, scope, mode, until))
	h.set.modes[scope] = setUntil[throttle.Mode]{mode, until}
}

// drawEnd draws when what is set ends by itself; the zero time: it does not.
func (h *machine) drawEnd(t *rapid.T) time.Time {
	lasts := rapid.SampledFrom([]int64{0, 0, 1, 200_000, 700_000, 3_000_000, 30_000_000, 400_000_000}).Draw(t, "lasts")
	if lasts == 0 {
		return time.Time{}
	}
	return h.now.Add(time.Duration(lasts) * time.Microsecond)
}

// drawOverridden draws a scope key, or a scope for all its keys.
func (h *machine) drawOverridden(t *rapid.T) (throttle.Scope, string) {
	scope, key := h.drawKey(t)
	if rapid.Bool().Draw(t, "all keys") {
		key = ""
	}
	return scope, key
}
