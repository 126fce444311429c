package worker_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// crowdUnits is what a crowd may start in a minute.
var crowdUnits = longtest.Of(300, 600)

// crowd are the limits of tenants that together want more than the shared limit; each may
// start half of it a minute. The first tenant has half of all jobs and comes first.
var crowd = []throttle.Scope{
	{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerMinute(int64(crowdUnits))}},
	{Name: "tenant", Limits: []throttle.Limit{throttle.PerMinute(int64(crowdUnits / 2))}},
}

const crowdTenants = 6

// newcomers is the number of jobs of a newcomer.
var newcomers = crowdUnits / 12

// enqueueCrowd enqueues this many jobs, half of them the first tenant's.
func (w *world) enqueueCrowd(jobs int, weight func(n int) int64) {
	for n := range jobs {
		w.enqueue(n, crowdTenant(n, jobs), weight(n))
	}
}

func crowdTenant(n, jobs int) string {
	if n < jobs/2 {
		return "t0"
	}
	return fmt.Sprintf("t%d", 1+n%(crowdTenants-1))
}

// startsOf returns a tenant's starts in order of time, as instants and units.
func (w *world) startsOf(tenant string) (at []time.Duration, units []int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.starts {
		if s.Keys["tenant"] == tenant {
			at, units = append(at, s.At.Sub(w.began)), append(units, s.Weight)
		}
	}
	return at, units
}

// unitsWithin returns the units that each of the crowd's tenants started while all stood in
// line, from then on until the first tenant had no job left. Units that started in one
// sub-window leave it together, so that starts come in bursts; the burst in which the
// first tenant's jobs end is not counted.
func (w *world) unitsWithin(from time.Duration) []float64 {
	until := time.Duration(math.MaxInt64)
	for n := range crowdTenants {
		at, _ := w.startsOf(fmt.Sprintf("t%d", n))
		until = min(until, slices.Max(at)-2*600*time.Millisecond)
	}
	sums := make([]float64, crowdTenants)
	for n := range sums {
		at, units := w.startsOf(fmt.Sprintf("t%d", n))
		for i := range at {
			if at[i] > from && at[i] < until {
				sums[n] += float64(units[i])
			}
		}
	}
	return sums
}

// jain returns Jain's index: 1 if all values are the same, 1/n if one value has all.
func jain(of []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range of {
		sum, squares = sum+x, squares+x*x
	}
	return sum * sum / (float64(len(of)) * squares)
}

// TestFairShares lets 6 tenants of 300/min share 600/min, or half of both limits. One tenant has
// half of all jobs and came first. A newcomer brings 50 jobs after two minutes, just when the
// units that started first leave the window, or a moment later, when others have taken that room.
func TestFairShares(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	for name, row := range map[string]struct {
		jobs  int
		after time.Duration
	}{
		"at the window's edge": {3 * crowdUnits, 2 * time.Minute},
		"behind it":            {10 * crowdUnits, 2*time.Minute + 2500*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			jobs := longtest.Of(3*crowdUnits, row.jobs)
			inBubble(t, crowd, func(t *testing.T, w *world) { w.fairShares(jobs, row.after) })
		})
	}
}

func (w *world) fairShares(jobs int, after time.Duration) {
	w.handle = time.Millisecond
	w.enqueueCrowd(jobs, func(int) int64 { return 1 })
	w.began = time.Now()
	w.serve(asynq.Config{Concurrency: 32})
	w.until("all but the first are put back", time.Minute,
		func() bool { return w.shaper.Stats().PutBack >= int64(jobs-crowdUnits) })
	inLine := time.Since(w.began)
	time.Sleep(after - inLine)
	for n := range newcomers {
		w.enqueue(jobs+n, "newcomer", 1)
	}
	w.drained(jobs+newcomers, time.Hour)
	w.checked(jobs + newcomers)
	w.archived(0)

	sums := w.unitsWithin(inLine)
	if got := jain(sums); got < 0.99 {
		w.t.Errorf("Jain index %.4f of %v, want at least 0.99", got, sums)
	}
	at, _ := w.startsOf("newcomer")
	newcomer := slices.Max(at) - after
	if newcomer > 75*time.Second {
		w.t.Errorf("the newcomer's last job started after %s, want at most 75s", newcomer)
	}
	putBacks := float64(w.shaper.Stats().PutBack) / float64(jobs+newcomers)
	if putBacks > 1.05 {
		w.t.Errorf("put back %.3f per job, want at most 1.05", putBacks)
	}
	used := w.utilisation()
	if least := longtest.Of(0.88, 0.97); used < least {
		w.t.Errorf("the shared window was used to %.3f, want at least %v", used, least)
	}
	w.t.Logf("Jain %.4f of %v; newcomer %s, all booked at once %s; put back %.3f per job; shared window used to %.3f",
		jain(sums), sums, newcomer, crowdBookedAtOnce(jobs, after)-after, putBacks, used)
}

// crowdBookedAtOnce returns when the last of a newcomer's jobs starts if each job of the
// crowd is booked as it comes, at the earliest sub-window that keeps every window of its
// tenant and of all within the limit. Both windows have 100 sub-windows, and one more
// that begins in them.
func crowdBookedAtOnce(jobs int, after time.Duration) (last time.Duration) {
	const subWindow, span = 600 * time.Millisecond, 101
	windows := make(map[string]map[int]int) // by tenant, "" for all; units, by the window's last sub-window
	from := make(map[string]int)            // a tenant's next start is never earlier
	place := func(tenant string) (at int) {
		if windows[tenant] == nil {
			windows[tenant] = make(map[int]int)
		}
		all, own := windows[""], windows[tenant]
		full := func(end int) bool { return all[end] == crowdUnits || own[end] == crowdUnits/2 }
		at = from[tenant]
		for end := at; end < at+span; end++ {
			if full(end) {
				at = end + 1 // the first that this window does not contain
			}
		}
		for end := at; end < at+span; end++ {
			all[end]++
			own[end]++
		}
		from[tenant] = at
		return at
	}
	windows[""] = make(map[int]int)
	for n := range jobs {
		place(crowdTenant(n, jobs))
	}
	from["newcomer"] = int((after + subWindow - 1) / subWindow)
	for range newcomers {
		last = max(last, time.Duration(place("newcomer"))*subWindow)
	}
	return last
}

// utilisation divides the shortest time that the shared limit allows for the starts until
// only one tenant was left by the time that they took: start k cannot be before start
// k-crowdUnits has left the window.
func (w *world) utilisation() float64 {
	var lasts []time.Duration
	for n := range crowdTenants {
		at, _ := w.startsOf(fmt.Sprintf("t%d", n))
		lasts = append(lasts, slices.Max(at))
	}
	slices.Sort(lasts)
	until := lasts[len(lasts)-2]
	started := 0
	for _, s := range w.starts {
		if s.At.Sub(w.began) <= until {
			started++
		}
	}
	return float64((started-1)/crowdUnits) * float64(time.Minute) / float64(until)
}

// TestFairSharesDiffer gives the tenants shares of 3 : 2 : 1 …, the first in
// Options.Shares and the second by Options.Share, each alone below its own limit.
func TestFairSharesDiffer(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	scopes := []throttle.Scope{
		crowd[0],
		{Name: "tenant", Limits: crowd[0].Limits},
	}
	opts := &throttle.Options{
		Shares: map[string]int{"t0": 3},
		Share:  func(key string) int { return map[string]int{"t0": 9, "t1": 2}[key] }, // 0 is taken as 1
	}
	inBubbleWith(t, scopes, opts, func(t *testing.T, w *world) {
		sums := w.measured(longtest.Of(2000, 4000), func(int) int64 { return 1 })
		mean := 0.0
		for _, units := range sums[2:] {
			mean += units / float64(len(sums)-2)
		}
		t.Logf("units %v, the first two to the mean of the others %.3f and %.3f", sums, sums[0]/mean, sums[1]/mean)
		for i, units := range sums {
			want := mean * []float64{3, 2, 1, 1, 1, 1}[i]
			if most := longtest.Of(0.12, 0.03); math.Abs(units/want-1) > most {
				t.Errorf("t%d started %.0f units, want %.1f within a part of %v", i, units, want, most)
			}
		}
	})
}

// TestFairSharesAreUnits lets a tenth of the jobs weigh 20, or 10 where all limits are halved.
func TestFairSharesAreUnits(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	inBubble(t, crowd, func(t *testing.T, w *world) {
		sums := w.measured(longtest.Of(1200, 2400), func(n int) int64 {
			if n/10%10 == 3 {
				return int64(crowdUnits / 30)
			}
			return 1
		})
		t.Logf("units %v, Jain %.4f", sums, jain(sums))
		if got := jain(sums); got < 0.99 {
			t.Errorf("Jain index %.4f in units, want at least 0.99", got)
		}
	})
}

// measured runs a crowd and returns what each tenant started while all stood in
// line.
func (w *world) measured(jobs int, weight func(n int) int64) []float64 {
	jobs = jobs * crowdUnits / 600
	w.handle = time.Millisecond
	w.enqueueCrowd(jobs, weight)
	w.began = time.Now()
	w.serve(asynq.Config{Concurrency: 32})
	time.Sleep(30 * time.Second) // all have asked, and only the first window has started
	w.drained(jobs, 2*time.Hour)
	w.checked(jobs)
	return w.unitsWithin(30 * time.Second)
}
