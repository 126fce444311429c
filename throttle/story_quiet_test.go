package throttle_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// quietWindow is the window of what all share in TestF57_QuietTenantBesideAFlood.
const quietWindow = 20 * time.Second

// TestF57_QuietTenantBesideAFlood: a tenant brings a job a second, a tenth of the limit,
// first alone, then while another tenant has 100,000 jobs in line before it. The first
// tenant's p99 wait grows by a window at most, and a second. A real Redis makes each
// decision, at instants that the test sets.
func TestF57_QuietTenantBesideAFlood(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	flood := longtest.Of(20_000, 100_000)
	client := redistest.Start(t).Client(t)
	alone, beside := quietWaits(t, client, 0), quietWaits(t, client, flood)
	p := func(of []time.Duration, percent int) time.Duration { return of[(len(of)*percent+99)/100-1] }
	t.Logf("waits of the quiet tenant, alone: p50 %s p99 %s; beside %d jobs in line: p50 %s p99 %s",
		p(alone, 50), p(alone, 99), flood, p(beside, 50), p(beside, 99))
	if got, most := p(beside, 99), p(alone, 99)+quietWindow+time.Second; got > most {
		t.Errorf("its p99 wait is %s, want at most %s", got, most)
	}
}

// quietWaits are a quiet tenant's waits, in order, beside a flood that came before.
func quietWaits(t *testing.T, client *redis.Client, flood int) []time.Duration {
	t.Helper()
	scopes := []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{{Units: 200, Window: quietWindow, Precision: throttle.Exact}}},
		{Name: "tenant"},
	}
	c := &crew{
		subject: newScripted(newThrottle(t, client, scopes, &throttle.Options{Lookahead: time.Second})),
		now:     dawn, jobs: make(map[string]throttle.Job), excused: make(map[string]bool), around: make(map[string]bool),
	}
	c.crowd(t, flood, of("flood"))
	for n := range 120 {
		job := throttle.Job{ID: fmt.Sprint("quiet", n), Weight: 1, Keys: of("quiet")}
		c.jobs[job.ID] = job
		c.arrivals = append(c.arrivals, happening{job, dawn.Add(time.Duration(n+1) * time.Second)})
	}
	waits, seen := []time.Duration{}, 0
	for len(waits) < 120 {
		c.step(t)
		for ; seen < len(c.starts); seen++ {
			if s := c.starts[seen]; s.Keys["tenant"] == "quiet" {
				waits = append(waits, s.at.Sub(c.arrivalOf(t, s.ID)))
			}
		}
		if c.now.After(dawn.Add(10 * time.Minute)) {
			t.Fatalf("%d of the quiet tenant's jobs have started after %s", len(waits), c.now.Sub(dawn))
		}
	}
	if left := c.arrived - len(c.starts) - len(c.slots); flood > 0 && left < flood*9/10 {
		t.Errorf("%d of the flood are left in line: this test has tested nothing", left)
	}
	starts := make([]throttletest.Start, len(c.starts))
	for i, s := range c.starts {
		starts[i] = throttletest.Start{At: s.at, Weight: s.Weight, Keys: s.Keys}
	}
	for _, over := range throttletest.Check(scopes, starts) {
		t.Errorf("window over its limit: %s", over)
	}
	slices.Sort(waits)
	return waits
}

// crowd brings so many jobs at once, in batches side by side.
func (c *crew) crowd(t *testing.T, jobs int, keys map[string]string) {
	t.Helper()
	const batch, goroutines = 1000, 4
	c.subject.at(c.now)
	all := make([]throttle.Job, jobs)
	for i := range all {
		all[i] = throttle.Job{ID: fmt.Sprint("crowd", i), Weight: 1, Keys: keys}
		c.jobs[all[i].ID] = all[i]
		c.arrivals = append(c.arrivals, happening{all[i], c.now})
	}
	c.arrived = len(all)
	answers := make([]throttle.Answer, jobs)
	var group sync.WaitGroup
	for g := range goroutines {
		group.Go(func() {
			for from := g * batch; from < jobs; from += goroutines * batch {
				copy(answers[from:], c.subject.throttle.ReserveAll(t.Context(), all[from:min(from+batch, jobs)]))
			}
		})
	}
	group.Wait()
	for i, answer := range answers {
		switch r := answer.Reservation; {
		case answer.Err != nil:
			t.Fatal(answer.Err)
		case r.Outcome == throttle.Granted:
			c.starts = append(c.starts, happening{all[i], r.Start})
		case r.Outcome == throttle.Booked:
			c.keep(t, r)
		}
	}
}

func (c *crew) arrivalOf(t *testing.T, id string) time.Time {
	t.Helper()
	for i := len(c.arrivals) - 1; i >= 0; i-- {
		if c.arrivals[i].ID == id {
			return c.arrivals[i].at
		}
	}
	t.Fatalf("%s has not arrived", id)
	return time.Time{}
}
