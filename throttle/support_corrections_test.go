package throttle_test

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/internal/wallclock"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// spent is a start with what it took of scope keys, "scope:key", and the labels of the limits that
// counted it there.
type spent struct {
	at     time.Time
	units  map[string]int64
	labels map[string][]string
}

// most are the units of a scope key in that window of a limit, of those that contain
// an instant, which holds most, or in the period of a quota. A start that the limit did not count, since it was not in
// force then, is left out.
func (h *machine) most(name string, at time.Time, limit throttle.Limit) int64 {
	var counted []spent
	for _, s := range h.starts {
		if slices.Contains(s.labels[name], limit.Label()) {
			counted = append(counted, s)
		}
	}
	if limit.Calendar != (throttle.Calendar{}) {
		return inPeriod(counted, name, at, limit.Calendar)
	}
	window := limit.Window
	var most int64
	for _, last := range counted {
		if last.at.Before(at) || last.at.Sub(at) >= window {
			continue
		}
		var sum int64
		for _, s := range counted {
			if age := last.at.Sub(s.at); age >= 0 && age < window {
				sum += s.units[name]
			}
		}
		most = max(most, sum)
	}
	return most
}

// inPeriod are the units of a scope key in the period of an instant.
func inPeriod(counted []spent, name string, at time.Time, of throttle.Calendar) (units int64) {
	zone, err := time.LoadLocation(of.Zone)
	if err != nil {
		panic(err)
	}
	began := wallclock.Began(of.Unit, of.Days, of.Hours, zone, at)
	for _, s := range counted {
		if s.at.Before(began) ||
			s.at.After(at) && !wallclock.Began(of.Unit, of.Days, of.Hours, zone, s.at).Equal(began) {
			continue
		}
		units += s.units[name]
	}
	return units
}

// drawGrant draws one that was made, perhaps settled before.
func (h *machine) drawGrant(t *rapid.T) (id string, granted throttle.Reservation) {
	grants := h.correctable()
	if len(grants) == 0 {
		t.Skip("no grant yet")
	}
	id = rapid.SampledFrom(grants).Draw(t, "grant")
	return id, h.grants[id]
}

// correctable are the jobs with a grant, but for a minute in which it depends on Redis' own
// clock, not on the test's, whether it is remembered that a grant was settled.
func (h *machine) correctable() (ids []string) {
	for id, granted := range h.grants {
		if left := granted.Start.Add(time.Hour).Sub(h.now); left < 0 || left >= time.Minute {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// corrected notes what a start took, where it was settled and still counts.
func (h *machine) corrected(id string, done bool, actual func(scope string, charged int64) int64) {
	if !done {
		return
	}
	job, start := h.grants[id].Job, h.starts[id]
	for _, scope := range h.scopes {
		name := scope.Name + ":" + job.Keys[scope.Name]
		if _, counted := start.units[name]; counted {
			start.units[name] = actual(scope.Name, start.units[name])
		}
	}
}

func (h *machine) settle(t *rapid.T) {
	id, granted := h.drawGrant(t)
	actual := rapid.SampledFrom([]int64{0, 1, 2, 7, 100}).Draw(t, "actual")
	got, gotErr := h.redis.Settle(h.now, granted, actual)
	want, wantErr := h.model.Settle(h.now, granted, actual)
	same(t, "Settle", got, want, gotErr, wantErr)
	h.corrected(id, got, func(scope string, charged int64) int64 {
		if _, own := granted.Job.Costs[scope]; own {
			return charged
		}
		return actual
	})
}

func (h *machine) settleCosts(t *rapid.T) {
	id, granted := h.drawGrant(t)
	of := rapid.SampledFrom(h.scopes).Draw(t, "of").Name
	actual := map[string]int64{of: rapid.SampledFrom([]int64{0, 1, 2, 7, 100}).Draw(t, "actual")}
	got, gotErr := h.redis.SettleCosts(h.now, granted, actual)
	want, wantErr := h.model.SettleCosts(h.now, granted, actual)
	same(t, "SettleCosts", got, want, gotErr, wantErr)
	h.corrected(id, got, func(scope string, charged int64) int64 {
		if scope == of {
			return actual[of]
		}
		return charged
	})
}

func (h *machine) refund(t *rapid.T) {
	id, granted := h.drawGrant(t)
	got, gotErr := h.redis.Refund(h.now, granted)
	want, wantErr := h.model.Refund(h.now, granted)
	same(t, "Refund", got, want, gotErr, wantErr)
	h.corrected(id, got, func(string, int64) int64 { return 0 })
}

func (h *machine) release(t *rapid.T) {
	id, granted := h.drawGrant(t)
	got, gotErr := h.redis.Release(h.now, granted)
	want, wantErr := h.model.Release(h.now, granted)
	same(t, "Release", got, want, gotErr, wantErr)
	if got {
		delete(h.starts, id)
		delete(h.places, id)
		h.slots = append(h.slots, granted)
	}
}
