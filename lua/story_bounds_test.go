package lua_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// TestSharesAreBounded: more tenants with a share of their own come than the throttle remembers. It forgets the tenants
// whose shares were last given the longest ago. The test itself writes most of the shares, in the form in which the
// scripts write them (docs/redis-state.md).
func TestSharesAreBounded(t *testing.T) {
	t.Parallel()
	const most, batch = 10_000, 60
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := &scripted{client: client, prefix: fmt.Sprintf("thr:{shares-%p}:4:", t),
			settings: line.Settings{Lookahead: second, Grace: 5 * second, Lower: 9,
				Scopes: map[string]line.Scope{"global": {Mode: line.Enforce,
					Limits: []line.Limit{{Units: 0, Span: line.Window(second), Precision: 1}}}}}}
		now, tenants := int64(1_795_219_498_000_000), most-2*batch
		told := make([]redis.Z, tenants)
		for n := range told {
			told[n] = redis.Z{Score: float64(now/second<<20 + 2), Member: fmt.Sprint("t", n)}
		}
		if err := client.ZAdd(t.Context(), s.prefix+"shares", told...).Err(); err != nil {
			t.Fatal(err)
		}
		for tenants < most+300 {
			now += second
			var jobs []line.Job
			for range batch {
				jobs = append(jobs, line.Job{ID: fmt.Sprint(tenants), Lane: fmt.Sprintf("t%d|global:", tenants), Costs: []int64{1},
					Latest: line.Never, Share: 2})
				tenants++
			}
			if _, answers, err := s.reserve(now, jobs); err != nil || len(answers) != batch {
				t.Fatalf("%d answers, %v", len(answers), err)
			}
		}
		all := client.ZRange(t.Context(), s.prefix+"shares", 0, -1).Val()
		if last := fmt.Sprintf("t%d", tenants-1); len(all) != most || all[0] == "t0" || all[most-1] != last {
			t.Errorf("%d shares are kept, from that of %s to that of %s; want %d, to that of %s", len(all), all[0],
				all[len(all)-1], most, last)
		}
	})
}

// TestFinishTagsAreBounded: many tenants have started a job. Then the global key is paused, and one job stands there.
// The virtual time of the key stands still, so no finish tag is behind it, while each tenant's job is settled for more.
func TestFinishTagsAreBounded(t *testing.T) {
	t.Parallel()
	const most, tenants = 1000, 1300
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := &scripted{client: client, prefix: fmt.Sprintf("thr:{finish-%p}:4:", t),
			settings: line.Settings{Lookahead: second, Grace: 5 * second, Lower: 9,
				Scopes: map[string]line.Scope{"global": {Mode: line.Enforce,
					Limits: []line.Limit{{Units: 1_000_000, Span: line.Window(3600 * second), Precision: 36 * second}}}}}}
		now := int64(1_795_219_498_000_000)
		must := func(_ any, err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		ask := func(tenant int) line.Grant {
			job := line.Job{ID: fmt.Sprint(tenant), Lane: fmt.Sprintf("t%d|global:", tenant), Costs: []int64{1},
				Latest: line.Never, Share: 1}
			_, answers, err := s.reserve(now, []line.Job{job})
			must(answers, err)
			return line.Grant{ID: job.ID, Lane: job.Lane, Costs: job.Costs, Start: now, Decided: now}
		}
		grants := make([]line.Grant, tenants)
		for n := range grants {
			grants[n] = ask(n)
		}
		now += second
		must(s.set(now, "pause", "global:", fmt.Sprint(1800*second), 0))
		ask(tenants) // it stands
		for n, g := range grants {
			must(s.settle(now, g, []int64{int64(2 + n)}, 3600*second, 1, false))
		}
		if got := client.ZCard(t.Context(), s.prefix+"finish:global:").Val(); got != most {
			t.Errorf("%d finish tags are kept, want %d", got, most)
		}
	})
}
