package throttletest

import (
	"maps"
	"slices"
)

// tally is units by their times, in order, with the totals so far: sums without
// going through all.
type tally struct {
	times  []int64
	totals []int64 // totals[i] are the units of times[:i]
}

func newTally(units map[int64]int64) tally {
	t := tally{times: slices.Sorted(maps.Keys(units)), totals: []int64{0}}
	for i, at := range t.times {
		t.totals = append(t.totals, t.totals[i]+units[at])
	}
	return t
}

// until is how many times are at or before at.
func (t tally) until(at int64) int {
	n, _ := slices.BinarySearch(t.times, at+1)
	return n
}

// between are the times in (after, last].
func (t tally) between(after, last int64) []int64 { return t.times[t.until(after):t.until(last)] }

// sum is the units in (after, last].
func (t tally) sum(after, last int64) int64 {
	return t.totals[t.until(last)] - t.totals[t.until(after)]
}
