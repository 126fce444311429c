package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestWaitRefusesAPlan: what is only planned never starts; nobody asks for it again and again.
func TestWaitRefusesAPlan(t *testing.T) {
	t.Parallel()
	inBubble(t, globalScope(throttle.PerMinute(10)), nil, func(t *testing.T, th *throttle.Throttle) {
		var wrong *throttle.InvalidJobError
		if _, err := th.Wait(t.Context(), throttle.Job{ID: "a", Weight: 1, Plan: true}); !errors.As(err, &wrong) ||
			wrong.Field != "Plan" {
			t.Errorf("got %v", err)
		}
	})
}

// inBubble runs a test in virtual time: the throttle, go-redis and a miniredis whose
// clock is the bubble's.
func inBubble(t *testing.T, scopes []throttle.Scope, opts *throttle.Options,
	test func(t *testing.T, th *throttle.Throttle)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		server.ClockTTL(true)
		client := redis.NewClient(&redis.Options{
			Addr:            "127.0.0.1:6379",
			Dialer:          func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
			DisableIdentity: true,
			PoolSize:        200, // go-redis would wait for a connection by timers that all bubbles share
		})
		test(t, newThrottle(t, client, scopes, opts))
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		server.Close()
	})
}

// TestWaitStartsAtTheSlot: it returns at the very instant that was granted, one
// window after the other.
func TestWaitStartsAtTheSlot(t *testing.T) {
	t.Parallel()
	inBubble(t, globalScope(throttle.Per(2, time.Minute)), nil, func(t *testing.T, th *throttle.Throttle) {
		began := time.Now()
		for i, want := range []time.Duration{0, 0, time.Minute, time.Minute, 2 * time.Minute} {
			got, err := th.Wait(t.Context(), throttle.Job{ID: fmt.Sprint(i), Weight: 1})
			if err != nil {
				t.Fatalf("job %d: %v", i, err)
			}
			if got.Outcome != throttle.Granted || !got.Start.Equal(began.Add(want)) || time.Since(began) != want {
				t.Errorf("job %d: granted for %s, returned after %s, want %s", i, got.Start.Sub(began), time.Since(began), want)
			}
		}
	})
}

// TestWaitForLimits: a job that limits set at run time leave no room for waits until they
// are changed: under 0 in line, below its weight by itself.
func TestWaitForLimits(t *testing.T) {
	t.Parallel()
	for _, set := range []int64{0, 1} {
		inBubble(t, globalScope(throttle.Per(5, time.Minute)), nil, func(t *testing.T, th *throttle.Throttle) {
			if err := inspect.New(th).SetLimits(t.Context(), throttle.Global, "",
				[]throttle.Limit{throttle.Per(set, time.Minute)}); err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(5*time.Minute, func() {
				if err := inspect.New(th).ResetLimits(context.Background(), throttle.Global, ""); err != nil {
					t.Error(err)
				}
			})
			began := time.Now()
			got, err := th.Wait(t.Context(), throttle.Job{ID: "heavy", Weight: 3})
			// It asks every ten seconds, and once more soon after where it was in line.
			if waited := time.Since(began); err != nil || got.Outcome != throttle.Granted ||
				waited < 5*time.Minute || waited > 5*time.Minute+11*time.Second {
				t.Errorf("limit %d: %v, %v after %s", set, got.Outcome, err, waited)
			}
		})
	}
}

// TestWaitOfMany: any number may wait at once, booked or in line; they start in
// time, no window is over its limit, and the capacity is used.
func TestWaitOfMany(t *testing.T) {
	t.Parallel()
	scopes := tenantAndGlobal(throttle.PerMinute(10), throttle.PerMinute(25))
	for _, lookahead := range []time.Duration{24 * time.Hour, 20 * time.Second} {
		t.Run(lookahead.String(), func(t *testing.T) {
			t.Parallel()
			inBubble(t, scopes, &throttle.Options{Lookahead: lookahead}, func(t *testing.T, th *throttle.Throttle) {
				began := time.Now()
				var mu sync.Mutex
				var starts []throttletest.Start
				var wg sync.WaitGroup
				for i := range 100 {
					wg.Go(func() {
						job := throttle.Job{ID: fmt.Sprint(i), Weight: int64(1 + i%2), Keys: of(fmt.Sprint(i % 5))}
						got, err := th.Wait(t.Context(), job)
						if err != nil {
							t.Errorf("job %d: %v", i, err)
							return
						}
						if late := time.Since(got.Start); late < 0 || late > time.Millisecond {
							t.Errorf("job %d: returned %s after its start", i, late)
						}
						mu.Lock()
						defer mu.Unlock()
						starts = append(starts, throttletest.Start{At: time.Now(), Weight: job.Weight, Keys: job.Keys})
					})
				}
				wg.Wait()
				for _, over := range throttletest.Check(scopes, starts) {
					t.Errorf("window over its limit: %s", over)
				}
				last := slices.MaxFunc(starts, func(a, b throttletest.Start) int { return a.At.Compare(b.At) }).At
				// 150 units at 25 a minute, with holes that a weight of 2 cannot fill.
				if len(starts) != 100 || last.Sub(began) < 5*time.Minute || last.Sub(began) > 7*time.Minute {
					t.Errorf("%d started, the last after %s; want 100 within five to seven minutes", len(starts), last.Sub(began))
				}
			})
		})
	}
}

// TestWaitGivesBack: whoever stops waiting, in line or just before the start, leaves
// nothing behind, and says why.
func TestWaitGivesBack(t *testing.T) {
	t.Parallel()
	reason := errors.New("changed my mind")
	for name, patience := range map[string]time.Duration{
		"long before the slot":            3 * time.Second,
		"granted and asleep":              59*time.Second + 950*time.Millisecond,
		"at the instant of the redeeming": 59*time.Second + 900*time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, globalScope(throttle.PerMinute(1)), nil, func(t *testing.T, th *throttle.Throttle) {
				reserve(t, th, throttle.Job{ID: "first", Weight: 1})
				began := time.Now()
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				timer := time.AfterFunc(patience, func() { cancel(reason) })
				defer timer.Stop()
				_, err := th.Wait(ctx, throttle.Job{ID: "second", Weight: 1})
				// A call that gives back may wait a moment, to be made with the one under way.
				if took := time.Since(began); !errors.Is(err, context.Canceled) || took < patience ||
					took > patience+time.Millisecond {
					t.Errorf("got %v after %s, want %v after %s", err, took, context.Canceled, patience)
				}
				usage, err := inspect.New(th).Usage(t.Context(), throttle.Global, "")
				if err != nil || usage.Limits[0].Used != 1 || usage.Limits[0].Booked != 0 {
					t.Errorf("afterwards: usage %+v, %v; want the first job's unit only", usage, err)
				}
				if got := reserve(t, th, throttle.Job{ID: "third", Weight: 1}); got.Start.Sub(began) != time.Minute {
					t.Errorf("the next starts after %s, want what was given back, at 1m", got.Start.Sub(began))
				}
			})
		})
	}
}

// TestWaitAndDeadlines: a context's deadline ends the wait when it comes, a job's
// deadline at once.
func TestWaitAndDeadlines(t *testing.T) {
	t.Parallel()
	inBubble(t, globalScope(throttle.PerMinute(1)), nil, func(t *testing.T, th *throttle.Throttle) {
		reserve(t, th, throttle.Job{ID: "first", Weight: 1})
		began := time.Now()
		var late *throttle.DeadlineError
		_, err := th.Wait(t.Context(), throttle.Job{ID: "a", Weight: 1, Deadline: began.Add(59 * time.Second)})
		if !errors.As(err, &late) || time.Since(began) != 0 {
			t.Errorf("job's deadline: got %v after %s, want a *DeadlineError at once", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err = th.Wait(ctx, throttle.Job{ID: "b", Weight: 1}); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(began) != 20*time.Second {
			t.Errorf("context's deadline: got %v after %s, want %v after 20s", err, time.Since(began), context.DeadlineExceeded)
		}
		got, err := th.Wait(t.Context(), throttle.Job{ID: "c", Weight: 1, Deadline: began.Add(time.Minute)})
		if err != nil || time.Since(began) != time.Minute {
			t.Errorf("in time: got %+v, %v after %s, want granted after 1m", got, err, time.Since(began))
		}
	})
}

// TestWaitBehindJobsThatNeverCome: when the holder of a booking before it does not come, the next
// starts at its own slot all the same; nobody waits for ever.
func TestWaitBehindJobsThatNeverCome(t *testing.T) {
	t.Parallel()
	inBubble(t, globalScope(throttle.PerSecond(1)), nil, func(t *testing.T, th *throttle.Throttle) {
		reserve(t, th, throttle.Job{ID: "first", Weight: 1})
		for i := range 3 { // booked, and never back
			reserve(t, th, throttle.Job{ID: fmt.Sprint("gone", i), Weight: 1})
		}
		began := time.Now()
		if _, err := th.Wait(t.Context(), throttle.Job{ID: "mine", Weight: 1}); err != nil ||
			time.Since(began) != 4*time.Second {
			t.Errorf("behind three that never come: %v after %s, want 4s", err, time.Since(began))
		}
		time.Sleep(time.Hour)
		began = time.Now()
		if _, err := th.Wait(t.Context(), throttle.Job{ID: "later", Weight: 1}); err != nil || time.Since(began) != 0 {
			t.Errorf("an hour later: %v after %s, want at once", err, time.Since(began))
		}
	})
}
