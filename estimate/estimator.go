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
	// lessonsKept is how many of the last settlements of a kind are kept.
	lessonsKept = 256
	// kindsKept is how many kinds are kept; the least recently used is forgotten first.
	kindsKept = 1000
)

// Estimator learns from settlements how many units jobs of a kind take. Estimate returns the Weight of a job. Learn
// takes the number of units that a job was settled to. A kind groups jobs that take similar numbers of units, such as
// those of one type and model. The size of a job is what is known before it runs, such as the tokens of its prompt,
// best in the units that are charged.
//
// # The rule
//
// The last 256 settlements of a kind are kept. Three rules are fitted to them: a constant, the size plus a constant,
// and the size times a factor. Each rule covers 95 % of the settlements (Options.Quantile) and charges no less in
// total than the jobs took. The rule that charges the least in total is used, so a size that says nothing about the
// units does no harm.
//
// # Which way it errs
//
// Estimates are high on average, since each job is charged the 95th percentile. They are low for about one job in 20,
// at worst for one in 12. The percentile is exact: of n settlements, the one of rank ⌈0.95·(n+1)⌉. If jobs come in no
// particular order, the next job takes no more than that with a probability of at least 0.95, whatever the distribution
// (S. S. Wilks, Statistical Prediction with Special Reference to the Problem of Tolerance Limits, 1942). Taking the
// cheapest of three rules lowers this probability by at most 0.005, as measured.
//
// The ratio of all that is charged to all that is settled is the 95th percentile divided by the mean. The size of a job
// is a part of its units, and the rest varies. After 200 settlements the ratio is at most 1.25 if the rest is
// log-normal and the standard deviation of its logarithm is no larger than this:
//
//	size, of the units      0      1/2    4/5    92/100
//	deviation of the rest   0.13   0.24   0.5    1
//
// The ratio is also at most 1.25 where units are spread evenly from 0.6 to 1 times the largest. Where the size is no
// part of the units, the ratio is 1.5 for a deviation of 0.25, 2.1 for 0.5 and 3.3 for 1; it is 1.9 where units are
// spread evenly from 0 to the largest, and up to 2 where half of the jobs take much and half little. A better size
// helps then, or kinds whose jobs are more alike. A job in a thousand that takes a hundred times as many units as the
// others is in no percentile: make it a kind of its own.
//
// A full window can exceed its limit by what the running jobs use beyond their charges. That happens in one full window
// of 20 if one job runs at a time, and in one of 1,500 if four jobs run with a deviation of 0.13.
//
// # The start, and changes
//
// Until there are enough settlements, 19 for a quantile of 0.95, a job is charged its size plus the cold units of New,
// or more if the cheapest rule that covers all settlements so far charges more. Jobs that end early are learned first:
// where these are small, the first estimates are low. When jobs begin to take more, the estimates follow after a dozen
// settlements. When jobs begin to take less, they follow after nearly 256, and are high until then. A job that is
// settled to 0 units teaches nothing: otherwise an outage would make all jobs look small.
//
// A size above the largest that was learned is charged in proportion: the charge of the largest, times the ratio of the
// two sizes. A size below the smallest is charged like the smallest. Jobs of unknown size are learned apart from jobs
// of the same kind with a size.
//
// The settlements of 1000 kinds are kept, in this process only, in 4 KB for each kind; the kind that was used least
// recently is forgotten first. An Estimator is safe for use by many goroutines. Its methods block only while another
// goroutine is in one of them.
type Estimator struct {
	cold     int64
	most     int64
	quantile float64

	mu    sync.Mutex
	kinds map[kindOfJob]*lessons
	uses  uint64 // how many calls used a kind: the last use of a kind is one of these numbers
}

// Options are the settings of an Estimator that have a default. The zero value
// and nil both mean all defaults.
type Options struct {
	// Quantile is the part of the jobs of a kind that should take no more than their estimates. A lower one is enough
	// where many jobs run at once: some take more than their estimates, others less. 0 means 0.95; 0.5 to 0.99.
	Quantile float64
	// Most is the largest estimate, in units. Set it to the smallest limit that the jobs are charged to, since a heavier
	// job never starts. 0 means 2^53; 1 to 2^53.
	Most int64
}

// New returns an Estimator that has learned nothing. Until it has learned enough, a job is charged its size plus cold
// units, 1 to 2^53: choose what a job may take at most beyond its size, such as the bound on the tokens of an answer.
// The error is a *throttle.OptionError.
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

// Estimate returns how many units a job of this kind and size should be charged, always 1 or more. A size of 0 or less
// means that the size is unknown.
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

// Learn notes a settlement: the kind and the size of the job, as they were given to Estimate, and the units that the
// job was settled to. It ignores a settlement to 0 units or less.
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

// kindOfJob is a kind of jobs, either with a known size or without.
type kindOfJob struct {
	kind  string
	sized bool
}

// kindOf returns the kind of a job, and its size for the rules. Jobs of unknown size all get the size 1, so that the
// three rules charge the same.
func kindOf(kind string, size int64) (kindOfJob, int64) {
	return kindOfJob{kind: kind, sized: size > 0}, min(max(1, size), maxUnits)
}

// lesson is one settlement. Integers up to 2^53 are exact in a float64.
type lesson struct{ size, units float64 }

// lessons are the last settlements of a kind.
type lessons struct {
	last []lesson // in any order
	next int      // the index of the oldest, once there are lessonsKept
	used uint64   // Estimator.uses at the last use

	fitted    bool // rule, low and high were computed from last
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

// enough reports whether there are as many lessons as the quantile needs.
func (l *lessons) enough(quantile float64) bool { return rank(quantile, len(l.last)) <= len(l.last) }

// estimate returns what the rule charges for a size, in whole units, rounded up.
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

// fit finds the rule that charges the least for the lessons.
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

// rules returns the three rules. Each covers the quantile of the lessons, and charges for all of them no less than they
// took. sizes is the sum of their sizes.
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

// ranked sorts the numbers and returns their quantile: the largest number if there are too few.
func ranked(of []float64, quantile float64) float64 {
	slices.Sort(of)
	return of[min(rank(quantile, len(of)), len(of))-1]
}

// rank returns the lowest rank r for which the next number does not exceed the r-th of n sorted numbers with at least
// the probability quantile. It is above n if there are too few numbers for that probability.
func rank(quantile float64, n int) int { return int(math.Ceil(quantile * float64(n+1))) }
