package throttle_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestOrderOfScopesDoesNotMatter: what a process that lists the scopes in one order has
// booked, put in line or granted, one that lists them in another order redeems, finds in its
// place and settles, also where the costs differ from scope to scope.
func TestOrderOfScopesDoesNotMatter(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := []throttle.Scope{
			{Name: "tenant", Limits: []throttle.Limit{throttle.Per(4, 10*time.Second)}},
			{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(100, 10*time.Second)}},
			{Name: "domain", Limits: []throttle.Limit{throttle.Per(10, 10*time.Second)}, Optional: true},
		}
		turned := slices.Clone(scopes)
		slices.Reverse(turned)
		options := throttle.Options{Lookahead: time.Second}
		first := newThrottle(t, client, scopes, &options)
		one, other := newScripted(first), newScripted(sameAs(t, client, first, turned, options))
		job := func(id string) throttle.Job {
			return throttle.Job{
				ID: id, Weight: 1, Costs: map[string]int64{"tenant": 2, "domain": 5},
				Keys: map[string]string{"tenant": "acme", "domain": "x"},
			}
		}
		granted := comes(t, one, 0, job("a"), throttle.Granted)
		comes(t, other, 0, job("b"), throttle.Granted)
		comes(t, one, 9500*time.Millisecond, job("booked"), throttle.Booked)
		comes(t, other, 9500*time.Millisecond, job("booked by the other"), throttle.Booked)
		comes(t, one, 9500*time.Millisecond, job("waits"), throttle.Waiting)
		comes(t, other, 9500*time.Millisecond, job("waits behind"), throttle.Waiting)
		if r := comes(t, other, 9500*time.Millisecond, job("waits"), throttle.Waiting); r.Hold == nil ||
			r.Hold.Scope == throttle.Global {
			t.Errorf("who waits, asked by the other: %+v, want it held by its tenant or domain", r)
		}
		if done, err := other.Settle(dawn.Add(9500*time.Millisecond), granted, 1); !done || err != nil {
			t.Errorf("settled by the other: %t, %v", done, err)
		}
		comes(t, other, 10*time.Second, job("booked"), throttle.Granted)
		comes(t, one, 10*time.Second, job("booked by the other"), throttle.Granted)
		for _, key := range []struct {
			scope, key string
			used       int64
		}{{"tenant", "acme", 4}, {"domain", "x", 10}, {throttle.Global, "", 2}} {
			for who, s := range map[string]*scripted{"one": one, "the other": other} {
				usage, err := s.Usage(dawn.Add(10*time.Second), key.scope, key.key)
				if err != nil || usage.Limits[0].Used != key.used || usage.Limits[0].Booked != 0 {
					t.Errorf("%s, by %s: %+v, %v; want %d used and nothing booked", key.scope, who, usage.Limits, err, key.used)
				}
			}
		}
		pulled := drain(t, other, dawn.Add(19500*time.Millisecond))
		if len(pulled) != 2 || pulled[0].Job.ID != "waits" || pulled[1].Job.ID != "waits behind" {
			t.Fatalf("pulled %+v, want who waits, in their order", pulled)
		}
		comes(t, one, 20*time.Second, job("waits behind"), throttle.Granted)
		comes(t, other, 20*time.Second, job("waits"), throttle.Granted)
		if keys := keyspace(t, client, first); len(keys) > 6 {
			t.Errorf("two lanes for the same scope keys? %q", keys)
		}
	})
}
