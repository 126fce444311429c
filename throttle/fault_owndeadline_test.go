package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestCallersOwnDeadlinesSayNothingAboutRedis asks a healthy Redis that is 20 ms away,
// with contexts that end after 5 ms, more often than the breaker allows failures. Each
// call has its context's error and no fallback, and the next one, with time enough, is
// decided by Redis.
func TestCallersOwnDeadlinesSayNothingAboutRedis(t *testing.T) {
	t.Parallel()
	behindProxy(t, func(t *testing.T, proxy *redistest.Proxy, _ *redis.Client) {
		for _, fallback := range []throttle.Fallback{throttle.FallbackClosed, throttle.FallbackOpen, throttle.FallbackLocal} {
			observer := new(told)
			th := newThrottle(t, onceClient(t, proxy.Addr), globalScope(throttle.PerHour(1)), &throttle.Options{
				Fallback: fallback, LocalShare: 1, Timeout: patient, BreakPeriod: time.Hour, Observer: observer,
			})
			proxy.Delay(0)
			reserve(t, th, throttle.Job{ID: "uses all", Weight: 1})
			proxy.Delay(20 * time.Millisecond)
			late := 0 // answers that came while this machine stood still
			for i := range 3 * defaultBreakAfter {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
				r, err := th.Reserve(ctx, throttle.Job{ID: fmt.Sprint("hasty ", i), Weight: 1})
				cancel()
				if err == nil && r.Source == throttle.FallbackClosed && r.Outcome != throttle.Granted {
					late++
				} else if !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("fallback %d, hasty call %d: got %+v, %v; want its context's error", fallback, i, r, err)
				}
			}
			if late > defaultBreakAfter {
				t.Logf("fallback %d: %d hasty calls had answers: too few failures to open a breaker", fallback, late)
			}
			got, err := th.Reserve(t.Context(), throttle.Job{ID: "patient", Weight: 1})
			if err != nil || got.Source != throttle.FallbackClosed || got.Outcome == throttle.Granted {
				t.Errorf("fallback %d, after them: got %+v, %v; want no start, decided by Redis", fallback, got, err)
			}
			if len(observer.outages) != 0 {
				t.Errorf("fallback %d: told of %d outages, want none: %+v", fallback, len(observer.outages), observer.outages)
			}
		}
	})
}

// TestOwnDeadlinesDoNotHideAnOutage stalls Redis: callers whose contexts last longer than the
// throttle's timeout open the breaker, whatever the other callers do.
func TestOwnDeadlinesDoNotHideAnOutage(t *testing.T) {
	t.Parallel()
	const hasty = 5 * time.Millisecond
	// On a slow machine the context of a hasty call may end before Redis is asked.
	timesOut := func(t *testing.T, what string, within time.Duration, err error) {
		t.Helper()
		if within == hasty && errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, throttle.ErrUnavailable) {
			return
		}
		unavailable(t, what, err, "timeout")
	}
	behindProxy(t, func(t *testing.T, proxy *redistest.Proxy, _ *redis.Client) {
		options := throttle.Options{Timeout: 50 * time.Millisecond, BreakAfter: 2, BreakPeriod: time.Hour}
		th := newThrottle(t, onceClient(t, proxy.Addr), globalScope(throttle.PerHour(1)), &options)
		proxy.Stall()
		t.Cleanup(proxy.Unstall)
		job := throttle.Job{ID: "x", Weight: 1}
		for i, within := range []time.Duration{hasty, patient, hasty, patient} {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			_, err := th.Peek(ctx, job)
			cancel()
			timesOut(t, fmt.Sprintf("Peek %d, within %s", i, within), within, err)
		}
		_, err := th.Peek(t.Context(), job)
		unavailable(t, "Peek after two failures", err, "breaker")
		// A decision goes on when its caller has gone, so that it counts as a failure.
		th = newThrottle(t, onceClient(t, proxy.Addr), globalScope(throttle.PerHour(1)), &options)
		opened := -1
		for i := range 10 {
			within := []time.Duration{hasty, patient}[i%2]
			ctx, cancel := context.WithTimeout(t.Context(), within)
			_, err := th.Reserve(ctx, throttle.Job{ID: fmt.Sprint(i), Weight: 1})
			cancel()
			var away *throttle.UnavailableError
			if errors.As(err, &away) && away.Failure == "breaker" {
				opened = i
				break
			}
			timesOut(t, fmt.Sprintf("call %d", i), within, err)
		}
		if opened < 1 {
			t.Errorf("the breaker was open at call %d, want it open after some", opened)
		}
	})
}
