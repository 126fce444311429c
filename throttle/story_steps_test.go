package throttle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// tired returns a throttle whose calls end after few steps, with a hook that counts the calls.
func tired(t *testing.T, server *redis.Client, scopes []throttle.Scope) (*throttle.Throttle, *hooked) {
	t.Helper()
	client, hook := hookedClient(t, server)
	th := newThrottle(t, client, scopes, &throttle.Options{Lookahead: time.Hour, Timeout: time.Minute})
	reserve(t, th, throttle.Job{ID: "warm", Weight: 1, Keys: of("warm")})
	th.AwaitPublished() // the hook hears of those calls too
	th.TakeSteps(200)
	return th, hook
}

// TestJobsThatACallLeavesAreDecidedByTheNext: a call that has used up its steps answers for the first jobs,
// and the others go with the next call. Each job is decided once, in their order.
func TestJobsThatACallLeavesAreDecidedByTheNext(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, server *redis.Client) {
		th, hook := tired(t, server, tenantAndGlobal(throttle.PerMinute(10), throttle.PerMinute(100)))
		jobs := make([]throttle.Job, 64)
		for i := range jobs {
			jobs[i] = throttle.Job{ID: fmt.Sprint(i), Weight: 1, Keys: of("acme")}
		}
		before := hook.calls.Load()
		last := time.Time{}
		for i, answer := range th.ReserveAll(t.Context(), jobs) {
			r := answer.Reservation
			if want := map[bool]throttle.Outcome{true: throttle.Granted,
				false: throttle.Booked}[i < 10]; answer.Err != nil || r.Outcome != want || r.Job.ID != jobs[i].ID {
				t.Fatalf("job %d: %+v, want %v", i, answer, want)
			}
			if r.Start.Before(last) {
				t.Errorf("job %d starts at %s, the one before at %s", i, r.Start, last)
			}
			last = r.Start
		}
		if calls := hook.calls.Load() - before; calls < 3 || calls > 64 {
			t.Errorf("%d calls for 64 jobs, want several", calls)
		}
		usage, err := inspect.New(th).Usage(t.Context(), "tenant", "acme")
		if err != nil || usage.Limits[0].Used != 10 || usage.Limits[0].Booked != 54 {
			t.Errorf("%+v, %v; want 10 used and 54 booked", usage, err)
		}
	})
}

// TestUsageOfManyIsToldByPages: a call that has used up its steps answers for the first scope keys, and the
// next call for the others.
func TestUsageOfManyIsToldByPages(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, server *redis.Client) {
		const tenants = 100
		th, hook := tired(t, server, tenantAndGlobal(throttle.PerMinute(10), throttle.PerMinute(1000)))
		jobs := make([]throttle.Job, tenants)
		for i := range jobs {
			jobs[i] = throttle.Job{ID: fmt.Sprint(i), Weight: 1 + int64(i%10), Keys: of(fmt.Sprintf("tenant-%03d", i))}
		}
		for i, answer := range th.ReserveAll(t.Context(), jobs) {
			if answer.Err != nil || answer.Reservation.Outcome != throttle.Granted {
				t.Fatalf("job %d: %+v", i, answer)
			}
		}
		before := hook.calls.Load()
		all, err := inspect.New(th).UsageAll(t.Context(), "tenant")
		if err != nil || len(all) != tenants+1 { // with that of the first call
			t.Fatalf("%d scope keys are told, %v; want %d", len(all), err, tenants+1)
		}
		for i, u := range all[:tenants] {
			if want := fmt.Sprintf("tenant-%03d", i); u.Key != want || u.Limits[0].Used != 1+int64(i%10) {
				t.Errorf("%d: %s has used %d, want %s and %d", i, u.Key, u.Limits[0].Used, want, 1+i%10)
			}
		}
		if calls := hook.calls.Load() - before; calls < 5 {
			t.Errorf("%d calls for 101 scope keys, want several", calls)
		}
		forecast, err := inspect.New(th).Forecast(t.Context(), jobs)
		if err != nil || len(forecast.Starts) != tenants || forecast.Last.IsZero() {
			t.Errorf("a forecast of all: %+v, %v", forecast, err)
		}
	})
}
