package throttle_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestF15_PropertyEvictionUnderArrivals: Redis loses keys of the throttle, one after the other, while jobs keep
// coming, half of what the limits let through. Jobs that wait ask again every ten seconds. All jobs that waited
// at the last loss start within two minutes of it, while others still arrive.
func TestF15_PropertyEvictionUnderArrivals(t *testing.T) {
	t.Parallel()
	server, client := ageingServer(t)
	rapid.Check(t, func(t *rapid.T) {
		const tick, bound = 500 * time.Millisecond, 2 * time.Minute
		scopes := tenantAndGlobal(throttle.Per(rapid.Int64Range(3, 6).Draw(t, "tenant's"), 10*time.Second),
			throttle.Per(9, 10*time.Second))
		th := newThrottle(t, client, scopes, &throttle.Options{Lookahead: time.Second})
		s := newScripted(th)
		waits, asked, slots := make(map[string]throttle.Job), make(map[string]time.Time), make(map[string]time.Time)
		ask := func(at time.Time, job throttle.Job) {
			r, err := s.Reserve(at, job)
			mustBe(t, err)
			delete(slots, job.ID)
			waits[job.ID], asked[job.ID] = job, at
			switch r.Outcome {
			case throttle.Granted:
				delete(waits, job.ID)
			case throttle.Booked:
				slots[job.ID] = r.Start
			}
		}
		now, end := dawn, dawn.Add(time.Minute)
		losses := rapid.SliceOfN(rapid.IntRange(1, 119), 1, 5).Draw(t, "lost at ticks")
		var old map[string]throttle.Job
		for n := 0; now.Before(end); n++ {
			now = now.Add(tick)
			if n%8 == 0 || n < 10 { // a backlog, then a job of two units in 4 s
				weight := rapid.Int64Range(1, 3).Draw(t, "weight")
				tenant := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant")
				ask(now, throttle.Job{ID: fmt.Sprint("job", n), Weight: weight, Keys: of(tenant)})
			}
			pulled, err := s.Pull(now)
			mustBe(t, err)
			for _, r := range slices.Concat(pulled.Booked, pulled.Overdue) {
				if _, is := waits[r.Job.ID]; is {
					slots[r.Job.ID] = r.Start
				}
			}
			for _, id := range slices.Sorted(maps.Keys(waits)) {
				slot, booked := slots[id]
				if booked && !slot.After(now) || now.Sub(asked[id]) >= 10*time.Second {
					ask(now, waits[id])
				}
			}
			if slices.Contains(losses, n) {
				if key := drawEvicted(t, server.Keys(), th.Name()); key != "" {
					server.Del(key)
				}
				old, end = maps.Clone(waits), now.Add(bound)
			}
		}
		for _, id := range slices.Sorted(maps.Keys(old)) {
			if _, is := waits[id]; is {
				t.Fatalf("%s waited when the last key was lost, and has not started %s later", id, bound)
			}
		}
	})
}

func drawEvicted(t *rapid.T, all []string, name string) string {
	own := slices.DeleteFunc(all, func(key string) bool { return !strings.Contains(key, "{"+name+"}") })
	if len(own) == 0 {
		return ""
	}
	slices.Sort(own)
	return rapid.SampledFrom(own).Draw(t, "lost")
}
