package throttle_test

import (
	stdcmp "cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// sameAs is a throttle of the same name, as another process has it.
func sameAs(t testing.TB, client redis.Scripter, th *throttle.Throttle, scopes []throttle.Scope,
	opts throttle.Options) *throttle.Throttle {
	t.Helper()
	if opts.Timeout == 0 {
		opts.Timeout = patient
	}
	if opts.Lookahead == 0 {
		opts.Lookahead = maxWindow
	}
	other, err := throttle.New(th.Name(), client, scopes, &opts)
	if err != nil {
		t.Fatal(err)
	}
	return other
}

// heard is told, and hears of settlements and pauses too.
type heard struct {
	told
	settled []throttle.Settlement
	paused  []throttle.Pause
}

func (o *heard) Settled(s throttle.Settlement) { o.settled = append(o.settled, s) }

func (o *heard) Paused(p throttle.Pause) { o.paused = append(o.paused, p) }

// takeScripts are the scripts called since it was asked last.
func (o *heard) takeScripts() []string {
	scripts := o.scripts()
	o.calls = nil
	return scripts
}

// obeys is what one process sets and another, which knows nothing of it, decides then.
type obeys struct {
	set          func(t *testing.T, th *throttle.Throttle)
	first, after string // of jobs of weight 2 of tenant acme; the second is the same if empty
}

// TestAnotherProcessObeys: another process obeys a setting with its very next decision, in one
// call.
func TestAnotherProcessObeys(t *testing.T) {
	t.Parallel()
	limits := func(scope, key, text string) func(*testing.T, *throttle.Throttle) {
		return func(t *testing.T, th *throttle.Throttle) {
			t.Helper()
			parsed, err := throttle.ParseLimits(text)
			if err == nil {
				err = inspect.New(th).SetLimits(t.Context(), scope, key, parsed)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	mode := func(scope string, mode throttle.Mode) func(*testing.T, *throttle.Throttle) {
		return func(t *testing.T, th *throttle.Throttle) {
			t.Helper()
			if err := inspect.New(th).SetMode(t.Context(), scope, mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	pause := func(scope, key string) func(*testing.T, *throttle.Throttle) {
		return func(t *testing.T, th *throttle.Throttle) {
			t.Helper()
			if _, err := inspect.New(th).Pause(t.Context(), scope, key, time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
	}
	onServers(t, func(t *testing.T, client *redis.Client) {
		for name, row := range map[string]obeys{
			"nothing":               {func(*testing.T, *throttle.Throttle) {}, "granted", ""},
			"a lower limit":         {limits("tenant", "acme", "2/1h"), "booked by tenant 2/1h", ""},
			"a lower limit for all": {limits("tenant", "", "3/1h"), "booked by tenant 3/1h", ""},
			"a higher limit":        {limits(throttle.Global, "", "99/1h"), "granted", ""},
			"a limit of another":    {limits("tenant", "globex", "0/1h"), "granted", ""},
			"another precision":     {limits("tenant", "acme", "3/1h@1m"), "booked by tenant 3/1h@1m", ""},
			// It counts from when it is first asked for.
			"another window":    {limits("tenant", "acme", "3/2h"), "granted", "booked by tenant 3/2h"},
			"a pause":           {pause("tenant", "acme"), "booked by tenant, paused", ""},
			"a pause of all":    {pause(throttle.Global, ""), "booked by global, paused", ""},
			"a pause elsewhere": {pause("tenant", "globex"), "granted", ""},
			"off":               {mode("", throttle.Off), "granted", ""},
			"shadow": {func(t *testing.T, th *throttle.Throttle) {
				limits("tenant", "acme", "2/1h")(t, th)
				mode("tenant", throttle.Shadow)(t, th)
			}, "granted", ""},
		} {
			t.Run(name, func(t *testing.T) {
				scopes := tenantAndGlobal(throttle.PerHour(10), throttle.PerHour(20))
				setter := newThrottle(t, client, scopes, nil)
				observer := new(heard)
				other := sameAs(t, client, setter, scopes, throttle.Options{Observer: observer})
				reserve(t, other, throttle.Job{ID: "before", Weight: 2, Keys: of("acme")})
				observer.takeScripts()
				row.set(t, setter)
				after := stdcmp.Or(row.after, row.first)
				for i, want := range []string{row.first, after} {
					got := outcomeOf(reserve(t, other, throttle.Job{ID: fmt.Sprint("job", i), Weight: 2, Keys: of("acme")}))
					if got != want {
						t.Errorf("decision %d: %s, want %s", i+1, got, want)
					}
					if scripts := observer.takeScripts(); !slices.Equal(scripts, []string{"reserve"}) {
						t.Errorf("decision %d: scripts %v, want one", i+1, scripts)
					}
				}
				// The one that set it obeys as well.
				if got := outcomeOf(reserve(t, setter, throttle.Job{ID: "own", Weight: 2, Keys: of("acme")})); got != after {
					t.Errorf("the one that set it: %s, want %s", got, after)
				}
			})
		}
	})
}

// outcomeOf returns what was decided, and what held the job.
func outcomeOf(r throttle.Reservation) string {
	switch {
	case r.Hold == nil:
		return r.Outcome.String()
	case r.Hold.Paused:
		return r.Outcome.String() + " by " + r.Hold.Scope + ", paused"
	}
	return fmt.Sprintf("%s by %s %s", r.Outcome, r.Hold.Scope, r.Hold.Limit)
}

// TestOneCallWhateverIsSet: whatever another process sets or takes back, each call asks one
// script, once.
func TestOneCallWhateverIsSet(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := tenantAndGlobal(throttle.PerHour(2), throttle.PerHour(20))
		setter := newThrottle(t, client, scopes, nil)
		observer := new(heard)
		other := sameAs(t, client, setter, scopes, throttle.Options{Observer: observer})
		job := func(id string) throttle.Job { return throttle.Job{ID: id, Weight: 2, Keys: of("acme")} }
		granted := reserve(t, other, job("before"))
		ctx := t.Context()
		calls := map[string]struct {
			script string
			call   func() error
		}{
			"Reserve": {"reserve", func() error { _, err := other.Reserve(ctx, job("y")); return err }},
			"Peek":    {"reserve", func() error { _, err := other.Peek(ctx, job("x")); return err }},
			"Usage":   {"usage", func() error { _, err := inspect.New(other).Usage(ctx, "tenant", "acme"); return err }},
			"Count": {"usage", func() error {
				_,
					err := inspect.New(other).Count(ctx, "tenant", "acme", time.Minute, 0)
				return err
			}},
			"Cancel": {"leave", func() error { _, err := other.Cancel(ctx, job("x")); return err }},
			"Settle": {"settle", func() error { _, err := other.Settle(ctx, granted, 2); return err }},
			"Pull":   {"pull", func() error { _, err := other.Driver().Pull(ctx); return err }},
			"Lines":  {"lines", func() error { _, err := inspect.New(other).Lines(ctx, ""); return err }},
		}
		for name, c := range calls {
			for _, change := range []func() error{
				func() error {
					return inspect.New(setter).SetLimits(ctx, "tenant", "acme", []throttle.Limit{throttle.PerHour(9)})
				},
				func() error { return inspect.New(setter).SetMode(ctx, "tenant", throttle.Shadow) },
				func() error { return inspect.New(setter).ResetMode(ctx, "tenant") },
				func() error { return inspect.New(setter).ResetLimits(ctx, "tenant", "acme") },
			} {
				if err := change(); err != nil {
					t.Fatal(err)
				}
				observer.takeScripts()
				if err := c.call(); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if diff := cmp.Diff([]string{c.script}, observer.takeScripts()); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
		}
	})
}

// TestLimitsOfManyKeys: limits that are set for single keys, for no key or for all keys are in
// force with the next decision of a process that did not know of them.
func TestLimitsOfManyKeys(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := tenantAndGlobal(throttle.PerHour(2), throttle.PerHour(1000))
		setter := newThrottle(t, client, scopes, nil)
		other := sameAs(t, client, setter, scopes, throttle.Options{})
		for _, key := range []string{"t0", "t1", "t2"} {
			if err := inspect.New(setter).SetLimits(t.Context(), "tenant", key,
				[]throttle.Limit{throttle.PerHour(3)}); err != nil {
				t.Fatal(err)
			}
		}
		granted := func(round string) (n []int) {
			for i := range 6 {
				n = append(n, 0)
				for j := range 8 {
					if reserve(t, other, throttle.Job{ID: fmt.Sprint(round, i, "-", j), Weight: 1,
						Keys: of(fmt.Sprint("t", i))}).Outcome == throttle.Granted {
						n[i]++
					}
				}
			}
			return n
		}
		if diff := cmp.Diff([]int{3, 3, 3, 2, 2, 2}, granted("own ")); diff != "" {
			t.Error("their own, granted", diff)
		}
		if err := inspect.New(setter).SetLimits(t.Context(), "tenant", "",
			[]throttle.Limit{throttle.PerHour(20)}); err != nil {
			t.Fatal(err)
		}
		// The others have two that are spent and six that are booked.
		if diff := cmp.Diff([]int{0, 0, 0, 8, 8, 8}, granted("all ")); diff != "" {
			t.Error("for all, granted", diff)
		}
	})
}

// TestClosedInAnotherProcess: a limit of 0 that only one process is configured with, before a
// release, holds no job up for good: other processes look at its lanes again within five minutes.
func TestClosedInAnotherProcess(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		options := throttle.Options{Lookahead: time.Second}
		before := newThrottle(t, client, globalScope(throttle.PerMinute(0)), &options)
		if r, err := newScripted(before).Reserve(dawn, throttle.Job{ID: "waits", Weight: 1}); err != nil ||
			r.Outcome != throttle.Waiting {
			t.Fatalf("got %s, %v; want waiting", r.Outcome, err)
		}
		after := newScripted(sameAs(t, client, before, globalScope(throttle.PerMinute(100)), options))
		for at := time.Minute; at <= 5*time.Minute; at += time.Minute {
			pulled, err := after.Pull(dawn.Add(at))
			if err != nil {
				t.Fatal(err)
			}
			if len(pulled.Booked) == 1 {
				return
			}
		}
		t.Error("it is not booked within five minutes, though the limit is 100 a minute")
	})
}
