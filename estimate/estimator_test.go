package estimate_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/estimate"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// The numbers of lessons of a kind, and of kinds, that an Estimator keeps.
const (
	lessonsKept = 256
	kindsKept   = 1000
)

// maxUnits is the largest weight of a job.
const maxUnits = 1 << 53

func newEstimator(t rapid.TB, cold int64, opts *estimate.Options) *estimate.Estimator {
	t.Helper()
	e, err := estimate.New(cold, opts)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestNew_Options(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name  string
		cold  int64
		opts  *estimate.Options
		field string // the option that is refused; empty: none
	}{
		{"the defaults", 1, nil, ""},
		{"the zero value", maxUnits, &estimate.Options{}, ""},
		{"the least", 1, &estimate.Options{Quantile: 0.5, Most: 1}, ""},
		{"the most", 1, &estimate.Options{Quantile: 0.99, Most: maxUnits}, ""},
		{"nothing known at the start", 0, nil, "cold"},
		{"a start below nothing", -1, nil, "cold"},
		{"too much at the start", maxUnits + 1, nil, "cold"},
		{"less than the median", 1, &estimate.Options{Quantile: 0.49}, "Quantile"},
		{"all of them", 1, &estimate.Options{Quantile: 1}, "Quantile"},
		{"no number", 1, &estimate.Options{Quantile: math.NaN()}, "Quantile"},
		{"less than nothing", 1, &estimate.Options{Most: -1}, "Most"},
		{"more than can be charged", 1, &estimate.Options{Most: maxUnits + 1}, "Most"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, err := estimate.New(row.cold, row.opts)
			var option *throttle.OptionError
			switch {
			case row.field == "" && err != nil:
				t.Errorf("got %v, want none", err)
			case row.field != "" && (!errors.As(err, &option) || option.Field != row.field):
				t.Errorf("got %v, want an OptionError of %s", err, row.field)
			}
		})
	}
}

// TestEstimator_Cold: while there are too few settlements for its quantile, an Estimator
// charges the cold units and the size, or more if it has learned of more. With just enough
// settlements, the quantile is the largest of them.
func TestEstimator_Cold(t *testing.T) {
	t.Parallel()
	for quantile, enough := range map[float64]int64{0: 19, 0.5: 1, 0.9: 9, 0.95: 19, 0.99: 99} {
		t.Run(fmt.Sprint(quantile), func(t *testing.T) {
			t.Parallel()
			e := newEstimator(t, 500, &estimate.Options{Quantile: quantile})
			estimates(t, e, 0, 500)
			estimates(t, e, 70, 570)
			for n := int64(1); n < enough; n++ {
				e.Learn("summarise", 0, 100+n)
				estimates(t, e, 0, 500)
			}
			e.Learn("summarise", 0, 100)
			estimates(t, e, 0, max(100, 99+enough))
			estimates(t, e, 70, 570)
			if got := e.Estimate("translate", 0); got != 500 {
				t.Errorf("another kind is charged %d, want 500", got)
			}
		})
	}
	e := newEstimator(t, 500, nil)
	e.Learn("summarise", 100, 900)
	estimates(t, e, 100, 900)
	estimates(t, e, 1000, 9000)
}

func estimates(t *testing.T, e *estimate.Estimator, size, want int64) {
	t.Helper()
	if got := e.Estimate("summarise", size); got != want {
		t.Errorf("of size %d: charged %d, want %d", size, got, want)
	}
}

// TestEstimator_Rules: an Estimator finds how units depend on sizes. For sizes beyond the
// learned ones it charges carefully: a smaller job as the smallest, a larger one in proportion.
func TestEstimator_Rules(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name  string
		units func(size int64) int64
		want  map[int64]int64 // by size; the sizes that were learned are 100 to 199
	}{
		{"the same for each", func(int64) int64 { return 500 }, map[int64]int64{100: 500, 150: 500, 1: 500, 398: 1000}},
		{"so many on top", func(size int64) int64 { return size + 300 },
			map[int64]int64{100: 400, 150: 450, 1: 400, 398: 998}},
		{"fewer than the size", func(size int64) int64 { return size - 99 },
			map[int64]int64{100: 1, 150: 51, 1: 1, 398: 200}},
		{"so many times", func(size int64) int64 { return 3 * size }, map[int64]int64{100: 300, 150: 450, 1: 300, 398: 1194}},
		{"a part", func(size int64) int64 { return (size + 3) / 4 }, map[int64]int64{100: 26, 1: 26, 199: 52, 398: 103}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			e := newEstimator(t, 1, nil)
			for size := int64(100); size < 200; size++ {
				e.Learn("summarise", size, row.units(size))
			}
			for size, want := range row.want {
				estimates(t, e, size, want)
			}
			estimates(t, e, 0, 1) // jobs of no known size are learned apart
		})
	}
}

// TestEstimator_Bounds: every estimate is between 1 and Most, and invalid units teach nothing.
func TestEstimator_Bounds(t *testing.T) {
	t.Parallel()
	e := newEstimator(t, 1000, &estimate.Options{Quantile: 0.5, Most: 5000})
	for _, units := range []int64{0, -1, math.MinInt64} {
		e.Learn("summarise", 0, units)
	}
	estimates(t, e, 0, 1000)
	estimates(t, e, math.MinInt64, 1000)
	estimates(t, e, 4001, 5000)
	e.Learn("summarise", -7, 50) // of no known size
	estimates(t, e, -8, 50)
	e.Learn("summarise", 10, 100)
	estimates(t, e, 20, 200)
	estimates(t, e, math.MaxInt64, 5000)

	e = newEstimator(t, maxUnits, &estimate.Options{Quantile: 0.5})
	estimates(t, e, math.MaxInt64, maxUnits)
	e.Learn("summarise", 1, math.MaxInt64)
	e.Learn("summarise", math.MaxInt64, 1)
	for _, size := range []int64{1, 2, maxUnits, math.MaxInt64} {
		if got := e.Estimate("summarise", size); got < 1 || got > maxUnits {
			t.Errorf("of size %d: charged %d, which is not between 1 and 2^53", size, got)
		}
	}

	e = newEstimator(t, 1, nil)
	e.Learn("summarise", 10, 50) // the other jobs take 99 units less than their size
	for size := int64(100); size < 200; size++ {
		e.Learn("summarise", size, size-99)
	}
	estimates(t, e, 10, 1)
}

// TestEstimator_FollowsChanges: estimates rise soon when jobs take more, and fall late when
// jobs take less.
func TestEstimator_FollowsChanges(t *testing.T) {
	t.Parallel()
	e := newEstimator(t, 1, nil)
	learn := func(times int, units int64) {
		for range times {
			e.Learn("summarise", 0, units)
		}
	}
	learn(lessonsKept, 100)
	learn(11, 300)
	estimates(t, e, 0, 109) // the mean
	learn(1, 300)
	estimates(t, e, 0, 300)
	learn(lessonsKept-12, 50)
	estimates(t, e, 0, 300)
	learn(1, 50)
	estimates(t, e, 0, 61) // the mean
	learn(11, 50)
	estimates(t, e, 0, 50)
}

// TestEstimator_ForgetsKinds: memory is bounded, and the kind that was unused for longest is
// forgotten first.
func TestEstimator_ForgetsKinds(t *testing.T) {
	t.Parallel()
	e := newEstimator(t, 7, &estimate.Options{Quantile: 0.5})
	for _, kind := range []string{"summarise", "used", "unused"} {
		e.Learn(kind, 0, 100)
	}
	for i := range kindsKept - 3 {
		e.Learn(fmt.Sprint(i), 0, 100)
	}
	e.Learn("summarise", 0, 100)
	e.Estimate("used", 0)
	e.Estimate("never learned", 0) // an estimate alone keeps no kind
	e.Learn("one more", 0, 100)
	for kind, want := range map[string]int64{"summarise": 100, "used": 100, "0": 100, "one more": 100, "unused": 7,
		"never learned": 7} {
		if got := e.Estimate(kind, 0); got != want {
			t.Errorf("kind %q: charged %d, want %d", kind, got, want)
		}
	}
}

// TestEstimator_ManyAtOnce: many goroutines use one Estimator. The race detector checks more.
func TestEstimator_ManyAtOnce(t *testing.T) {
	t.Parallel()
	e := newEstimator(t, 1, nil)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range int64(300) {
				e.Learn("summarise", 1+i%10, 100*(1+i%10))
				if got := e.Estimate("summarise", 5); got < 5 || got > 1000 {
					t.Errorf("charged %d, want 5 to 1000", got)
				}
				e.Learn(fmt.Sprint(i), 0, i)
			}
		})
	}
	all.Wait()
	estimates(t, e, 7, 700)
}

// lesson is one settlement that an Estimator learned.
type lesson struct{ size, units float64 }

// naively returns the answers for a size that are right: one for each rule that charges the
// least for all lessons. It counts through all lessons again.
func naively(all []lesson, size, quantile, cold float64) (answers []float64) {
	all = all[max(0, len(all)-lessonsKept):]
	want := int(math.Ceil(quantile * float64(len(all)+1)))
	if want <= len(all) {
		cold = 1
	}
	if len(all) == 0 {
		return []float64{cold}
	}
	want = min(want, len(all))
	var units, sizes float64
	low, high := all[0].size, all[0].size
	for _, l := range all {
		units, sizes, low, high = units+l.units, sizes+l.size, min(low, l.size), max(high, l.size)
	}
	beyond := max(1, size/high)
	size = min(max(size, low), high)
	n := float64(len(all))
	each := max(covers(all, want, func(l lesson) float64 { return l.units }), units/n)
	added := max(covers(all, want, func(l lesson) float64 { return l.units - l.size }), (units-sizes)/n)
	times := max(covers(all, want, func(l lesson) float64 { return l.units / l.size }), units/sizes)
	charged := []float64{n * each, n*added + sizes, times * sizes}
	answered := []float64{each, added + size, times * size}
	for i, answer := range answered {
		if charged[i] <= min(charged[0], charged[1], charged[2])*(1+1e-9) {
			answers = append(answers, max(cold, math.Ceil(answer*beyond)))
		}
	}
	return answers
}

// covers returns the least number that is at least as large as want of the numbers.
func covers(all []lesson, want int, of func(lesson) float64) float64 {
	least := math.Inf(1)
	for _, l := range all {
		below := 0
		for _, other := range all {
			if of(other) <= of(l) {
				below++
			}
		}
		if below >= want {
			least = min(least, of(l))
		}
	}
	return least
}

// TestPropertyEstimator compares an Estimator with naively, after random histories of two
// kinds, with and without sizes.
func TestPropertyEstimator(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		quantile := rapid.SampledFrom([]float64{0.5, 0.9, 0.95, 0.99}).Draw(t, "quantile")
		e := newEstimator(t, 3, &estimate.Options{Quantile: quantile})
		largest := rapid.SampledFrom([]int64{5, 100, 1_000_000, maxUnits}).Draw(t, "largest")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		histories := make(map[string][]lesson)
		key := func(kind string, size int64) string { return fmt.Sprint(kind, size > 0) }
		for range rapid.IntRange(0, 2*lessonsKept).Draw(t, "settlements") {
			kind, size, units := string("aab"[random.IntN(3)]), random.Int64N(largest+1)-largest/4, random.Int64N(largest+1)
			e.Learn(kind, size, units)
			if units > 0 {
				histories[key(kind, size)] = append(histories[key(kind, size)], lesson{float64(max(1, size)), float64(units)})
			}
		}
		for i, size := range rapid.SliceOfN(rapid.Int64Range(-1, largest), 4, 4).Draw(t, "sizes") {
			kind := string("abab"[i])
			answers := naively(histories[key(kind, size)], float64(max(1, size)), quantile, float64(3+max(0, size)))
			got, fits := float64(e.Estimate(kind, size)), false
			for _, want := range answers {
				want = min(want, float64(maxUnits))
				fits = fits || math.Abs(got-want) <= 1+1e-9*want
			}
			if !fits {
				t.Fatalf("kind %s of size %d after %d settlements: charged %v, want one of %v", kind, size,
					len(histories[key(kind, size)]), got, answers)
			}
		}
	})
}

// TestPropertyEstimator_Covers: after every history, 95 % of the lessons are covered, and all
// lessons together are charged no less than they took. A larger job is charged no less than a
// smaller one.
func TestPropertyEstimator_Covers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := newEstimator(t, 1, nil)
		number := rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, 1_000_000_000))
		sizes, units := rapid.SliceOfN(number, 19, 300).Draw(t, "sizes"), rapid.SliceOfN(number, 300, 300).Draw(t, "units")
		for i, size := range sizes {
			e.Learn("summarise", size, units[i])
		}
		covered, charged, settled := 0, int64(0), int64(0)
		first := max(0, len(sizes)-lessonsKept)
		for i := first; i < len(sizes); i++ {
			estimate := e.Estimate("summarise", sizes[i])
			charged, settled = charged+estimate, settled+units[i]
			if estimate >= units[i] {
				covered++
			}
		}
		if want := int(math.Ceil(0.95 * float64(len(sizes)-first))); covered < want || charged < settled {
			t.Fatalf(
				"of %d jobs that took %d in all %d are covered, charged %d; want %d, and no less than they took",
				len(sizes)-first, settled, covered, charged, want)
		}
		size, more := number.Draw(t, "size"), number.Draw(t, "more")
		if less, more := e.Estimate("summarise", size), e.Estimate("summarise", size+more); less < 1 || more < less {
			t.Fatalf("of size %d: charged %d; of a larger one %d", size, less, more)
		}
	})
}

// jobs draws the size of a job, 0 if it is not known, and what it takes.
type jobs func(r *rand.Rand) (size, units int64)

// usually is the mean of what a job takes.
const usually = 10_000

// logNormal draws a log-normal number. The mean is that of the number, the deviation that of
// its logarithm.
func logNormal(r *rand.Rand, mean, deviation float64) float64 {
	return mean * math.Exp(deviation*(r.NormFloat64()-deviation/2))
}

func varying(deviation float64) jobs {
	return func(r *rand.Rand) (int64, int64) { return 0, int64(logNormal(r, usually, deviation)) }
}

func uniform(low float64) jobs {
	return func(r *rand.Rand) (int64, int64) { return 0, int64(usually * (low + (1-low)*r.Float64())) }
}

// onTop draws jobs whose size is a part of their units. The rest does not depend on the size.
func onTop(part, deviation float64) jobs {
	return func(r *rand.Rand) (int64, int64) {
		size := logNormal(r, part*usually, 0.8)
		return int64(size), int64(size + logNormal(r, (1-part)*usually, deviation))
	}
}

// byMultiples draws jobs whose size is a part of their units. The rest is a multiple of the size.
func byMultiples(part, deviation float64) jobs {
	return func(r *rand.Rand) (int64, int64) {
		size := logNormal(r, part*usually, 0.8)
		return int64(size), int64(size + size*logNormal(r, (1-part)/part, deviation))
	}
}

// unrelated draws jobs whose size does not depend on their units.
func unrelated(deviation float64) jobs {
	return func(r *rand.Rand) (int64, int64) {
		return 1 + int64(logNormal(r, 1000, 1)), int64(logNormal(r, usually, deviation))
	}
}

// chargedOverSettled learns from 200 jobs, then charges and settles more jobs. It returns the
// units charged over those settled, and the part of these jobs that took no more than charged.
func chargedOverSettled(t rapid.TB, of jobs, seed uint64, more int) (ratio, covered float64) {
	r := rand.New(rand.NewPCG(seed, 200))
	e := newEstimator(t, usually, nil)
	var charged, settled float64
	for i := range 200 + more {
		size, units := of(r)
		units = max(1, units)
		if i >= 200 {
			estimate := e.Estimate("summarise", size)
			charged, settled = charged+float64(estimate), settled+float64(units)
			if units <= estimate {
				covered++
			}
		}
		e.Learn("summarise", size, units)
	}
	return charged / settled, covered / float64(more)
}

// TestEstimator_ChargedOverSettled checks the ratios that the documentation names for each
// distribution.
func TestEstimator_ChargedOverSettled(t *testing.T) {
	t.Parallel()
	const goal = 1.25
	rows := map[string]struct {
		of       jobs
		from, to float64
	}{
		"constant":                      {func(*rand.Rand) (int64, int64) { return 0, usually }, 1, 1},
		"no size, 0.13":                 {varying(0.13), 1, goal},
		"sizes that tell nothing, 0.13": {unrelated(0.13), 1, goal},
		"half on top, 0.24":             {onTop(0.5, 0.24), 1, goal},
		"half by multiples, 0.24":       {byMultiples(0.5, 0.24), 1, goal},
		"four fifths on top, 0.5":       {onTop(0.8, 0.5), 1, goal},
		"four fifths by multiples, 0.5": {byMultiples(0.8, 0.5), 1, goal},
		"92 of 100 on top, 1":           {onTop(0.92, 1), 1, goal},
		"92 of 100 by multiples, 1":     {byMultiples(0.92, 1), 1, goal},
		"from 0.6 of the largest":       {uniform(0.6), 1, goal},
		"beyond the goal: 0.25":         {varying(0.25), 1.4, 1.6},
		"beyond the goal: 0.5":          {varying(0.5), 1.9, 2.3},
		"beyond the goal: 1":            {varying(1), 2.8, 3.8},
		"beyond the goal: uniform":      {uniform(0), 1.8, 2},
		"beyond the goal: half and little": {func(r *rand.Rand) (int64, int64) {
			return 0,
				usually * int64(r.IntN(2))
		}, 1.8, 2.2},
		"rare and huge is not less than its mean": {func(r *rand.Rand) (int64, int64) {
			return 0, usually * (1 + 99*max(0, 1-int64(r.IntN(100))))
		}, 0.7, 1.4},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ratio, covered := chargedOverSettled(t, row.of, 1, 1000)
			t.Logf("charged over settled %.3f, %.1f %% were charged no less than they took", ratio, 100*covered)
			if ratio < row.from || ratio > row.to {
				t.Errorf("charged over settled is %.3f, want %g to %g", ratio, row.from, row.to)
			}
			if covered < 0.93 {
				t.Errorf("%.3f were charged no less than they took, want 0.95 or so", covered)
			}
		})
	}
}

// TestEstimator_AtOnce: how often the jobs that run at once together take more units than they
// were charged. A full window is then over its limit by the difference.
func TestEstimator_AtOnce(t *testing.T) {
	t.Parallel()
	rows := []struct {
		varies         float64
		one, four, all float64 // the largest part of draws, with 1, 4 and 8 jobs at once
	}{
		{0.13, 0.06, 0.0015, 0.0002},
		{0.5, 0.06, 0.005, 0.0005},
		{1, 0.06, 0.02, 0.006},
	}
	for _, row := range rows {
		t.Run(fmt.Sprint(row.varies), func(t *testing.T) {
			t.Parallel()
			of := varying(row.varies)
			over := make(map[int]float64)
			const learners, draws = 20, 2500
			for seed := range uint64(learners) {
				r := rand.New(rand.NewPCG(seed, 8))
				e := newEstimator(t, 1, nil)
				for range lessonsKept {
					_, units := of(r)
					e.Learn("summarise", 0, units)
				}
				estimate := e.Estimate("summarise", 0)
				for range draws {
					sum := int64(0)
					for n := 1; n <= 8; n++ {
						_, units := of(r)
						if sum += units; sum > int64(n)*estimate {
							over[n] += 1.0 / (learners * draws)
						}
					}
				}
			}
			t.Logf("over with 1, 4 and 8 at once: %.5f, %.5f and %.5f", over[1], over[4], over[8])
			if over[1] > row.one || over[4] > row.four || over[8] > row.all || over[1] < 0.03 {
				t.Errorf("over with 1, 4 and 8 at once: %.5f, %.5f and %.5f; want up to %g, %g and %g", over[1],
					over[4], over[8], row.one, row.four, row.all)
			}
		})
	}
}

// TestPropertyEstimator_Goal: for distributions well within the spread that the documentation
// names, 200 settlements are enough to charge at most 1.25 times what jobs take.
func TestPropertyEstimator_Goal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var of jobs
		switch rapid.SampledFrom([]string{"flat", "uniform", "on top", "times"}).Draw(t, "jobs") {
		case "flat":
			of = varying(rapid.Float64Range(0, 0.1).Draw(t, "deviation"))
		case "uniform":
			of = uniform(rapid.Float64Range(0.7, 1).Draw(t, "low"))
		case "on top":
			of = onTop(rapid.Float64Range(0.8, 1).Draw(t, "part"), rapid.Float64Range(0, 0.35).Draw(t, "deviation"))
		case "times":
			of = byMultiples(rapid.Float64Range(0.8, 1).Draw(t, "part"), rapid.Float64Range(0, 0.35).Draw(t, "deviation"))
		}
		ratio, _ := chargedOverSettled(t, of, rapid.Uint64().Draw(t, "seed"), 100)
		if ratio < 0.98 || ratio > 1.25 {
			t.Fatalf("charged over settled is %.3f, want up to 1.25", ratio)
		}
	})
}
