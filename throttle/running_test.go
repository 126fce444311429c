package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// ahead is the default Lookahead: leases have to be longer.
var ahead = &throttle.Options{Lookahead: time.Second}

func runningTenants(limit throttle.Limit) []throttle.Scope {
	return []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{limit}}}
}

// TestRunningRefusesWhatIsWrong: a reservation that is no grant gets a typed error that names the
// field.
func TestRunningRefusesWhatIsWrong(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := newThrottle(t, client, runningTenants(throttle.Running(1)), ahead)
		good := reserve(t, th, throttle.Job{ID: "good", Weight: 1, Keys: of("acme")})
		waits := reserve(t, th, throttle.Job{ID: "waits", Weight: 1, Keys: of("acme")})
		startless, cold := good, good
		startless.Start = time.Time{}
		cold.Cooldowns = map[string]time.Duration{"tenant": -1}
		for field, wrong := range map[string]throttle.Reservation{"Outcome": waits, "Start": startless, "Cooldowns": cold} {
			for name, call := range map[string]func(context.Context,
				...throttle.Reservation) ([]bool, error){"Done": th.Done, "Renew": th.Renew} {
				var invalid *throttle.InvalidJobError
				if _, err := call(t.Context(), good, wrong); !errors.As(err, &invalid) || invalid.Field != field {
					t.Errorf("%s: got %v, want an error about %s", name, err, field)
				}
			}
		}
		if held, err := th.Done(t.Context()); err != nil || len(held) != 0 {
			t.Errorf("of nothing: %v, %v", held, err)
		}
		if held, err := th.Done(t.Context(), good); err != nil || !held[0] {
			t.Errorf("the good one was not held any more: %v, %v", held, err)
		}
	})
}

// TestRunningLimitsThatAreWrong: New and SetLimits refuse wrong running limits.
func TestRunningLimitsThatAreWrong(t *testing.T) {
	t.Parallel()
	client := away(t)
	wrong := map[string]throttle.Scope{
		"a window":           {Limits: []throttle.Limit{{Units: 1, Running: true, Window: time.Minute}}},
		"a precision":        {Limits: []throttle.Limit{{Units: 1, Running: true, Precision: time.Second}}},
		"a lease of another": {Limits: []throttle.Limit{{Units: 1, Window: time.Minute, Lease: time.Minute}}},
		"two of them":        {Limits: []throttle.Limit{throttle.Running(1), {Units: 2, Running: true, Lease: time.Minute}}},
		"a short lease":      {Limits: []throttle.Limit{{Units: 1, Running: true, Lease: 1999 * time.Millisecond}}},
		"a long cool-down":   {Limits: []throttle.Limit{throttle.Running(1)}, Cooldown: time.Minute},
		"no cool-down":       {Limits: []throttle.Limit{throttle.Running(1)}, Cooldown: -1},
		"no time":            {Limits: []throttle.Limit{throttle.Running(1)}, Runs: -1},
	}
	for name, scope := range wrong {
		scope.Name = "tenant"
		_, err := throttle.New("wrong", client, []throttle.Scope{scope}, nil)
		var option *throttle.OptionError
		var limit *throttle.LimitError
		if !errors.As(err, &option) && !errors.As(err, &limit) {
			t.Errorf("%s: got %v, want an *OptionError or a *LimitError", name, err)
		}
	}
	th := newThrottle(t, client, runningTenants(throttle.Running(1)), ahead)
	var limit *throttle.LimitError
	if err := inspect.New(th).SetLimits(t.Context(), "tenant", "acme",
		wrong["a short lease"].Limits); !errors.As(err, &limit) {
		t.Errorf("set: got %v, want a *LimitError", err)
	}
}

// TestRunningSetAtRunTime: other units count at once, under the lease of the configuration.
func TestRunningSetAtRunTime(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := newThrottle(t, client, runningTenants(throttle.Limit{Units: 2, Running: true, Lease: time.Minute}), ahead)
		ask := func(id string) throttle.Reservation {
			return reserve(t, th, throttle.Job{ID: id, Weight: 1, Keys: of("acme")})
		}
		a, b := ask("a"), ask("b")
		if err := inspect.New(th).SetLimits(t.Context(), "tenant", "acme",
			[]throttle.Limit{throttle.Running(3)}); err != nil {
			t.Fatal(err)
		}
		c, d := ask("c"), ask("d")
		if a.Lease != time.Minute || b.Outcome != throttle.Granted || c.Outcome != throttle.Granted ||
			d.Outcome != throttle.Waiting {
			t.Errorf("got %s, %s, %s, %s under 2 and then 3 at once", a.Outcome, b.Outcome, c.Outcome, d.Outcome)
		}
		if err := inspect.New(th).SetLimits(t.Context(), "tenant", "acme",
			[]throttle.Limit{throttle.Running(1)}); err != nil {
			t.Fatal(err)
		}
		if held, err := th.Done(t.Context(), a, b); err != nil || !held[0] || !held[1] {
			t.Errorf("ended: %v, %v", held, err)
		}
		if pulled, err := th.Driver().Pull(t.Context()); err != nil || len(pulled.Booked) != 0 {
			t.Errorf("pulled %v, %v, though one runs and one may", pulled.Booked, err)
		}
		if _, err := th.Done(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if pulled, err := th.Driver().Pull(t.Context()); err != nil || len(pulled.Booked) != 1 {
			t.Errorf("pulled %v, %v, though none runs", pulled.Booked, err)
		}
	})
}

// TestRunningOfMany: more grants than one call ends, twice.
func TestRunningOfMany(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := newThrottle(t, client, runningTenants(throttle.Running(500)), ahead)
		var granted []throttle.Reservation
		for i := range 150 {
			granted = append(granted, reserve(t, th, throttle.Job{ID: fmt.Sprint(i), Weight: 3, Keys: of("acme")}))
		}
		for _, verb := range []func(context.Context, ...throttle.Reservation) ([]bool, error){th.Renew, th.Done} {
			held, err := verb(t.Context(), granted...)
			if err != nil || len(held) != len(granted) {
				t.Fatalf("%v, %v", held, err)
			}
			for i, is := range held {
				if !is {
					t.Errorf("job %d did not hold its place", i)
				}
			}
		}
		if again, err := th.Done(t.Context(), granted...); err != nil || again[0] || again[149] {
			t.Errorf("again: %v, %v", again, err)
		}
		if units := usedOf(t, th, "acme"); units != 0 {
			t.Errorf("%d units run when all have ended", units)
		}
	})
}

// TestRunningLeavesNoKeys: the keys of a job's places are gone when the job has ended.
func TestRunningLeavesNoKeys(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := newThrottle(t, client, runningTenants(throttle.Running(5)), ahead)
		for _, id := range []string{"a", "hostile \n|,=: \x00", "b"} {
			r := reserve(t, th, throttle.Job{ID: id, Weight: 1, Keys: of("acme, inc = | : 50%")})
			if held, err := th.Done(t.Context(), r); err != nil || !held[0] {
				t.Errorf("%q: %v, %v", id, held, err)
			}
		}
		keys, err := client.Keys(t.Context(), "thr:{"+th.Name()+"}:*:run:*").Result()
		if more, _ := client.Keys(t.Context(), "thr:{"+th.Name()+"}:*:key:*").Result(); err != nil ||
			len(keys)+len(more) != 0 {
			t.Errorf("left: %q %q (%v)", keys, more, err)
		}
	})
}

// TestRunningForecast: guesses depend on how long jobs run, as configured or as measured.
func TestRunningForecast(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		for name, runs := range map[string]time.Duration{"given": time.Second, "seen": 0} {
			scopes := runningTenants(throttle.Running(2))
			scopes[0].Runs = runs
			s := newScripted(newThrottle(t, client, scopes, ahead))
			now := time.Unix(1_800_000_000, 0)
			job := func(i int) throttle.Job { return throttle.Job{ID: fmt.Sprint(i), Weight: 1, Keys: of("acme")} }
			for i := range 40 {
				r, err := s.Reserve(now, job(i))
				if err != nil || r.Outcome != throttle.Granted {
					t.Fatalf("%s: %+v, %v", name, r, err)
				}
				now = now.Add(time.Second)
				if _, err := s.Done(now, r); err != nil {
					t.Fatal(err)
				}
			}
			s.at(now)
			var jobs []throttle.Job
			for i := range 21 {
				jobs = append(jobs, job(100+i))
			}
			forecast, err := inspect.New(s.throttle).Forecast(t.Context(), jobs)
			if err != nil {
				t.Fatal(err)
			}
			if last := forecast.Last.Sub(now); last < 10*time.Second || last > 12*time.Second {
				t.Errorf("%s: 21 jobs of a second, two at once: the last starts after %s, want 10s", name, last)
			}
			for i := range 3 {
				if _, err := s.Reserve(now, job(200+i)); err != nil {
					t.Fatal(err)
				}
			}
			waits, err := s.Reserve(now, job(203))
			if wait := waits.Start.Sub(now); err != nil || waits.Outcome != throttle.Waiting ||
				wait < time.Second/2 || wait > 4*time.Second {
				t.Errorf("%s: it is taken to start in %s (%+v, %v), want about 2s", name, wait, waits, err)
			}
			if e, err := inspect.New(s.throttle).Explain(t.Context(), job(203)); err != nil ||
				e.Expected.Sub(now) > 4*time.Second {
				t.Errorf("%s: explained to start in %s (%v), want about 2s", name, e.Expected.Sub(now), err)
			}
		}
	})
}

// TestRunningForecastOfNothingKnown: if it is not configured how long jobs run, and none has ended,
// a forecast depends on the other limits.
func TestRunningForecastOfNothingKnown(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.Running(2), throttle.PerSecond(10)}}}
		th := newThrottle(t, client, scopes, ahead)
		var jobs []throttle.Job
		for i := range 41 {
			jobs = append(jobs, throttle.Job{ID: fmt.Sprint(i), Weight: 1, Keys: of("acme")})
		}
		for i := range 3 {
			reserve(t, th, throttle.Job{ID: fmt.Sprint("before", i), Weight: 1, Keys: of("acme")})
		}
		forecast, err := inspect.New(th).Forecast(t.Context(), jobs)
		if last := forecast.Last.Sub(forecast.Now); err != nil || last < 3*time.Second || last > 6*time.Second {
			t.Errorf("44 jobs, ten a second: the last starts after %s (%v), want about 4s", last, err)
		}
	})
}

// TestRunningLocalShare: with Redis away a process runs no more than its share at once.
func TestRunningLocalShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		th := newThrottle(t, away(t), runningTenants(throttle.Running(10)),
			&throttle.Options{Lookahead: time.Second, Fallback: throttle.FallbackLocal, LocalShare: 0.5})
		ask := func(id string, weight int64) (throttle.Reservation, error) {
			return th.Reserve(t.Context(), throttle.Job{ID: id, Weight: weight, Keys: of("acme")})
		}
		first, err := ask("a", 3)
		if err != nil || first.Lease != throttle.DefaultLease {
			t.Fatalf("%+v, %v", first, err)
		}
		if _, err := ask("b", 3); !errors.Is(err, throttle.ErrUnavailable) {
			t.Errorf("6 of 5 units: %v", err)
		}
		second, err := ask("c", 2)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if held, err := th.Renew(t.Context(), first); err != nil || !held[0] {
			t.Errorf("renewed: %v, %v", held, err)
		}
		time.Sleep(20 * time.Second)
		if held, err := th.Done(t.Context(), first, second); err != nil || !held[0] || held[1] {
			t.Errorf("ended: %v, %v, want that the second was over", held, err)
		}
		if _, err := ask("d", 5); err != nil {
			t.Errorf("all has ended: %v", err)
		}
	})
}

// TestWorkOfEndingManyIsBounded: one call reads what each grant holds once, and with many scopes there are more calls,
// of fewer grants.
func TestWorkOfEndingManyIsBounded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t).Client(t)
	client, hook := hookedClient(t, server)
	for scopes, want := range map[int]struct{ calls, commands int }{1: {1, 3 * 64}, 8: {3, 3*64 + 3*20}} {
		all, keys := make([]throttle.Scope, scopes), make(map[string]string)
		for i := range all {
			all[i] = throttle.Scope{Name: fmt.Sprint("scope", i), Limits: []throttle.Limit{throttle.Running(1000)}}
			keys[all[i].Name] = "acme"
		}
		th := newThrottle(t, client, all, ahead)
		granted := make([]throttle.Reservation, 64)
		for i := range granted {
			granted[i] = reserve(t, th, throttle.Job{ID: fmt.Sprint(i), Weight: 1, Keys: keys})
		}
		if _, err := th.Renew(t.Context(), granted[:1]...); err != nil { // the script is loaded
			t.Fatal(err)
		}
		th.AwaitPublished()
		calls, before := hook.calls.Load(), commandsRun(t, server)
		if _, err := th.Renew(t.Context(), granted...); err != nil {
			t.Fatal(err)
		}
		commands := commandsRun(t, server) - before
		if got := int(hook.calls.Load() - calls); got != want.calls || commands > want.commands {
			t.Errorf("%d scopes: 64 grants are renewed in %d calls and by %d commands, want %d and %d at most",
				scopes, got, commands, want.calls, want.commands)
		}
	}
}
