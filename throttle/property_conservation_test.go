package throttle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestPropertyConservation keeps an account of grants and their settlements: at every step of a
// random history, the used units of each exact limit equal the account, to the unit, in every
// scope and window.
func TestPropertyConservation(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		rapid.Check(t, func(t *rapid.T) {
			units := rapid.SampledFrom([]int64{3, 10, 100}).Draw(t, "units")
			lease := rapid.SampledFrom([]time.Duration{10 * time.Second, throttle.DefaultLease, time.Hour}).Draw(t, "lease")
			a := &account{
				scopes: []throttle.Scope{
					{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(units, 10*time.Second),
						throttle.PerMinute(5 * units)}},
					{Name: "tenant", Limits: []throttle.Limit{throttle.PerMinute(4 * units)}},
				},
				now: dawn, placed: make(map[string]bool),
			}
			for i := range a.scopes {
				for j := range a.scopes[i].Limits {
					a.scopes[i].Limits[j].Precision = throttle.Exact
				}
			}
			for i := range a.scopes {
				a.scopes[i].Limits = append(a.scopes[i].Limits, throttle.Limit{Units: 2 * units, Running: true, Lease: lease})
			}
			a.redis = newScripted(newThrottle(t, client, a.scopes, &throttle.Options{Lookahead: lease / 2}))
			t.Repeat(map[string]func(*rapid.T){
				"advance":       a.advance,
				"reserve":       a.reserve,
				"reserve again": a.reserve, // twice as often
				"settle":        a.settle,
				"refund":        func(t *rapid.T) { a.correct(t, a.drawn(t), 0) },
				"settle costs":  a.settleCosts,
				"done":          a.done,
				"done ":         a.done,
				"renew":         a.renew,
				"cancel":        a.cancel,
				"release":       a.release,
				"pause":         a.pause,
				"resume":        a.resume,
				"limits":        a.setLimits,
				"reset":         a.resetLimits,
				"":              a.balance,
			})
		})
	})
}

// account has the grants and what happened to them.
type account struct {
	redis  *scripted
	scopes []throttle.Scope
	now    time.Time
	jobs   []throttle.Job
	grants []*charge
	placed map[string]bool // jobs that are booked or in line
	asked  int
}

// charge is a grant and what it counts for.
type charge struct {
	throttle.Reservation
	units   map[string]int64 // by scope
	settled bool
	gone    bool             // it was made a booking again before its start
	runs    map[string]int64 // by scope: what it holds of running limits, until it has ended
	until   time.Time        // the end of its lease
	// the job has another grant for the same instant: Done and Renew are of one of them, whichever
	twin bool
}

func (a *account) advance(t *rapid.T) {
	step := rapid.SampledFrom([]int64{1, 1000, 500_000, 2_000_000, 10_000_000, 61_000_000, 600_000_000}).Draw(t, "step")
	a.now = a.now.Add(time.Duration(step) * time.Microsecond)
}

// reserve asks for a new job, or again for an earlier one, always under a new nonce.
func (a *account) reserve(t *rapid.T) {
	job := throttle.Job{
		ID: fmt.Sprint("job", len(a.jobs)), Weight: rapid.Int64Range(1, 3).Draw(t, "weight"),
		Keys:    of(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "tenant")),
		Costs:   rapid.SampledFrom([]map[string]int64{nil, nil, {"tenant": 1}, {throttle.Global: 0}}).Draw(t, "costs"),
		MaxWait: rapid.SampledFrom([]time.Duration{0, 0, 15 * time.Second}).Draw(t, "wait"),
	}
	if len(a.jobs) > 0 && rapid.Bool().Draw(t, "known") {
		job = rapid.SampledFrom(a.jobs).Draw(t, "job")
	} else {
		a.jobs = append(a.jobs, job)
	}
	a.asked++
	job.Nonce = fmt.Sprint("n", a.asked)
	r, err := a.redis.Reserve(a.now, job)
	if err != nil {
		t.Fatal(err)
	}
	a.placed[job.ID] = r.Outcome != throttle.Granted
	if r.Outcome == throttle.Granted {
		units := func() map[string]int64 {
			return map[string]int64{throttle.Global: costOf(job, throttle.Global), "tenant": costOf(job, "tenant")}
		}
		g := &charge{Reservation: r, units: units(), runs: units(), until: r.Start.Add(r.Lease)}
		for _, other := range a.grants {
			if other.isTwinOf(g) {
				g.twin, other.twin = true, true
			}
		}
		a.grants = append(a.grants, g)
	}
}

func (a *account) drawn(t *rapid.T) *charge {
	if len(a.grants) == 0 {
		t.Skip("no grant yet")
	}
	return rapid.SampledFrom(a.grants).Draw(t, "grant")
}

func (a *account) settle(t *rapid.T) {
	a.correct(t, a.drawn(t), rapid.Int64Range(0, 8).Draw(t, "actual"))
}

func (a *account) correct(t *rapid.T, g *charge, actual int64) {
	done, err := a.redis.Settle(a.now, g.Reservation, actual)
	a.corrected(t, g, done, err, func(scope string, charged int64) int64 {
		if _, own := g.Job.Costs[scope]; own {
			return charged
		}
		return actual
	})
}

func (a *account) settleCosts(t *rapid.T) {
	g, actual := a.drawn(t), rapid.Int64Range(0, 8).Draw(t, "actual")
	done, err := a.redis.SettleCosts(a.now, g.Reservation, map[string]int64{"tenant": actual})
	a.corrected(t, g, done, err, func(scope string, charged int64) int64 {
		if scope == "tenant" {
			return actual
		}
		return charged
	})
}

// corrected notes a settlement, which a grant that was given back does not have.
func (a *account) corrected(t *rapid.T, g *charge, done bool, err error,
	actual func(scope string, charged int64) int64) {
	if err != nil {
		t.Fatal(err)
	}
	if !done {
		return
	}
	if g.settled || g.gone {
		t.Fatalf("%s, settled %t, given back %t, was settled", g.Job.Nonce, g.settled, g.gone)
	}
	g.settled = true
	for scope, units := range g.units {
		if units > 0 { // it was charged there
			g.units[scope] = actual(scope, units)
		}
	}
}

// done ends a grant: it occupies no places any more.
func (a *account) done(t *rapid.T) {
	g := a.drawn(t)
	held, err := a.redis.Done(a.now, g.Reservation)
	if err != nil {
		t.Fatal(err)
	}
	a.told(t, g, held[0])
	if !g.twin {
		clear(g.runs)
	}
}

// renew renews a grant, if its lease is not over.
func (a *account) renew(t *rapid.T) {
	g := a.drawn(t)
	held, err := a.redis.Renew(a.now, g.Reservation)
	if err != nil {
		t.Fatal(err)
	}
	a.told(t, g, held[0])
	if !held[0] && !g.twin {
		clear(g.runs)
		return
	}
	until := a.now.Add(g.Lease)
	for _, other := range a.grants {
		if (other == g || g.twin && other.isTwinOf(g)) && until.After(other.until) {
			other.until = until
		}
	}
}

func (c *charge) isTwinOf(other *charge) bool {
	return c.Job.ID == other.Job.ID && c.Start.Equal(other.Start)
}

// told compares with the account whether a grant occupied its places; the account knows that to
// two thousandths of a lease.
func (a *account) told(t *rapid.T, g *charge, held bool) {
	surely, perhaps := a.now.Before(g.until), a.now.Before(g.until.Add(g.Lease/500))
	if g.Lease > 0 && !g.twin && (held && !perhaps || len(g.runs) == 0 && held || len(g.runs) > 0 && surely && !held) {
		t.Fatalf("%s at %s: held %t; its lease is over at %s, it runs: %v", g.Job.Nonce, a.now, held, g.until, g.runs)
	}
}

// cancel gives a job's booking back, or takes the job out of line.
func (a *account) cancel(t *rapid.T) {
	g := a.drawn(t)
	done, err := a.redis.Cancel(a.now, g.Job)
	if err != nil || done != a.placed[g.Job.ID] {
		t.Fatalf("%s has a place: %t; cancelled: %t, %v", g.Job.ID, a.placed[g.Job.ID], done, err)
	}
	a.placed[g.Job.ID] = false
}

// release turns a grant back into a booking, which is possible before its start.
func (a *account) release(t *rapid.T) {
	g := a.drawn(t)
	done, err := a.redis.Release(a.now, g.Reservation)
	switch {
	case err != nil:
		t.Fatal(err)
	case done && (g.settled || g.gone || !g.Start.After(a.now) || a.placed[g.Job.ID]):
		t.Fatalf("%s, settled %t, given back %t, start %s, was given back at %s", g.Job.Nonce, g.settled, g.gone,
			g.Start, a.now)
	case done:
		g.gone, a.placed[g.Job.ID] = true, true
		clear(g.units)
		clear(g.runs)
	}
}

// key draws a scope key.
func (a *account) key(t *rapid.T) (scope throttle.Scope, key string) {
	scope = rapid.SampledFrom(a.scopes).Draw(t, "scope")
	if scope.Name != throttle.Global {
		key = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key")
	}
	return scope, key
}

func (a *account) pause(t *rapid.T) {
	scope, key := a.key(t)
	length := rapid.SampledFrom([]time.Duration{time.Millisecond, 5 * time.Second, time.Minute}).Draw(t, "length")
	if _, err := a.redis.Pause(a.now, scope.Name, key, a.now.Add(length)); err != nil {
		t.Fatal(err)
	}
}

func (a *account) resume(t *rapid.T) {
	scope, key := a.key(t)
	if _, err := a.redis.Resume(a.now, scope.Name, key); err != nil {
		t.Fatal(err)
	}
}

// setLimits sets other units for the same windows, 3 at least, so that each job fits.
func (a *account) setLimits(t *rapid.T) {
	scope, key := a.key(t)
	limits := make([]throttle.Limit, len(scope.Limits))
	for i, limit := range scope.Limits {
		limit.Units = rapid.SampledFrom([]int64{3, 10, 100, 101, 1000}).Draw(t, "set")
		limits[i] = limit
	}
	if err := a.redis.SetLimits(a.now, scope.Name, key, limits, time.Time{}); err != nil {
		t.Fatal(err)
	}
}

func (a *account) resetLimits(t *rapid.T) {
	scope, key := a.key(t)
	if err := a.redis.ResetLimits(a.now, scope.Name, key); err != nil {
		t.Fatal(err)
	}
}

// balance compares what is used with the account.
func (a *account) balance(t *rapid.T) {
	for _, scope := range a.scopes {
		keys := []string{""}
		if scope.Name != throttle.Global {
			keys = []string{"a", "b"}
		}
		for _, key := range keys {
			usage, err := a.redis.Usage(a.now, scope.Name, key)
			if err != nil {
				t.Fatal(err)
			}
			for _, limit := range usage.Limits {
				if limit.Limit.Running {
					if least, most := a.run(scope.Name, key); limit.Used < least || limit.Used > most {
						t.Fatalf("%s %q %s: %d run, the account says %d to %d", scope.Name, key, limit.Limit, limit.Used, least, most)
					}
					continue
				}
				if want := a.used(scope.Name, key, limit.Limit.Window); limit.Used != want {
					t.Fatalf("%s %q %s: %d used, the account says %d", scope.Name, key, limit.Limit, limit.Used, want)
				}
			}
		}
	}
}

// used returns the units that count in the window that ends now, and the units that start later.
func (a *account) used(scope, key string, window time.Duration) int64 {
	var units int64
	for _, g := range a.grants {
		if (scope == throttle.Global || g.Job.Keys[scope] == key) && g.Start.After(a.now.Add(-window)) &&
			!g.Start.After(a.now) {
			units += g.units[scope]
		}
	}
	return units
}

// run returns how many units run now, inexact by a sub-window at each start and two at the end of
// each lease.
func (a *account) run(scope, key string) (least, most int64) {
	for _, g := range a.grants {
		if scope != throttle.Global && g.Job.Keys[scope] != key {
			continue
		}
		if !g.twin && !g.Start.After(a.now) && a.now.Before(g.until) {
			least += g.runs[scope]
		}
		if !g.Start.After(a.now.Add(g.Lease/500)) && a.now.Before(g.until.Add(g.Lease/500)) {
			most += g.runs[scope]
		}
	}
	return least, most
}
