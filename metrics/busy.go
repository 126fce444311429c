package metrics

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

const (
	// mostBusy is how many keys of a scope a scrape asks for.
	mostBusy = 20
	// mostCounted bounds how many keys of a scope are counted at once.
	mostCounted = 1000
	// turnAfter is the length of the periods in which units are counted. A scrape adds up the current and the
	// last period and resets neither, so any number of Prometheus servers see the same.
	turnAfter = time.Minute
)

// busy finds the keys of a scope that had the most units lately, approximately.
type busy struct {
	mu          sync.Mutex
	now, before map[string]int64 // units by key
	turned      time.Time
}

// add counts units for a key. If there are too many keys, each loses the newcomer's units, until
// one is gone (Misra and Gries, 1982): a key with more than a thousandth of all units stays.
func (b *busy) add(key string, units int64, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn(at)
	if _, known := b.now[key]; known || len(b.now) < mostCounted {
		b.now[key] += units
		return
	}
	least := units
	for _, n := range b.now {
		least = min(least, n)
	}
	for other := range b.now {
		if b.now[other] -= least; b.now[other] == 0 {
			delete(b.now, other)
		}
	}
	if units > least {
		b.now[key] = units - least
	}
}

// top lists the keys with the most units, at most mostBusy.
func (b *busy) top(at time.Time) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn(at)
	units := make(map[string]int64, len(b.now)+len(b.before))
	for _, counted := range []map[string]int64{b.now, b.before} {
		for key, n := range counted {
			units[key] += n
		}
	}
	keys := make([]string, 0, len(units))
	for key := range units {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(x, y string) int { return cmp.Or(cmp.Compare(units[y], units[x]), cmp.Compare(x, y)) })
	return keys[:min(len(keys), mostBusy)]
}

// turn starts the next period when it is due. The caller holds mu.
func (b *busy) turn(at time.Time) {
	switch since := at.Sub(b.turned); {
	case b.now == nil || since >= 2*turnAfter:
		b.now, b.before, b.turned = make(map[string]int64), nil, at
	case since >= turnAfter:
		b.now, b.before, b.turned = make(map[string]int64), b.now, at
	}
}
