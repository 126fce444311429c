package main

import (
	"slices"
	"sync"
	"time"
)

// grant is one start that the throttle allowed, on Redis' clock.
type grant struct {
	start time.Time
	mail  *mail
}

// grants is all starts of a run, as the handler was told them. It is safe for
// concurrent use.
type grants struct {
	mu   sync.Mutex
	list []grant
}

func (g *grants) add(one grant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.list = append(g.list, one)
}

// all returns a copy of the grants so far, the earliest first.
func (g *grants) all() []grant {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.SortedFunc(slices.Values(g.list), func(a, b grant) int { return a.start.Compare(b.start) })
}

// unitsSince adds up the units of the starts after an instant.
func (g *grants) unitsSince(instant time.Time) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	var units int64
	for _, one := range g.list {
		if one.start.After(instant) {
			units += one.mail.units()
		}
	}
	return units
}

// delays returns the longest time from a grant to its receipt, and the
// shortest. A receipt belongs to the latest grant of its mail before it; with
// none before it (the clocks differ), to the first. Both are 0 without
// receipts.
func delays(granted []grant, receipts []receipt) (longest, shortest time.Duration) {
	starts := make(map[string][]time.Time)
	for _, g := range granted {
		starts[g.mail.id] = append(starts[g.mail.id], g.start)
	}
	first := true
	for _, r := range receipts {
		of := starts[r.mail]
		if len(of) == 0 {
			continue
		}
		start := of[0]
		for _, later := range of[1:] {
			if !later.After(r.at) {
				start = later
			}
		}
		delay := r.at.Sub(start)
		if first {
			longest, shortest, first = delay, delay, false
		}
		longest, shortest = max(longest, delay), min(shortest, delay)
	}
	return longest, shortest
}
