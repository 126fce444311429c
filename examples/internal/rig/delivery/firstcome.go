package delivery

import (
	"cmp"
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/check"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// maxModelled is the largest campaign that firstCome models: for each mail it goes through
// all earlier mails of its tenant and domain.
const maxModelled = 1000

// firstCome returns when each mail would have started if all tenants' mails were served in
// the order of their arrival: each gets, as it arrives, the earliest start that the configured
// limits leave. It ignores raised limits, pauses, second attempts and mails that never fit. The
// earliest start is first. It returns none after an earlier run, for large campaigns, and under quotas and hours.
func firstCome(r result) []grant {
	if _, follows := zoneOf(r.law.Scopes); follows || len(r.campaign.Mails) > maxModelled || r.resumed() {
		return nil
	}
	b := bookings{scopes: r.law.Scopes, events: make(map[scopeKey][]check.Event)}
	var starts []grant
	for _, m := range r.campaign.Mails {
		arrived := r.outcomes[m.ID].arrived
		if arrived.IsZero() || !fits(m, r.law.Scopes) {
			continue
		}
		starts = append(starts, grant{start: time.UnixMicro(b.book(m, arrived.UnixMicro())), mail: m})
	}
	slices.SortStableFunc(starts, func(a, b grant) int { return a.start.Compare(b.start) })
	return starts
}

// bookings are the starts that mails have got so far.
type bookings struct {
	scopes []throttle.Scope
	events map[scopeKey][]check.Event // in order
}

type scopeKey struct{ scope, key string }

// book gives a mail the earliest start from an instant on that all limits leave it.
func (b *bookings) book(m *campaign.Mail, at int64) int64 {
	for again := true; again; {
		again = false
		for _, scope := range b.scopes {
			events := b.events[scopeKey{scope.Name, m.Key(scope.Name)}]
			for _, limit := range scope.Limits {
				if from := earliest(events, limit, scope.Margin, m.Units(), at); from > at {
					at, again = from, true
				}
			}
		}
	}
	for _, scope := range b.scopes {
		k := scopeKey{scope.Name, m.Key(scope.Name)}
		i, _ := slices.BinarySearchFunc(b.events[k], at+1, func(e check.Event, at int64) int { return cmp.Compare(e.At, at) })
		b.events[k] = slices.Insert(b.events[k], i, check.Event{At: at, Units: m.Units(), Of: m})
	}
	return at
}

// earliest returns the first start, from an instant on, at which the added units leave every window under its limit.
// Two starts exactly one window apart are not in the same window.
func earliest(events []check.Event, limit throttle.Limit, margin time.Duration, units, at int64) int64 {
	window := (limit.Window + margin).Microseconds()
	for limit.Units != throttle.Unlimited {
		first, ok := overfull(events, at, window, limit.Units-units)
		if !ok {
			break
		}
		at = first + window
	}
	return at
}

// overfull looks for a window that contains an instant and more than most units. It returns when the events of the last
// such window begin: until they leave the window, there is no room.
func overfull(events []check.Event, at, window, most int64) (begins int64, ok bool) {
	var sum int64
	first, _ := slices.BinarySearchFunc(events, at-window+1,
		func(e check.Event, at int64) int { return cmp.Compare(e.At, at) })
	for _, e := range events[first:] {
		if e.At >= at+window {
			break
		}
		sum += e.Units
		for events[first].At <= e.At-window {
			sum -= events[first].Units
			first++
		}
		if sum > most {
			begins, ok = events[first].At, true
		}
	}
	return begins, ok
}

// resumed reports whether an earlier run began with this campaign.
func (r result) resumed() bool {
	for _, one := range r.outcomes {
		if one.earlier || !one.arrived.IsZero() && one.arrived.Before(r.began) {
			return true
		}
	}
	return false
}

// fits reports whether a mail may ever start.
func fits(m *campaign.Mail, scopes []throttle.Scope) bool {
	for _, scope := range scopes {
		for _, limit := range scope.Limits {
			if limit.Units != throttle.Unlimited && limit.Units < m.Units() {
				return false
			}
		}
	}
	return true
}
