package throttle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestLanesAndJobsByID: Lanes returns lanes with their flows, counts and what they wait for, and
// ExplainID finds jobs by their IDs alone, wherever they are.
func TestLanesAndJobsByID(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		ctx := t.Context()
		th := published(t, client, "lanes-"+nameOf(t), tenantAndGlobal(throttle.PerHour(2), throttle.PerHour(1000)),
			throttle.Options{Lookahead: 2 * time.Second})
		for i := range 5 {
			for _, tenant := range []string{"acme", "a b"} {
				if _, err := th.Reserve(ctx, throttle.Job{ID: fmt.Sprint(tenant, i), Weight: 1, Keys: of(tenant)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		lanes, err := inspect.New(th).Lanes(ctx)
		if err != nil || len(lanes) != 2 {
			t.Fatalf("%+v, %v", lanes, err)
		}
		for i, flow := range []string{"acme", "a b"} {
			l := lanes[i]
			if l.Flow != flow || l.Jobs != 3 || l.Scope != "tenant" || l.Key != flow || l.Since.IsZero() ||
				!cmp.Equal(l.Keys, of(flow)) {
				t.Errorf("lane %d: %+v", i, l)
			}
		}
		e, err := inspect.New(th).ExplainID(ctx, "a b4")
		if err != nil || e.Before != 2 || e.Waiting != 3 || e.Blocked == nil || e.Blocked.Key != "a b" ||
			e.Arrived.IsZero() || e.Guessed {
			t.Errorf("in line: %+v, %v", e, err)
		}
		whole, err := inspect.New(th).Explain(ctx, throttle.Job{ID: "a b4", Weight: 1, Keys: of("a b")})
		if err != nil || whole.Expected.Sub(e.Expected).Abs() > time.Second {
			t.Errorf("by its ID it is expected at %s, else at %s (%v)", e.Expected, whole.Expected, err)
		}
		if e, err = inspect.New(th).ExplainID(ctx, "acme0"); err != nil || e.Waiting != 0 || !e.Slot.IsZero() ||
			!e.Arrived.IsZero() {
			t.Errorf("started: %+v, %v", e, err)
		}
		planned, err := th.Reserve(ctx, throttle.Job{ID: "planned", Weight: 1, Keys: of("c"), Plan: true})
		if e, err2 := inspect.New(th).ExplainID(ctx, "planned"); err != nil || err2 != nil ||
			!e.Slot.Equal(planned.Start) || len(e.Usage) != 2 {
			t.Errorf("planned: %+v, %v, %v", e, err, err2)
		}
		all, err := inspect.New(th).UsageAll(ctx, "tenant")
		if err != nil || len(all) != 3 || all[1].Key != "acme" || all[1].Limits[0].Used != 2 {
			t.Errorf("usage of all: %+v, %v", all, err)
		}
	})
}
