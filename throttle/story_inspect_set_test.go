package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestSettingRefuses: bad limits, modes and scope keys get typed errors, and nothing is
// written.
func TestSettingRefuses(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := newThrottle(t, client, tenantAndGlobal(throttle.PerHour(5), throttle.PerHour(5)), nil)
		hour := []throttle.Limit{throttle.PerHour(5)}
		many := make([]throttle.Limit, 65)
		for i := range many {
			many[i] = throttle.Per(1, time.Duration(i+1)*time.Second)
		}
		invalid := func(name string, err error, field string) {
			t.Helper()
			var wrong *throttle.ArgumentError
			if !errors.As(err, &wrong) || wrong.Argument != field || wrong.Reason == "" {
				t.Errorf("%s: got %v, want an *ArgumentError of %s", name, err, field)
			}
		}
		unchanged(t, client, th, func() {
			ctx := t.Context()
			for name, bad := range badScopeKeys {
				_, err := inspect.New(th).Usage(ctx, bad.scope, bad.key)
				invalid("Usage, "+name, err, bad.field)
				if bad.key == "" {
					continue // all keys of the scope
				}
				invalid("SetLimits, "+name, inspect.New(th).SetLimits(ctx, bad.scope, bad.key, hour), bad.field)
				invalid("ResetLimits, "+name, inspect.New(th).ResetLimits(ctx, bad.scope, bad.key), bad.field)
			}
			for _, scope := range []string{"host", "Tenant", "tenant:acme"} {
				invalid("SetLimits of all of "+scope, inspect.New(th).SetLimits(ctx, scope, "", hour), "scope")
				invalid("ResetLimits of all of "+scope, inspect.New(th).ResetLimits(ctx, scope, ""), "scope")
				invalid("SetMode of "+scope, inspect.New(th).SetMode(ctx, scope, throttle.Off), "scope")
				invalid("ResetMode of "+scope, inspect.New(th).ResetMode(ctx, scope), "scope")
			}
			for name, call := range map[string]func(ctx context.Context) error{
				"SetLimits": func(ctx context.Context) error {
					return inspect.New(th).SetLimits(ctx,
						"tenant", "a", hour)
				},
				"SetLimits of all keys": func(ctx context.Context) error {
					return inspect.New(th).SetLimits(
						ctx, "tenant", "", hour)
				},
				"ResetLimits": func(ctx context.Context) error {
					return inspect.New(th).ResetLimits(
						ctx, "tenant", "a")
				},
				"ResetLimits of all keys": func(ctx context.Context) error {
					return inspect.New(th).ResetLimits(ctx, "tenant", "")
				},
				"SetMode": func(ctx context.Context) error {
					return inspect.New(th).SetMode(ctx,
						"tenant", throttle.Off)
				},
				"SetMode of all": func(ctx context.Context) error { return inspect.New(th).SetMode(ctx, "", throttle.Off) },
				"ResetMode":      func(ctx context.Context) error { return inspect.New(th).ResetMode(ctx, "") },
				"Usage": func(ctx context.Context) error {
					_,
						err := inspect.New(th).Usage(ctx, "tenant", "a")
					return err
				},
			} {
				invalid(name+" without a context", call(nil), "ctx")
			}
			for name, limits := range map[string][]throttle.Limit{"none": nil, "an empty list": {}, "65": many,
				"one window twice": {throttle.PerHour(1), throttle.PerHour(2)}} {
				var wrong *throttle.OptionError
				if err := inspect.New(th).SetLimits(ctx, "tenant", "a", limits); !errors.As(err, &wrong) || wrong.Reason == "" {
					t.Errorf("limits, %s: got %v, want an *OptionError", name, err)
				}
			}
			for _, limit := range []throttle.Limit{{}, throttle.PerHour(-2), throttle.Per(1, time.Microsecond),
				throttle.Per(1, 401*day), {Units: 1, Window: time.Hour, Precision: 2 * time.Hour}} {
				var wrong *throttle.LimitError
				if err := inspect.New(th).SetLimits(ctx, "tenant", "a",
					[]throttle.Limit{limit}); !errors.As(err, &wrong) || wrong.Reason == "" {
					t.Errorf("limit %s: got %v, want a *LimitError", limit, err)
				}
			}
			for _, mode := range []throttle.Mode{-1, 3, 99} {
				if err := inspect.New(th).SetMode(ctx, "tenant", mode); !isOptionError(err, "mode") {
					t.Errorf("mode %d: got %v, want an *OptionError", mode, err)
				}
				if _, err := throttle.New("x", client, globalScope(), &throttle.Options{Mode: mode}); !isOptionError(err, "Mode") {
					t.Errorf("Options.Mode %d: got %v, want an *OptionError", mode, err)
				}
				if _, err := throttle.New("x", client, []throttle.Scope{{Name: throttle.Global, Mode: mode}},
					nil); !isOptionError(err, "Scope.Mode") {
					t.Errorf("Scope.Mode %d: got %v, want an *OptionError", mode, err)
				}
			}
		})
		for _, within := range []time.Duration{-1, time.Minute - 1, maxWindow + 1} {
			if _, err := throttle.New("x", client, globalScope(),
				&throttle.Options{SettleWithin: within}); !isOptionError(err, "SettleWithin") {
				t.Errorf("SettleWithin %s: got %v, want an *OptionError", within, err)
			}
		}
	})
}

// TestNamesOfModes keeps the names of modes, which logs and metrics show.
func TestNamesOfModes(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		throttle.Enforce.String(): "enforce", throttle.Shadow.String(): "shadow", throttle.Off.String(): "off",
		throttle.Mode(7).String(): "unknown",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestLimitsAreReadAsTheyWereSet: whatever limits are set, another process reads just
// these, for keys of any bytes. A precision that is the default is read as none.
func TestLimitsAreReadAsTheyWereSet(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := tenantAndGlobal(throttle.PerHour(5), throttle.PerHour(5))
		th := newThrottle(t, client, scopes, nil)
		other := sameAs(t, client, th, scopes, throttle.Options{})
		for i, limits := range [][]throttle.Limit{
			{throttle.PerHour(0)},
			{throttle.Per(throttle.Unlimited, time.Hour)},
			{throttle.Per(maxUnits, maxWindow)},
			{{Units: 7, Window: 90 * time.Minute, Precision: throttle.Exact}},
			{{Units: 7, Window: 1500 * time.Microsecond, Precision: 7 * time.Microsecond}},
			{throttle.PerSecond(1), throttle.PerMinute(2), throttle.PerDay(3)},
		} {
			for _, key := range []string{"acme", "a b~c", "x:y|z=1,2", "{}\x00\n%", string(make([]byte, 300))} {
				if err := inspect.New(th).SetLimits(t.Context(), "tenant", key, limits); err != nil {
					t.Fatal(err)
				}
				state := inForce(t, other, "tenant", key)
				want := inspect.Usage{Scope: "tenant", Key: key, Now: state.Now, Served: 1, SetFor: "key"}
				for _, limit := range limits {
					u := inspect.LimitUsage{Limit: limit, Units: limit.Units, Free: state.Now, Counts: limit.Length()}
					if limit.Units == 0 {
						u.Free = time.Time{}
					}
					if limit.Units <= 100 && limit.Precision == throttle.Exact {
						u.Limit.Precision = 0
					}
					want.Limits = append(want.Limits, u)
				}
				if diff := cmp.Diff(want, state); diff != "" {
					t.Errorf("limits %d, key %.10q: %s", i, key, diff)
				}
				if _, err := other.Peek(t.Context(), throttle.Job{ID: "a", Weight: 1, Keys: of(key)}); err != nil {
					t.Errorf("limits %d, key %.10q: %v", i, key, err)
				}
			}
		}
	})
}

// TestWhoseLimitsAreInForce: limits of the key win over limits of the scope, and these over the
// configuration; Usage says which are in force.
func TestWhoseLimitsAreInForce(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := tenantAndGlobal(throttle.PerHour(5), throttle.PerHour(50))
		th := newThrottle(t, client, scopes, nil)
		other := sameAs(t, client, th, scopes, throttle.Options{})
		ctx := t.Context()
		for _, row := range []struct {
			what string
			do   func() error
			a, b string // whose, and how many
		}{
			{"nothing is set", func() error { return nil }, " 5", " 5"},
			{"for all keys", func() error {
				return inspect.New(th).SetLimits(ctx, "tenant", "", []throttle.Limit{throttle.PerHour(3)})
			}, "scope 3", "scope 3"},
			{"for a", func() error {
				return inspect.New(th).SetLimits(ctx, "tenant", "a", []throttle.Limit{throttle.PerHour(4)})
			}, "key 4", "scope 3"},
			{"for all keys again", func() error {
				return inspect.New(th).SetLimits(ctx, "tenant", "", []throttle.Limit{throttle.PerHour(2)})
			}, "key 4", "scope 2"},
			{"taken back for all keys", func() error { return inspect.New(th).ResetLimits(ctx, "tenant", "") }, "key 4", " 5"},
			{"taken back for a", func() error { return inspect.New(th).ResetLimits(ctx, "tenant", "a") }, " 5", " 5"},
			{"taken back again", func() error { return inspect.New(th).ResetLimits(ctx, "tenant", "a") }, " 5", " 5"},
		} {
			if err := row.do(); err != nil {
				t.Fatalf("%s: %v", row.what, err)
			}
			for key, want := range map[string]string{"a": row.a, "b": row.b} {
				state := inForce(t, other, "tenant", key)
				if got := fmt.Sprint(state.SetFor, " ", state.Limits[0].Limit.Units); got != want {
					t.Errorf("%s: %s has %q, want %q", row.what, key, got, want)
				}
			}
		}
	})
}

// TestManyLimitsOnOneKey: limits that are set have ledgers beside those of the configuration;
// decisions work under the largest number of limits that may be set.
func TestManyLimitsOnOneKey(t *testing.T) {
	t.Parallel()
	windows := func(n int, unit time.Duration) []throttle.Limit {
		limits := make([]throttle.Limit, n)
		for i := range limits {
			limits[i] = throttle.Per(5, time.Duration(i+1)*unit)
		}
		return limits
	}
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := newThrottle(t, client, globalScope(windows(60, time.Second)...), nil)
		for _, n := range []int{1, 4} {
			if err := inspect.New(th).SetLimits(t.Context(), throttle.Global, "", windows(n, time.Hour)); err != nil {
				t.Fatal(err)
			}
			reserve(t, th, throttle.Job{ID: fmt.Sprint("with ", n), Weight: 1})
		}
		unchanged(t, client, th, func() {
			for _, n := range []int{5, 64} {
				if err := inspect.New(th).SetLimits(t.Context(), throttle.Global, "",
					windows(n, time.Hour)); !isOptionError(err, "limits") {
					t.Errorf("%d more than 60: got %v, want an *OptionError", n, err)
				}
			}
		})
		if err := inspect.New(th).SetLimits(t.Context(), throttle.Global, "", windows(64, time.Second)); err != nil {
			t.Errorf("64, 60 of them of the same windows: %v", err)
		}
		reserve(t, th, throttle.Job{ID: "with 64", Weight: 1})
	})
}
