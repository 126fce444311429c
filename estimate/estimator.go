// Package estimate learns from settlements how many units the next job takes. It needs neither Redis nor a queue;
// package worker fills in the weights of tasks with it.
package estimate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// maxUnits is the largest Weight of a throttle.Job.
const maxUnits = 1 << 53

const (
	defaultQuantile = 0.95
	// lessonsKept is how many settlements of a kind are learned from, the last ones.
	lessonsKept = 256
	// kindsKept is how many kinds are; the least recently used is forgotten first.
	kindsKept = 1000
)

// Estimator learns from settlements how many units jobs of a kind take. Estimate returns the Weight
// for a job; Learn is told what a job was settled with. A kind groups jobs that take about the same,
// such as those of one type and model. A job's size is what is known before it runs, such as the
// tokens of its prompt, best in the units that are charged.
//
// # The rule
//
// The last 256 settlements of a kind are kept. Three rules are fitted to them: a constant, the size
// plus a constant, and the size times a factor. Each covers 95 % of the settlements
// (Options.Quantile) and charges no less in total than the jobs took. The rule that charges
// least in total is used, so sizes that tell nothing do no harm.
//
// # Which way it errs
//
// Estimates are high on average, since each job is charged the 95th percentile, and low for about
// one job in 20, at times for one in 12. The percentile is exact: of n settlements the one of
// rank ⌈0.95·(n+1)⌉. If jobs come in no order, the next takes no more than that with a
// probability of 0.95 or more, whatever the distribution (S. S. Wilks, Statistical
// Prediction with Special Reference to the Problem of Tolerance Limits, 1942). That the
// cheapest of three rules is taken costs half of a hundredth of it at most, as measured.
//
// All that is charged over all that is settled is the 95th percentile over the mean. After
// 200 settlements that is 1.25 or less where units are log-normal, and the part of them that
// the size does not tell has a standard deviation, of its logarithm, of no more than this:
//
//	part that the size tells   0      1/2    4/5    92/100
//	the rest varies by         0.13   0.24   0.5    1
//
// So it is where all from 0.6 to 1 times the largest are alike likely. Where the size tells
// nothing it is 1.5 for 0.25, 2.1 for 0.5 and 3.3 for 1; 1.9 where all from 0 to the
// largest are alike likely, and up to 2 where half of the jobs take much and half little.
// A better size helps then, or kinds that are more alike. A job in a thousand that takes a
// hundred times as much as others is in no percentile: make it a kind of its own.
//
// When a window is full, it can exceed its limit by what the running jobs use beyond their charges.
// That happens in one full window of 20 if one job runs at a time, and in one of 1,500 if four jobs
// run that vary by 0.13.
//
// # The start, and changes
//
// Until there are settlements enough, 19 for 0.95, a job is charged its size plus
// the cold units of New, or the largest settlement seen if that is more. Jobs that end
// early are learned first: where these are the small ones the start errs low. When jobs
// begin to take more, a dozen settlements are enough to follow; when they take less it needs
// nearly 256, and errs high until then. A job that is settled for nothing teaches nothing,
// else an outage would have all jobs look small.
//
// A size beyond the largest that was learned is charged in proportion to what that would be
// charged; one below the smallest as much as the smallest. Jobs whose size is not known are
// learned apart from those of the same kind with a size.
//
// All is kept in this process, for 1000 kinds, with 4 KB for each; the least recently used
// is forgotten. An Estimator is safe for many goroutines and waits for none but them.
type Estimator struct {
	cold     int64
	most     int64
	quantile float64

	mu    sync.Mutex
	kinds map[kindOfJob]*lessons
	uses  uint64 // counts calls, to know which kind was used last
}

// Options are the settings of an Estimator that have a default. The zero value and
// nil both have all of them.
type Options struct {
	// Quantile is the part of the jobs of a kind that is to take no more than its
	// estimate. Where many jobs run at once a lower one will do, since what some take
	// more others take less. 0 means 0.95; 0.5 to 0.99.
	Quantile float64
	// Most bounds every estimate, in units: set it to the smallest limit that the jobs
	// are charged to, since a heavier job never starts. 0 means 2^53; 1 to 2^53.
	Most int64
}

// New returns an Estimator that has learned nothing. Until it has, a job is charged
// its size and cold units on top: what it may take at most, such as its bound on the tokens
// of an answer. 1 to 2^53. The error is a
// *throttle.OptionError.
func New(cold int64, opts *Options) (*Estimator, error) {
	var options Options
	if opts != nil {
		options = *opts
	}
	options.Quantile = cmp.Or(options.Quantile, defaultQuantile)
	options.Most = cmp.Or(options.Most, maxUnits)
	switch {
	case cold < 1 || cold > maxUnits:
		return nil, &throttle.OptionError{Field: "cold", Value: cold,
			Reason: fmt.Sprintf("is not between 1 and %d", maxUnits)}
	case !(options.Quantile >= 0.5 && options.Quantile <= 0.99):
		return nil, &throttle.OptionError{Field: "Quantile", Value: options.Quantile,
			Reason: "is not between 0.5 and 0.99"}
	case options.Most < 1 || options.Most > maxUnits:
		return nil, &throttle.OptionError{Field: "Most", Value: options.Most,
			Reason: fmt.Sprintf("is not between 1 and %d", maxUnits)}
	}
	return &Estimator{cold: cold, most: options.Most, quantile: options.Quantile, kinds: make(map[kindOfJob]*lessons)}, nil
}

// Estimate says how many units a job is to be charged, by its kind and its size: 1 or more,
// whatever it is asked. A size of 0 or less is not known.
func (e *Estimator) Estimate(kind string, size int64) int64 {
	of, size := kindOf(kind, size)
	e.mu.Lock()
	defer e.mu.Unlock()
	units := 0.0
	learned := e.kinds[of]
	if learned != nil {
		learned.used = e.use()
		units = learned.estimate(size, e.quantile)
	}
	if learned == nil || !learned.enough(e.quantile) {
		cold := e.cold
		if of.sized {
			cold += size
		}
		units = max(units, float64(cold))
	}
	return min(max(1, int64(min(units, float64(maxUnits)))), e.most)
}

// Learn takes note of a job that was settled, with the kind and the size that it was
// estimated by and the units that it took. Of 0 or less nothing is learned.
func (e *Estimator) Learn(kind string, size, units int64) {
	if units <= 0 {
		return
	}
	of, size := kindOf(kind, size)
	e.mu.Lock()
	defer e.mu.Unlock()
	learned := e.kinds[of]
	if learned == nil {
		if len(e.kinds) >= kindsKept {
			e.forget()
		}
		learned = new(lessons)
		e.kinds[of] = learned
	}
	learned.used = e.use()
	learned.add(lesson{size: float64(size), units: float64(min(units, maxUnits))})
}

func (e *Estimator) use() uint64 {
	e.uses++
	return e.uses
}

// forget forgets the kind that was used least recently.
func (e *Estimator) forget() {
	var oldest kindOfJob
	least := uint64(math.MaxUint64)
	for of, learned := range e.kinds {
		if learned.used < least {
			oldest, least = of, learned.used
		}
	}
	delete(e.kinds, oldest)
}

// kindOfJob keeps jobs of one kind apart whose size is known and is not.
type kindOfJob struct {
	kind  string
	sized bool
}

// kindOf is the key of a job, and its size for the rules. Of jobs without a size all have
// the same, so that the three rules are one.
func kindOf(kind string, size int64) (kindOfJob, int64) {
	return kindOfJob{kind: kind, sized: size > 0}, min(max(1, size), maxUnits)
}

// lesson is one settlement. Integers up to 2^53 are exact in a float64.
type lesson struct{ size, units float64 }

// lessons are the last settlements of a kind.
type lessons struct {
	last []lesson // in any order
	next int      // the oldest, once there are as many as are kept
	used uint64

	fitted    bool // rule, low and high are of what is in last
	rule      rule
	low, high float64 // the smallest and the largest size
}

// rule is what a job is charged: base units, and slope for each unit of its size.
type rule struct{ base, slope float64 }

func (l *lessons) add(one lesson) {
	l.fitted = false
	if len(l.last) < lessonsKept {
		l.last = append(l.last, one)
		return
	}
	l.last[l.next] = one
	l.next = (l.next + 1) % lessonsKept
}

// enough tells that there are as many lessons as the quantile needs.
func (l *lessons) enough(quantile float64) bool { return rank(quantile, len(l.last)) <= len(l.last) }

// estimate is what the rule says for a size, in whole units, rounded up.
func (l *lessons) estimate(size int64, quantile float64) float64 {
	if !l.fitted {
		l.fit(quantile)
	}
	s := float64(size)
	units := l.rule.base + l.rule.slope*min(max(s, l.low), l.high)
	if s > l.high {
		units *= s / l.high
	}
	return math.Ceil(units)
}

// fit finds the rule that charges the least for what was learned.
func (l *lessons) fit(quantile float64) {
	n, sizes := float64(len(l.last)), 0.0
	l.low, l.high = math.Inf(1), 0
	for _, one := range l.last {
		sizes += one.size
		l.low, l.high = min(l.low, one.size), max(l.high, one.size)
	}
	cheapest := math.Inf(1)
	for _, r := range l.rules(quantile, sizes) {
		if charges := n*r.base + r.slope*sizes; charges < cheapest {
			l.rule, cheapest = r, charges
		}
	}
	l.fitted = true
}

// rules are the three that cover the quantile of what was learned, and its mean.
func (l *lessons) rules(quantile, sizes float64) [3]rule {
	var units float64
	each, onTop, times := make([]float64, len(l.last)), make([]float64, len(l.last)), make([]float64, len(l.last))
	for i, one := range l.last {
		each[i], onTop[i], times[i] = one.units, one.units-one.size, one.units/one.size
		units += one.units
	}
	n := float64(len(l.last))
	return [3]rule{
		{base: max(ranked(each, quantile), units/n)},
		{base: max(ranked(onTop, quantile), (units-sizes)/n), slope: 1},
		{slope: max(ranked(times, quantile), units/sizes)},
	}
}

// ranked is the quantile of some numbers, which it sorts: the largest where there are too
// few.
func ranked(of []float64, quantile float64) float64 {
	slices.Sort(of)
	return of[min(rank(quantile, len(of)), len(of))-1]
}

// rank is that of the smallest among n sorted numbers which one more is not above, with the
// probability of the quantile at least; n+1 if none is.
func rank(quantile float64, n int) int { return int(math.Ceil(quantile * float64(n+1))) }
