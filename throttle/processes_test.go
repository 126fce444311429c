package throttle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// sameAs is a throttle of the same name, as another process has it.
func sameAs(t testing.TB, client redis.Scripter, th *throttle.Throttle, scopes []throttle.Scope, opts throttle.Options) *throttle.Throttle {
	t.Helper()
	if opts.Timeout == 0 {
		opts.Timeout = patient
	}
	if opts.Lookahead == 0 {
		opts.Lookahead = throttle.MaxWindow
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
	set    func(t *testing.T, th *throttle.Throttle)
	want   string   // of a job of weight 2 of tenant acme
	first  []string // the scripts that the first decision calls
	second []string // and the next
}

// TestAnotherProcessObeys: what one process sets at run time another obeys with its
// very next decision. Where that takes more than a call, it does so once.
func TestAnotherProcessObeys(t *testing.T) {
	t.Parallel()
	once, twice := []string{"reserve"}, []string{"reserve", "reserve"}
	limits := func(scope, key, text string) func(*testing.T, *throttle.Throttle) {
		return func(t *testing.T, th *throttle.Throttle) {
			t.Helper()
			parsed, err := throttle.ParseLimits(text)
			if err == nil {
				err = th.SetLimits(t.Context(), scope, key, parsed)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	mode := func(scope string, mode throttle.Mode) func(*testing.T, *throttle.Throttle) {
		return func(t *testing.T, th *throttle.Throttle) {
			t.Helper()
			if err := th.SetMode(t.Context(), scope, mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	pause := func(scope, key string) func(*testing.T, *throttle.Throttle) {
		return func(t *testing.T, th *throttle.Throttle) {
			t.Helper()
			if _, err := th.Pause(t.Context(), scope, key, time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
	}
	onServers(t, func(t *testing.T, client *redis.Client) {
		for name, row := range map[string]obeys{
			"nothing":               {func(*testing.T, *throttle.Throttle) {}, "granted", once, once},
			"a lower limit":         {limits("tenant", "acme", "2/1h"), "booked by tenant 2/1h", twice, once},
			"a lower limit for all": {limits("tenant", "", "3/1h"), "booked by tenant 3/1h", twice, once},
			"a higher limit":        {limits(throttle.Global, "", "99/1h"), "granted", twice, once},
			"a limit of another":    {limits("tenant", "globex", "0/1h"), "granted", once, once},
			// What is exact in the configuration is to be in sub-windows.
			"another precision": {limits("tenant", "acme", "3/1h@1m"), "booked by tenant 3/1h@1m", []string{"reserve", "reserve", "adopt", "reserve"}, once},
			"another window":    {limits("tenant", "acme", "3/2h"), "booked by tenant 3/2h", []string{"reserve", "reserve", "adopt", "reserve"}, once},
			"a pause":           {pause("tenant", "acme"), "booked by tenant, paused", once, once},
			"a pause of all":    {pause(throttle.Global, ""), "booked by global, paused", once, once},
			"a pause elsewhere": {pause("tenant", "globex"), "granted", once, once},
			"off":               {mode("", throttle.Off), "granted", twice, once},
			"shadow": {func(t *testing.T, th *throttle.Throttle) {
				limits("tenant", "acme", "2/1h")(t, th)
				mode("tenant", throttle.Shadow)(t, th)
			}, "granted", twice, once},
		} {
			t.Run(name, func(t *testing.T) {
				scopes := tenantAndGlobal(throttle.PerHour(10), throttle.PerHour(20))
				setter := newThrottle(t, client, scopes, nil)
				observer := new(heard)
				other := sameAs(t, client, setter, scopes, throttle.Options{Observer: observer})
				reserve(t, other, throttle.Job{ID: "before", Weight: 2, Keys: of("acme")})
				observer.takeScripts()
				row.set(t, setter)
				for i, scripts := range [][]string{row.first, row.second} {
					got := outcomeOf(reserve(t, other, throttle.Job{ID: fmt.Sprint("job", i), Weight: 2, Keys: of("acme")}))
					if got != row.want {
						t.Errorf("decision %d: %s, want %s", i+1, got, row.want)
					}
					if diff := cmp.Diff(scripts, observer.takeScripts()); diff != "" {
						t.Errorf("decision %d (-want +got):\n%s", i+1, diff)
					}
				}
				// The one that set it obeys as well.
				if got := outcomeOf(reserve(t, setter, throttle.Job{ID: "own", Weight: 2, Keys: of("acme")})); got != row.want {
					t.Errorf("the one that set it: %s, want %s", got, row.want)
				}
			})
		}
	})
}

// outcomeOf is what was decided, and what held the job.
func outcomeOf(r throttle.Reservation) string {
	switch {
	case r.Hold == nil:
		return r.Outcome.String()
	case r.Hold.Paused:
		return r.Outcome.String() + " by " + r.Hold.Scope + ", paused"
	}
	return fmt.Sprintf("%s by %s %s", r.Outcome, r.Hold.Scope, r.Hold.Limit)
}

// TestAnotherProcessObeysWhatIsTakenBack: and every other call does as Reserve does.
func TestAnotherProcessObeysWhatIsTakenBack(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := tenantAndGlobal(throttle.PerHour(2), throttle.PerHour(20))
		setter := newThrottle(t, client, scopes, nil)
		observer := new(heard)
		other := sameAs(t, client, setter, scopes, throttle.Options{Observer: observer})
		job := func(id string) throttle.Job { return throttle.Job{ID: id, Weight: 2, Keys: of("acme")} }
		granted := reserve(t, other, job("before"))
		ctx := t.Context()
		calls := map[string]func() error{
			"peek":   func() error { _, err := other.Peek(ctx, job("x")); return err },
			"usage":  func() error { _, err := other.Usage(ctx, "tenant", "acme"); return err },
			"count":  func() error { _, err := other.Count(ctx, "tenant", "acme", time.Minute, 0); return err },
			"cancel": func() error { _, err := other.Cancel(ctx, job("x")); return err },
			"settle": func() error { _, err := other.Settle(ctx, granted, 2); return err },
			"pull":   func() error { _, _, err := other.Pull(ctx, "acme|"); return err },
			"reserve": func() error {
				_, err := other.Reserve(ctx, job("y"))
				return err
			},
			"controls": func() error { _, err := other.Limits(ctx, "tenant", "acme"); return err },
		}
		for script, call := range calls {
			for _, change := range []func() error{
				func() error { return setter.SetLimits(ctx, "tenant", "acme", []throttle.Limit{throttle.PerHour(9)}) },
				func() error { return setter.SetMode(ctx, "tenant", throttle.Shadow) },
				func() error { return setter.ResetMode(ctx, "tenant") },
				func() error { return setter.ResetLimits(ctx, "tenant", "acme") },
			} {
				if err := change(); err != nil {
					t.Fatal(err)
				}
				observer.takeScripts()
				for i, want := range [][]string{{script, script}, {script}} {
					if err := call(); err != nil {
						t.Fatalf("%s: %v", script, err)
					}
					if diff := cmp.Diff(want, observer.takeScripts()); diff != "" {
						t.Errorf("%s, for the %d. time (-want +got):\n%s", script, i+1, diff)
					}
				}
			}
		}
	})
}

// TestLimitsOfManyKeys: what is set for single keys costs a call more for each, once;
// what is set for none, or for all of them, nothing more.
func TestLimitsOfManyKeys(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := tenantAndGlobal(throttle.PerHour(2), throttle.PerHour(1000))
		setter := newThrottle(t, client, scopes, nil)
		observer := new(heard)
		other := sameAs(t, client, setter, scopes, throttle.Options{Observer: observer})
		for _, key := range []string{"t0", "t1", "t2"} {
			if err := setter.SetLimits(t.Context(), "tenant", key, []throttle.Limit{throttle.PerHour(3)}); err != nil {
				t.Fatal(err)
			}
		}
		calls := func(round string) (n []int) {
			for i := range 6 {
				reserve(t, other, throttle.Job{ID: fmt.Sprint(round, i), Weight: 1, Keys: of(fmt.Sprint("t", i))})
				n = append(n, len(observer.takeScripts()))
			}
			return n
		}
		if diff := cmp.Diff([]int{2, 2, 2, 1, 1, 1}, calls("own ")); diff != "" {
			t.Error("their own, calls", diff)
		}
		if diff := cmp.Diff([]int{1, 1, 1, 1, 1, 1}, calls("again ")); diff != "" {
			t.Error("again, calls", diff)
		}
		if err := setter.SetLimits(t.Context(), "tenant", "", []throttle.Limit{throttle.PerHour(5)}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]int{1, 1, 1, 2, 1, 1}, calls("all ")); diff != "" {
			t.Error("all, calls", diff)
		}
	})
}
