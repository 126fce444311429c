package throttle_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// withMargin returns a throttle with a margin of 0.2 s, and a function that sets the clock of its Redis.
func withMargin(t *testing.T, limits ...throttle.Limit) (*throttle.Throttle, func(time.Duration)) {
	t.Helper()
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	scopes := []throttle.Scope{{Name: "account", Limits: limits, Margin: 200 * time.Millisecond, Floor: 0.1}}
	th, err := throttle.New("margin", client, scopes, &throttle.Options{Timeout: patient, Lookahead: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(d time.Duration) { server.SetTime(begin.Add(d)) }
	at(0)
	return th, at
}

func callOf(n int) throttle.Job {
	return throttle.Job{ID: strconv.Itoa(n), Weight: 1, Keys: map[string]string{"account": "ours"}}
}

// TestMarginHoldsAtTheUpstream: a strict upstream counts calls when they arrive. In the worst case the calls of one
// window arrive a margin after their grants, and the calls of the next window at once. Even then no window of the
// upstream has more calls than the limit.
func TestMarginHoldsAtTheUpstream(t *testing.T) {
	t.Parallel()
	const units, window, late = 5, time.Second, 200 * time.Millisecond
	th, at := withMargin(t, throttle.Per(units, window))
	var arrivals []time.Time
	for now, n := time.Duration(0), 0; n < 6*units; now += 50 * time.Millisecond {
		at(now)
		job := callOf(n)
		job.Deadline = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).Add(now) // now or not at all
		r, err := th.Reserve(t.Context(), job)
		if errors.As(err, new(*throttle.DeadlineError)) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		arrival := r.Start
		if n/units%2 == 0 {
			arrival = arrival.Add(late)
		}
		arrivals = append(arrivals, arrival)
		n++
	}
	for _, end := range arrivals {
		in := 0
		for _, a := range arrivals {
			if !a.After(end) && end.Sub(a) < window {
				in++
			}
		}
		if in > units {
			t.Errorf("%d calls arrived in the window that ends at %s, the limit is %d", in, end, units)
		}
	}
}

// TestMarginIsNotInLimits: holds, usage and settings show a limit as it was configured or set, without the margin.
func TestMarginIsNotInLimits(t *testing.T) {
	t.Parallel()
	th, at := withMargin(t, throttle.PerMinute(2), throttle.PerHour(200))
	ctx := t.Context()
	for n := range 2 {
		if _, err := th.Reserve(ctx, callOf(n)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := th.Reserve(ctx, callOf(2))
	if err != nil || r.Outcome != throttle.Booked || r.Hold == nil {
		t.Fatalf("the third call: %+v, %v; want it booked", r, err)
	}
	if r.Hold.Limit != throttle.PerMinute(2) || r.Delay() != time.Minute+200*time.Millisecond {
		t.Errorf("held by %s for %s, want by 2/1m for 1m0.2s", r.Hold.Limit, r.Delay())
	}
	limitsOf := func() (limits []throttle.Limit) {
		usage, err := inspect.New(th).Usage(ctx, "account", "ours")
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range usage.Limits {
			limits = append(limits, u.Limit)
		}
		return limits
	}
	if diff := cmp.Diff([]throttle.Limit{throttle.PerMinute(2), throttle.PerHour(200)}, limitsOf()); diff != "" {
		t.Error(diff)
	}
	if err := inspect.New(th).SetLimits(ctx, "account", "ours", []throttle.Limit{throttle.PerMinute(3)}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]throttle.Limit{throttle.PerMinute(3)}, limitsOf()); diff != "" {
		t.Error(diff)
	}
	set, err := inspect.New(th).Settings(ctx)
	if err != nil || len(set) != 1 || cmp.Diff([]throttle.Limit{throttle.PerMinute(3)}, set[0].Limits) != "" {
		t.Errorf("set is %+v, %v; want 3/1m", set, err)
	}
	a, err := th.Report(ctx, "account", "ours",
		throttle.Report{Limits: []throttle.ReportedLimit{{Window: time.Minute, Units: 1, Remaining: -1}}})
	if err != nil || a.Served < 0.3 || a.Served > 0.4 {
		t.Errorf("of 3/1m 1 is served: the part is %v, %v", a.Served, err)
	}
	if _, err := inspect.New(th).Forecast(ctx, []throttle.Job{callOf(9)}); err != nil {
		t.Error(err)
	}
	at(time.Minute)
}

func TestMarginOutOfRangeIsRefused(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = client.Close() })
	for _, scope := range []throttle.Scope{
		{Name: "a", Margin: -1},
		{Name: "a", Margin: time.Nanosecond},
		{Name: "a", Margin: time.Minute + time.Microsecond},
		{Name: "a", Margin: time.Second, Limits: []throttle.Limit{throttle.Per(1, 400*24*time.Hour)}},
	} {
		_, err := throttle.New("margin", client, []throttle.Scope{scope}, nil)
		var wrong *throttle.OptionError
		if !errors.As(err, &wrong) || wrong.Field != "Scope.Margin" {
			t.Errorf("%+v: got %v, want an OptionError of Scope.Margin", scope, err)
		}
	}
}
