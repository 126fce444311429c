package throttle_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestF52_ClientsAndContexts: a wrong client or context is an error, and never a panic.
func TestF52_ClientsAndContexts(t *testing.T) {
	t.Parallel()
	scopes := globalScope(throttle.PerHour(5))
	job := throttle.Job{ID: "x", Weight: 1}

	var nilClient *redis.Client
	for _, client := range []redis.Scripter{nil, nilClient} {
		if _, err := throttle.New("n", client, scopes, nil); !isOptionError(err, "client") {
			t.Errorf("New with client %#v: got %v, want an *OptionError", client, err)
		}
	}

	closed := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	th := newThrottle(t, closed, scopes, &throttle.Options{BreakAfter: -1})
	for call, err := range everyCall(t.Context(), th, job) {
		var unavailable *throttle.UnavailableError
		if !errors.As(err, &unavailable) || !errors.Is(err, throttle.ErrUnavailable) || !errors.Is(err, redis.ErrClosed) {
			t.Errorf("%s with a closed client: got %v, want an *UnavailableError because of %v", call, err, redis.ErrClosed)
		}
	}

	client := miniClient(t)
	th = newThrottle(t, client, scopes, nil)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithTimeout(t.Context(), -time.Second)
	defer cancelLate()
	unchanged(t, client, th, func() {
		for call, err := range everyCall(cancelled, th, job) {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s with a cancelled context: got %v, want %v", call, err, context.Canceled)
			}
		}
		for call, err := range everyCall(late, th, job) {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s with a context that has timed out: got %v, want %v", call, err, context.DeadlineExceeded)
			}
		}
		var none context.Context
		for call, err := range everyCall(none, th, job) {
			var wrong *throttle.ArgumentError
			if !errors.As(err, &wrong) || wrong.Argument != "ctx" {
				t.Errorf("%s without a context: got %v, want an *ArgumentError for ctx", call, err)
			}
		}
	})
}

// everyCall makes every call of a throttle, and returns the errors by call.
func everyCall(ctx context.Context, th *throttle.Throttle, job throttle.Job) map[string]error {
	errs := everyJobCall(ctx, th, job)
	_, errs["Usage"] = inspect.New(th).Usage(ctx, throttle.Global, "")
	_, errs["Count"] = inspect.New(th).Count(ctx, throttle.Global, "", time.Second, 0)
	_, errs["Pull"] = th.Driver().Pull(ctx)
	_, errs["Leave"] = th.Driver().Leave(ctx, []string{job.ID})
	_, _, errs["Jobs"] = inspect.New(th).Jobs(ctx, "|global:", "")
	_, errs["Lines"] = inspect.New(th).Lines(ctx, "")
	return errs
}

// TestOptions: each option that is out of its range is named; the bounds and the
// defaults are not.
func TestOptions(t *testing.T) {
	t.Parallel()
	client := miniClient(t)
	bad := map[string][]throttle.Options{
		"Fallback": {{Fallback: -1}, {Fallback: throttle.FallbackLocal + 1}},
		"LocalShare": {{Fallback: throttle.FallbackLocal}, local(-0.5), local(1.01), local(math.NaN()),
			local(math.Inf(1))},
		"Timeout":       {{Timeout: -1}, {Timeout: time.Microsecond}, {Timeout: time.Minute + 1}},
		"Grace":         {{Grace: -1}, {Grace: time.Microsecond}, {Grace: 24*time.Hour + 1}},
		"Advance":       {{Advance: -1}, {Advance: 5*time.Millisecond - 1}, {Advance: time.Second + 1}},
		"Lookahead":     {{Lookahead: -1}, {Lookahead: 100*time.Millisecond - 1}, {Lookahead: 400*day + 1}},
		"FairScope":     {{FairScope: "tenant"}, {FairScope: "Global"}},
		"Shares":        {shares(0), shares(-1), shares(maxShare + 1), {Shares: map[string]int{"a": 1, "b": 0}}},
		"PriorityFloor": {{PriorityFloor: -0.1}, {PriorityFloor: 0.009}, {PriorityFloor: 0.51}, {PriorityFloor: math.NaN()}},
		"BreakPeriod":   {{BreakPeriod: -1}, {BreakPeriod: time.Microsecond}, {BreakPeriod: time.Hour + 1}},
	}
	for field, options := range bad {
		for _, o := range options {
			if _, err := throttle.New("n", client, globalScope(throttle.PerHour(1)), &o); !isOptionError(err, field) {
				t.Errorf("%+v: got %v, want an *OptionError for %s", o, err, field)
			}
		}
	}
	good := []*throttle.Options{
		nil, {}, {LocalShare: 7}, {BreakAfter: -1}, {Fallback: throttle.FallbackLocal, LocalShare: 1},
		{Timeout: time.Millisecond, Grace: time.Millisecond, BreakPeriod: time.Millisecond},
		{Timeout: time.Minute, Grace: 24 * time.Hour, BreakPeriod: time.Hour},
		{Lookahead: 100 * time.Millisecond, FairScope: throttle.Global}, {Lookahead: 400 * day},
		{Advance: 5 * time.Millisecond}, {Advance: time.Second},
		{Shares: map[string]int{"a": 1, "": maxShare}}, {PriorityFloor: 0.01}, {PriorityFloor: 0.5},
	}
	for _, o := range good {
		if _, err := throttle.New("n", client, globalScope(throttle.PerHour(1)), o); err != nil {
			t.Errorf("%+v: got %v, want none", o, err)
		}
	}
}

func local(share float64) throttle.Options {
	return throttle.Options{Fallback: throttle.FallbackLocal, LocalShare: share}
}

func shares(share int) throttle.Options {
	return throttle.Options{Shares: map[string]int{"a": share}}
}

// TestNewCopies: what the caller does with its slices later changes nothing.
func TestNewCopies(t *testing.T) {
	t.Parallel()
	limits := []throttle.Limit{throttle.PerHour(1)}
	scopes := []throttle.Scope{{Name: throttle.Global, Limits: limits}}
	th := newThrottle(t, miniClient(t), scopes, nil)
	limits[0], scopes[0].Name = throttle.PerHour(100), "other"
	reserve(t, th, throttle.Job{ID: "1", Weight: 1})
	if got := reserve(t, th, throttle.Job{ID: "2", Weight: 1}); got.Outcome != throttle.Booked {
		t.Errorf("second job under 1/1h: got %v, want booked", got.Outcome)
	}
}
