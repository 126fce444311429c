// Package account has what the examples' accounts of a run have in common: what happened, what became of each job,
// which grant an entry of a record came by, and the loop that shows the progress.
package account

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// List is what happened in a run, in the order in which it was noted. It is safe for concurrent use.
type List[T any] struct {
	mu  sync.Mutex
	all []T
}

// Add appends an entry and returns its number, for Change.
func (l *List[T]) Add(one T) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, one)
	return len(l.all) - 1
}

// Change changes the entry of a number.
func (l *List[T]) Change(number int, change func(*T)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.all[number])
}

// All returns a copy of the entries so far.
func (l *List[T]) All() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// InOrder returns a copy of the entries by their instants.
func (l *List[T]) InOrder(at func(T) time.Time) []T {
	all := l.All()
	slices.SortStableFunc(all, func(a, b T) int { return at(a).Compare(at(b)) })
	return all
}

// Sum adds up what each entry counts.
func (l *List[T]) Sum(counts func(T) int64) (sum int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.all {
		sum += counts(one)
	}
	return sum
}

// Percentile returns the smallest value that is not exceeded by the given percentage of the values, or 0 if there are
// no values. It sorts them.
func Percentile[T cmp.Ordered](values []T, percent int) (at T) {
	if len(values) == 0 {
		return at
	}
	slices.Sort(values)
	rank := (len(values)*percent + 99) / 100
	return values[max(0, rank-1)]
}
