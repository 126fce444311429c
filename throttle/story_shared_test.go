package throttle_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestOneThrottleOfManyGoroutines: goroutines make all calls on one throttle while another
// process sets limits and modes. The settings are in force for the next decision of each
// goroutine.
func TestOneThrottleOfManyGoroutines(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		const goroutines, each, kinds = 16, 6, 6 // kinds of changes
		scopes := tenantAndGlobal(throttle.PerHour(40), throttle.PerHour(4000))
		th := newThrottle(t, client, scopes, nil)
		other := sameAs(t, defaultClient(t, client.Options().Addr), th, scopes, throttle.Options{})
		done := make(chan struct{})
		var changes atomic.Int64
		var meddling, wg sync.WaitGroup
		meddling.Go(func() {
			for ; ; changes.Add(1) {
				select {
				case <-done:
					return
				default:
				}
				meddle(t, other, changes.Load())
			}
		})
		for g := range goroutines {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(g)))
				for i := 0; i < each || changes.Load() < kinds && !t.Failed(); i++ {
					job := throttle.Job{ID: fmt.Sprint(g, "-", i), Weight: 1 + random.Int64N(3),
						Keys: of(fmt.Sprint("t", random.IntN(3)))}
					useAll(t, th, job)
				}
			})
		}
		wg.Wait()
		close(done)
		meddling.Wait()
		t.Logf("changed %d times", changes.Load())
		if err := errors.Join(inspect.New(other).ResetMode(t.Context(), "tenant"),
			inspect.New(other).SetLimits(t.Context(), "tenant", "", []throttle.Limit{throttle.PerHour(7)})); err != nil {
			t.Fatal(err)
		}
		var granted atomic.Int64
		for i := range 50 {
			wg.Go(func() {
				if reserve(t, th, throttle.Job{ID: fmt.Sprint("last", i), Weight: 1, Keys: of("fresh")}).Outcome ==
					throttle.Granted {
					granted.Add(1)
				}
			})
		}
		wg.Wait()
		if granted.Load() != 7 {
			t.Errorf("%d granted under the limit that was set, want exactly 7", granted.Load())
		}
	})
}

// meddle changes settings of run time, in each call another one.
func meddle(t *testing.T, th *throttle.Throttle, i int64) {
	t.Helper()
	var err error
	switch i % 6 {
	case 0:
		err = inspect.New(th).SetLimits(t.Context(), "tenant", "t1", []throttle.Limit{throttle.PerHour(20 + i%20)})
	case 1:
		err = inspect.New(th).SetMode(t.Context(), "tenant", throttle.Shadow)
	case 2:
		err = inspect.New(th).SetLimits(t.Context(), "tenant", "", []throttle.Limit{throttle.PerHour(30)})
	case 3:
		err = inspect.New(th).ResetMode(t.Context(), "tenant")
	case 4:
		err = inspect.New(th).ResetLimits(t.Context(), "tenant", "t1")
	case 5:
		err = inspect.New(th).ResetLimits(t.Context(), "tenant", "")
	}
	if err != nil {
		t.Errorf("meddling: %v", err)
	}
}

// useAll makes all calls for a job, from reserving to settling, and the calls that only read.
func useAll(t *testing.T, th *throttle.Throttle, job throttle.Job) {
	t.Helper()
	ctx := t.Context()
	r, err := th.Reserve(ctx, job)
	allowed(t, "Reserve", err)
	if err == nil && r.Outcome == throttle.Granted {
		_, err = th.Settle(ctx, r, 1)
		allowed(t, "Settle", err)
	} else {
		_, err = th.Cancel(ctx, job)
		allowed(t, "Cancel", err)
	}
	for _, answer := range th.ReserveAll(ctx,
		[]throttle.Job{{ID: job.ID + "a", Weight: 1, Keys: job.Keys}, {ID: job.ID + "b", Weight: 1, Keys: job.Keys}}) {
		allowed(t, "ReserveAll", answer.Err)
	}
	_, err = th.Peek(ctx, job)
	allowed(t, "Peek", err)
	_, err = inspect.New(th).Usage(ctx, "tenant", job.Keys["tenant"])
	allowed(t, "Usage", err)
	_, err = inspect.New(th).Lines(ctx, "")
	allowed(t, "Lines", err)
	_, err = th.Driver().Pull(ctx)
	allowed(t, "Pull", err)
	_, err = inspect.New(th).Explain(ctx, job)
	allowed(t, "Explain", err)
}

// allowed fails the test for each error but a BlockedError, which a limit set at run time may cause.
func allowed(t *testing.T, call string, err error) {
	t.Helper()
	var blocked *throttle.BlockedError
	if err != nil && !errors.As(err, &blocked) {
		t.Errorf("%s: %v", call, err)
	}
}

// TestF55_ManyAtOnce: 200 goroutines reserve on one key at once, through four throttles that stand for four
// processes. Exactly the limit's units are granted.
func TestF55_ManyAtOnce(t *testing.T) {
	t.Parallel()
	for _, precision := range []time.Duration{throttle.Exact, time.Minute} {
		t.Run(precision.String(), func(t *testing.T) {
			t.Parallel()
			onServers(t, func(t *testing.T, client *redis.Client) {
				const limit, goroutines = 77, 200
				scopes := tenantAndGlobal(
					throttle.Limit{Units: limit, Window: time.Hour, Precision: precision},
					throttle.Limit{Units: 500, Window: time.Hour, Precision: precision})
				first := newThrottle(t, client, scopes, &throttle.Options{Timeout: time.Minute})
				throttles := []*throttle.Throttle{first}
				for range 3 {
					other, err := throttle.New(first.Name(), defaultClient(t, client.Options().Addr), scopes,
						&throttle.Options{Timeout: time.Minute, Lookahead: maxWindow})
					if err != nil {
						t.Fatal(err)
					}
					throttles = append(throttles, other)
				}
				outcomes := make([]throttle.Outcome, goroutines)
				var wg sync.WaitGroup
				for i := range goroutines {
					wg.Go(func() {
						got, err := throttles[i%len(throttles)].Reserve(t.Context(),
							throttle.Job{ID: fmt.Sprint(i), Weight: 1, Keys: of("a")})
						if err != nil {
							t.Errorf("goroutine %d: %v", i, err)
						}
						outcomes[i] = got.Outcome
					})
				}
				wg.Wait()
				granted, booked := int64(0), int64(0)
				for _, outcome := range outcomes {
					switch outcome {
					case throttle.Granted:
						granted++
					case throttle.Booked:
						booked++
					}
				}
				if granted != limit || booked != goroutines-limit {
					t.Errorf("%d granted and %d booked of %d, want exactly %d granted", granted, booked, goroutines, limit)
				}
				for _, scope := range []struct{ name, key string }{{"tenant", "a"}, {throttle.Global, ""}} {
					usage, err := inspect.New(first).Usage(t.Context(), scope.name, scope.key)
					if err != nil || usage.Limits[0].Used != granted || usage.Limits[0].Booked != booked {
						t.Errorf("%s: usage %+v, %v; want %d used and %d booked", scope.name, usage, err, granted, booked)
					}
				}
			})
		})
	}
}
