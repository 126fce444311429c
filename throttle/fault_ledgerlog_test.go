package throttle_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestF15_PropertyLostLog takes the older entries of ledgers away, again and again, while heavy and
// light jobs fill an hour and a day. The units of lost entries count on, for a window at most: no
// window is over its limit, and after the longest window there is room for everything.
func TestF15_PropertyLostLog(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		rapid.Check(t, func(r *rapid.T) {
			units := rapid.Int64Range(20, longtest.Of[int64](60, 200)).Draw(r, "hour")
			hour := throttle.Limit{Units: units, Window: time.Hour, Precision: throttle.Exact}
			day := throttle.Limit{Units: 5 * hour.Units, Window: 24 * time.Hour,
				Precision: rapid.SampledFrom([]time.Duration{throttle.Exact, time.Minute}).Draw(r, "precision")}
			scopes := globalScope(hour, day)
			s := newScripted(newThrottle(t, client, scopes, &throttle.Options{Lookahead: maxWindow}))
			now := time.UnixMicro(1_800_000_000_000_000)
			var starts []throttletest.Start
			next := 0
			ask := func(weight int64) throttle.Reservation {
				next++
				got, err := s.Reserve(now, throttle.Job{ID: fmt.Sprint(next), Weight: weight})
				if err != nil {
					r.Fatalf("job %d of %d units: %v", next, weight, err)
				}
				if got.Outcome == throttle.Granted {
					starts = append(starts, throttletest.Start{At: got.Start, Weight: weight})
				} else if _, err := s.Cancel(now, got.Job); err != nil {
					r.Fatalf("job %d is given up: %v", next, err)
				}
				return got
			}
			r.Repeat(map[string]func(*rapid.T){
				"light jobs": func(t *rapid.T) {
					for range rapid.IntRange(1, longtest.Of(12, 40)).Draw(t, "jobs") {
						now = now.Add(time.Duration(rapid.Int64Range(1, 60_000_000).Draw(t, "after")) * time.Microsecond)
						ask(1)
					}
				},
				"a heavy job": func(t *rapid.T) { ask(rapid.Int64Range(2, hour.Units).Draw(t, "weight")) },
				"it is refunded": func(t *rapid.T) {
					got := ask(rapid.Int64Range(1, hour.Units).Draw(t, "weight"))
					if got.Outcome != throttle.Granted {
						t.Skip("no room")
					}
					if _, err := s.Refund(now, got); err != nil {
						t.Fatal(err)
					}
					starts = starts[:len(starts)-1]
				},
				"time passes": func(t *rapid.T) {
					now = now.Add(
						time.Duration(rapid.Int64Range(1, int64(30*time.Hour/time.Microsecond)).Draw(t, "by")) * time.Microsecond)
				},
				"lose": func(t *rapid.T) {
					for _, window := range []throttle.Limit{hour, day} {
						key := fmt.Sprintf("thr:{%s}:4:ledger:global::w%d", s.throttle.Name(), window.Window.Microseconds())
						if rapid.Bool().Draw(t, "this") {
							if err := client.Del(context.Background(), key).Err(); err != nil {
								t.Fatal(err)
							}
						}
					}
				},
				"": func(t *rapid.T) {
					for _, over := range throttletest.Check(scopes, starts) {
						t.Fatalf("window over its limit: %s", over)
					}
				},
			})
			now = now.Add(25 * time.Hour)
			if got := ask(hour.Units); got.Outcome != throttle.Granted {
				r.Errorf("a day later: got %+v, want granted", got)
			}
		})
	})
}

// TestF15_LogOfALostKey: a scope key that was lost begins anew, even if its log still exists.
func TestF15_LogOfALostKey(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		limit := throttle.Limit{Units: 100, Window: time.Hour, Precision: throttle.Exact}
		th := newThrottle(t, client, globalScope(limit), nil)
		for range 40 {
			reserve(t, th, throttle.Job{ID: rand.Text(), Weight: 1})
		}
		if err := client.Del(t.Context(), "thr:{"+th.Name()+"}:4:key:global:").Err(); err != nil {
			t.Fatal(err)
		}
		first := reserve(t, th, throttle.Job{ID: "first", Weight: 1}).Start
		for range 39 {
			reserve(t, th, throttle.Job{ID: rand.Text(), Weight: 1})
		}
		usage, err := inspect.New(th).Usage(t.Context(), throttle.Global, "")
		if err != nil || usage.Limits[0].Used != 40 {
			t.Errorf("got %+v, %v; want 40 units used", usage.Limits, err)
		}
		got := reserve(t, th, throttle.Job{ID: "heavy", Weight: 61})
		if want := first.Add(time.Hour); got.Outcome != throttle.Booked || !got.Start.Equal(want) {
			t.Errorf("got %s at %s, want booked at %s, an hour after the first start that is known", got.Outcome,
				got.Start, want)
		}
	})
}

// TestForeignSpent: a scope key whose spent units exceed its entries, written by hand or by another
// program, is foreign data: a job that would wait for these units fails, and the server goes on.
func TestForeignSpent(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		limit := throttle.Limit{Units: 100, Window: time.Hour, Precision: throttle.Exact}
		th := newThrottle(t, client, globalScope(limit), nil)
		reserve(t, th, throttle.Job{ID: "1", Weight: 1})
		key := "thr:{" + th.Name() + "}:4:key:global:"
		text, err := client.Get(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		more := strings.Replace(text, " 1 0 32 ", " 90 0 32 ", 1)
		if err := client.Set(t.Context(), key, more, time.Hour).Err(); err != nil || more == text {
			t.Fatalf("%q: %v", text, err)
		}
		var foreign *throttle.StateError
		if _, err := th.Reserve(t.Context(), throttle.Job{ID: "2", Weight: 70}); !errors.As(err, &foreign) ||
			foreign.Key != key {
			t.Errorf("got %v, want an error about %s", err, key)
		}
	})
}

// TestRefundOfTheNewest: when the newest starts are refunded, the entries that are left lie in the
// ledger's log alone. A search for room once looked for them in the empty tail, for ever.
func TestRefundOfTheNewest(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		for starts := 14; starts < 24; starts++ {
			limit := throttle.Limit{Units: int64(starts), Window: time.Hour, Precision: throttle.Exact}
			th := newThrottle(t, client, globalScope(limit), nil)
			var last throttle.Reservation
			for i := range starts {
				last = reserve(t, th, throttle.Job{ID: fmt.Sprint(i), Weight: 1})
			}
			if done, err := th.Refund(t.Context(), last); err != nil || !done {
				t.Fatalf("%d starts: got %t, %v", starts, done, err)
			}
			if r := reserve(t, th, throttle.Job{ID: "two", Weight: 2}); r.Outcome == throttle.Granted {
				t.Errorf("%d starts: two units were granted where one is free", starts)
			}
			if r := reserve(t, th, throttle.Job{ID: "all", Weight: int64(starts)}); r.Outcome == throttle.Granted {
				t.Errorf("%d starts: all units were granted where one is free", starts)
			}
		}
	})
}
