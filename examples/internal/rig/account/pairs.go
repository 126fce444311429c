package account

import (
	"slices"
	"time"
)

// Pair is an entry of a record and the grant that it came by.
type Pair[G, R any] struct {
	Grant G
	Entry R
	Delay time.Duration // time from the granted start to the entry
}

// Pairs finds the grant of each entry of a record: the latest start of its job before it or, if there is none before
// it because the clocks differ, the first start. An entry of a job that was never granted is left out.
func Pairs[G, R any](grants []G, record []R, start func(G) (job string, at time.Time),
	came func(R) (job string, at time.Time)) []Pair[G, R] {
	startOf := func(g G) time.Time { _, at := start(g); return at }
	byJob := make(map[string][]G)
	for _, g := range slices.SortedStableFunc(slices.Values(grants), func(a, b G) int {
		return startOf(a).Compare(startOf(b))
	}) {
		job, _ := start(g)
		byJob[job] = append(byJob[job], g)
	}
	var pairs []Pair[G, R]
	for _, entry := range record {
		job, at := came(entry)
		of := byJob[job]
		if len(of) == 0 {
			continue
		}
		by := of[0]
		for _, later := range of[1:] {
			if !startOf(later).After(at) {
				by = later
			}
		}
		pairs = append(pairs, Pair[G, R]{by, entry, at.Sub(startOf(by))})
	}
	return pairs
}

// Spread returns how much closer together two entries of a record may be than their grants: the difference of the
// longest and the shortest delay. A shortest delay above zero counts as zero.
func Spread[G, R any](pairs []Pair[G, R]) time.Duration {
	var longest, shortest time.Duration
	for i, pair := range pairs {
		if i == 0 {
			longest = pair.Delay
		}
		longest, shortest = max(longest, pair.Delay), min(shortest, pair.Delay)
	}
	return longest - shortest
}
