package throttle_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// mostKept is how many elements a collection of the throttle has at most, when many tenants have
// come and gone and one always stands in line: a few for the tenant that stands, and for the last
// that went. The jobs and the lane of that tenant come on top.
var mostKept = map[string]int64{
	"jobs": 0, "lane": 0, "timers": 10, "overdue": 0, "claims": 0, "shares": 0,
	"wait": 2, "lanes": 2, "tags": 5, "finish": 60,
}

// TestCollectionsAreBounded: tenants of one job each come, of other shares, of lower priorities, with
// heavy jobs, and go again, while another tenant's backlog always stands in line. The size of
// collections depends on the waiting jobs, not on the tenants that have been there.
func TestCollectionsAreBounded(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := tenantAndGlobal(throttle.Per(1000, time.Minute), throttle.Per(20, time.Second))
		s := newScripted(newThrottle(t, client, scopes, &throttle.Options{
			Lookahead: time.Second, Share: func(key string) int { return 1 + len(key)%2 },
		}))
		waiting := map[string]throttle.Job{}
		var slots []throttle.Reservation // of jobs that are booked already
		ask := func(at time.Time, job throttle.Job) {
			t.Helper()
			got, err := s.Reserve(at, job)
			if err != nil {
				t.Fatal(err)
			}
			switch waiting[job.ID] = job; got.Outcome {
			case throttle.Granted:
				delete(waiting, job.ID)
			case throttle.Booked:
				slots = append(slots, got)
			}
		}
		pull := func(at time.Time) {
			t.Helper()
			due := append(drain(t, s, at), slots...)
			slots = nil
			for _, booked := range due {
				ask(booked.Start, waiting[booked.Job.ID])
			}
		}
		seconds := longtest.Of(60, 300)
		for i := range 12 * seconds {
			ask(dawn, throttle.Job{ID: fmt.Sprint("stands", i), Weight: 1, Keys: of("stands")})
		}
		tenants := 0
		for second := range seconds {
			at := dawn.Add(time.Duration(second) * time.Second)
			for range 10 {
				tenants++
				job := throttle.Job{ID: fmt.Sprint("j", tenants), Weight: 1, Priority: tenants % 2,
					Keys: of(fmt.Sprint("t", tenants))}
				if tenants%10 == 0 {
					job.Weight = 15
				}
				ask(at, job)
			}
			if second == seconds/2 { // some leave
				for id := range waiting {
					if strings.HasPrefix(id, "j") && len(waiting) > 5 {
						if _, err := s.Leave(at, []string{id}); err != nil {
							t.Fatal(err)
						}
						delete(waiting, id)
					}
				}
			}
			pull(at)
		}
		at := dawn.Add(time.Duration(seconds) * time.Second)
		for left := 1; left > 0 && len(waiting) > 0; at = at.Add(time.Second) { // the tenants of one job go
			left = 0
			pull(at)
			for id := range waiting {
				if strings.HasPrefix(id, "j") {
					left++
				}
			}
		}
		for range 10 {
			pull(at)
			at = at.Add(time.Second)
		}
		if len(waiting) == 0 {
			t.Fatal("nobody stands any more")
		}
		// Shares are kept for ten days; a pull that handles a timer forgets some. Jobs that are booked meanwhile do not come.
		at = at.Add(11 * 24 * time.Hour)
		for range 1 + tenants/50 {
			if _, err := s.Pull(at); err != nil {
				t.Fatal(err)
			}
			at = at.Add(5 * time.Minute)
		}
		for _, key := range keyNames(t, client, s.throttle) {
			_, end, _ := strings.Cut(key, "}:4:")
			kind, _, _ := strings.Cut(end, ":")
			n, most := elements(t, client, key), mostKept[kind]
			if kind == "jobs" || kind == "lane" || kind == "timers" || kind == "overdue" {
				most += int64(len(waiting))
			}
			if n > most {
				t.Errorf("%s has %d elements after %d tenants, want at most %d", end, n, tenants, most)
			}
		}
	})
}

// elements returns how many elements a collection has, 0 for a string.
func elements(t *testing.T, client *redis.Client, key string) (n int64) {
	t.Helper()
	kind, err := client.Type(t.Context(), key).Result()
	switch {
	case err != nil:
	case kind == "hash":
		n, err = client.HLen(t.Context(), key).Result()
	case kind == "zset":
		n, err = client.ZCard(t.Context(), key).Result()
	case kind == "list":
		n, err = client.LLen(t.Context(), key).Result()
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}
