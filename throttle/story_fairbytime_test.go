package throttle_test

import (
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestFairByTimeOfManyShortJobs: many jobs of a tenant end at once, long before the second for which each has paid at
// its start. The tenant gets all that back, and its share of the places.
func TestFairByTimeOfManyShortJobs(t *testing.T) {
	t.Parallel()
	const places, tick = 30, 100 * time.Millisecond
	lasts := map[string]time.Duration{"short": 3 * tick, "long": 70 * tick}
	b := newBacklogs(t, append(globalScope(throttle.Running(places)), throttle.Scope{Name: "tenant"}),
		throttle.Options{Lookahead: time.Second, FairByTime: true})
	occupied := make(map[string]time.Duration) // places, for how long, by tenant
	for range 300 {
		b.arrive("short", places, 1)
		b.arrive("long", places, 1)
		b.now = b.now.Add(tick)
		for _, r := range b.running {
			occupied[r.Job.Keys["tenant"]] += tick
		}
		b.pull(b.end(func(tenant string) time.Duration { return lasts[tenant] })...)
	}
	if short, long := occupied["short"], occupied["long"]; short < long*8/10 || long < short*8/10 {
		t.Errorf("jobs occupied places for %s where they are short, for %s where they are long; want equal times",
			short, long)
	}
}
