package check

import (
	"cmp"
	"slices"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Span is some units of a key that were in use from one instant until another.
type Span struct {
	At, End int64 // microseconds since 1970
	Units   int64
	Key     string
}

// AtOnce is how much of a running limit was in use at once at most, over all keys.
type AtOnce struct {
	Limit throttle.Limit
	Key   string // the key with the most in use
	Worst int64
	Over  int // spans at whose beginning more than the limit was in use
}

// Running adds up, for each key and at the beginning of each span, the units in use. At the
// instant of its end a span is no longer in use.
func Running(spans []Span, limit throttle.Limit) AtOnce {
	use := AtOnce{Limit: limit}
	keys := make(map[string][]Span)
	for _, s := range spans {
		keys[s.Key] = append(keys[s.Key], s)
	}
	for key, own := range keys {
		worst, over := mostAtOnce(own, limit.Units)
		use.Over += over
		if worst > use.Worst || worst == use.Worst && key < use.Key {
			use.Worst, use.Key = worst, key
		}
	}
	return use
}

func mostAtOnce(spans []Span, limit int64) (worst int64, over int) {
	type change struct{ at, units int64 }
	changes := make([]change, 0, 2*len(spans))
	for _, s := range spans {
		changes = append(changes, change{s.At, s.Units}, change{max(s.At+1, s.End), -s.Units})
	}
	slices.SortFunc(changes,
		func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.units, b.units)) })
	var sum int64
	for _, c := range changes {
		sum += c.units
		worst = max(worst, sum)
		if c.units > 0 && limit != throttle.Unlimited && sum > limit {
			over++
		}
	}
	return worst, over
}
