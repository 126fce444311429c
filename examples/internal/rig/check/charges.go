package check

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Charge is some units of one key in each scope. They count from At on, and as Then units from
// ThenAt on, until they leave the window.
type Charge struct {
	At, ThenAt  int64 // microseconds since 1970; ThenAt is not before At, and 0 if nothing changes
	Units, Then int64
	Of          Keyed
}

// Charges does what Limits does, for charges that change: it adds up, for each limit and each scope key, the window
// that ends at the beginning of each charge, with the units that each charge has at that instant. As in the throttle,
// windows are longer by the Margin of their scope. They are taken shorter by the given duration.
func Charges(charges []Charge, scopes []throttle.Scope, shorter time.Duration) []Use {
	var uses []Use
	for _, scope := range scopes {
		keys := make(map[string][]Charge)
		for _, c := range charges {
			key := c.Of.Key(scope.Name)
			keys[key] = append(keys[key], c)
		}
		for _, limit := range scope.Limits {
			window := max(0, limit.Window+scope.Margin-shorter).Truncate(time.Microsecond)
			use := Use{Scope: scope.Name, Limit: limit, Window: window}
			if use.Window > 0 {
				use.addUp(keys)
			}
			uses = append(uses, use)
		}
	}
	return uses
}

func (u *Use) addUp(keys map[string][]Charge) {
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		worst, over := fullest(keys[key], u.Limit.Units, u.Window.Microseconds())
		u.Over += over
		if worst > u.Worst || u.Key == "" {
			u.Worst, u.Key = worst, key
		}
	}
}

// step changes what a window holds, at an instant.
type step struct {
	at, units int64
	begins    bool
}

// fullest does what FullestWindow does, for charges. At one instant the window loses units before it gets others.
func fullest(charges []Charge, limit, window int64) (worst int64, over int) {
	var steps []step
	for _, c := range charges {
		steps = append(steps, step{c.At, c.Units, true})
		left := c.Units
		if c.ThenAt > 0 && c.ThenAt < c.At+window {
			steps = append(steps, step{max(c.At, c.ThenAt), c.Then - c.Units, false})
			left = c.Then
		}
		steps = append(steps, step{c.At + window, -left, false})
	}
	slices.SortFunc(steps, func(a, b step) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(order(a), order(b)))
	})
	var sum int64
	for i, s := range steps {
		sum += s.units
		if !s.begins || i+1 < len(steps) && steps[i+1].at == s.at && steps[i+1].begins {
			continue
		}
		worst = max(worst, sum)
		if limit != throttle.Unlimited && sum > limit {
			over++
		}
	}
	return worst, over
}

func order(s step) int {
	if s.begins {
		return 1
	}
	return 0
}
