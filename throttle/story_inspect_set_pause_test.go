package throttle_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// badScopeKeys are scope keys that every call refuses, with the field that the error names.
var badScopeKeys = map[string]struct{ scope, key, field string }{
	"an unknown scope":         {"host", "x", "scope"},
	"no scope":                 {"", "x", "scope"},
	"no key of a keyed scope":  {"tenant", "", "key"},
	"a key of the global one":  {throttle.Global, "x", "key"},
	"a scope in another case":  {"Tenant", "x", "scope"},
	"a scope with a separator": {"tenant:acme", "x", "scope"},
}

// TestPauseRefuses: for a bad scope key or time, Pause returns a typed error that names the bad argument,
// and writes nothing.
func TestPauseRefuses(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := newThrottle(t, client, tenantAndGlobal(throttle.PerHour(5), throttle.PerHour(5)), nil)
		pause := func(ctx context.Context, scope, key string, until time.Time) error {
			_, err := inspect.New(th).Pause(ctx, scope, key, until)
			return err
		}
		refused := func(name string, err error, field string) {
			t.Helper()
			var wrong *throttle.ArgumentError
			if !errors.As(err, &wrong) || wrong.Argument != field || wrong.Reason == "" {
				t.Errorf("%s: got %v, want an *ArgumentError of %s", name, err, field)
			}
		}
		unchanged(t, client, th, func() {
			soon := time.Now().Add(time.Minute)
			for name, bad := range badScopeKeys {
				refused("Pause, "+name, pause(t.Context(), bad.scope, bad.key, soon), bad.field)
				_, err := inspect.New(th).Resume(t.Context(), bad.scope, bad.key)
				refused("Resume, "+name, err, bad.field)
			}
			refused("400 days and a minute", pause(t.Context(), "tenant", "a", time.Now().Add(maxWindow+time.Minute)), "until")
			refused("the end of time", pause(t.Context(), "tenant", "a", time.Unix(1<<40, 0)), "until")
			refused("no context", pause(nil, "tenant", "a", soon), "ctx")
			_, err := inspect.New(th).Resume(nil, "tenant", "a") //nolint:staticcheck // a nil context is what is tested
			refused("no context", err, "ctx")
			over, cancel := context.WithCancel(t.Context())
			cancel()
			if err := pause(over, "tenant", "a", soon); !errors.Is(err, context.Canceled) {
				t.Errorf("a context that is over: %v", err)
			}
		})
		for _, until := range []time.Time{{}, time.Now().Add(-time.Hour), time.Unix(-1<<40, 0)} {
			ends, err := inspect.New(th).Pause(t.Context(), "tenant", "a", until)
			if state := inForce(t, th, "tenant", "a"); err != nil || time.Until(ends) > time.Second || !state.Paused.IsZero() {
				t.Errorf("until %s: ends %s, %v, state %+v; want no pause", until, ends, err, state)
			}
		}
		if err := pause(t.Context(), "tenant", "a", time.Now().Add(maxWindow-time.Minute)); err != nil {
			t.Errorf("400 days: %v", err)
		}
	})
}

// inForce returns the state of a scope key.
func inForce(t testing.TB, th *throttle.Throttle, scope, key string) inspect.Usage {
	t.Helper()
	state, err := inspect.New(th).Usage(t.Context(), scope, key)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// TestPauseTellsItsEnd: Pause returns its end on Redis' clock, the same that the observer and
// Usage get, for keys of any bytes.
func TestPauseTellsItsEnd(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		observer := new(heard)
		th := newThrottle(t, client, tenantAndGlobal(throttle.PerHour(5), throttle.PerHour(50)),
			&throttle.Options{Observer: observer})
		for _, key := range []string{"acme", "a b", "x:y|z=1,2", "{}\x00\n%", "ü", string(make([]byte, 300))} {
			until := time.Now().Add(time.Hour)
			ends, err := inspect.New(th).Pause(t.Context(), "tenant", key, until)
			if err != nil || ends.Sub(until).Abs() > 5*time.Second {
				t.Fatalf("key %.10q: ends %s, %v, want about %s", key, ends, err, until)
			}
			want := throttle.Pause{Throttle: th.Name(), Scope: "tenant", Key: key, Until: ends}
			if diff := cmp.Diff(want, observer.paused[len(observer.paused)-1]); diff != "" {
				t.Errorf("key %.10q: told %s", key, diff)
			}
			if state := inForce(t, th, "tenant", key); !state.Paused.Equal(ends) {
				t.Errorf("key %.10q: paused until %s, want %s", key, state.Paused, ends)
			}
			r := reserve(t, th, throttle.Job{ID: "of " + key, Weight: 1, Keys: of(key)})
			if r.Outcome != throttle.Booked || !r.Start.Equal(ends) || r.Hold == nil || r.Hold.Key != key ||
				!r.Hold.Paused || r.Hold.Limit != (throttle.Limit{}) {
				t.Errorf("key %.10q: %+v, hold %+v", key, r, r.Hold)
			}
			if done, err := inspect.New(th).Resume(t.Context(), "tenant", key); !done || err != nil {
				t.Errorf("key %.10q: resumed %t, %v", key, done, err)
			}
		}
		if r := reserve(t, th, throttle.Job{ID: "free", Weight: 1, Keys: of("free")}); r.Outcome != throttle.Granted {
			t.Errorf("a key that is not paused: %s", r.Outcome)
		}
	})
}

// TestWaitBehindAPause: a job in Wait starts when the pause ends, or soon after Resume has ended
// the pause.
func TestWaitBehindAPause(t *testing.T) {
	t.Parallel()
	for name, resumed := range map[string]bool{"it ends": false, "it is ended": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, globalScope(throttle.PerMinute(10)), &throttle.Options{Lookahead: time.Second},
				func(t *testing.T, th *throttle.Throttle) {
					began := time.Now()
					if _, err := inspect.New(th).Pause(t.Context(), throttle.Global, "", began.Add(time.Minute)); err != nil {
						t.Fatal(err)
					}
					if resumed {
						timer := time.AfterFunc(20*time.Second,
							func() { _, _ = inspect.New(th).Resume(t.Context(), throttle.Global, "") })
						defer timer.Stop()
					}
					r, err := th.Wait(t.Context(), throttle.Job{ID: "a", Weight: 1})
					took := time.Since(began)
					if err != nil || r.Outcome != throttle.Granted {
						t.Fatalf("%+v, %v", r, err)
					}
					if !resumed && took != time.Minute || resumed && (took < 20*time.Second || took > 21*time.Second) {
						t.Errorf("Wait took %s", took)
					}
				})
		})
	}
}

// TestPausesVanish: a pause that is over leaves nothing: the scope key expires soon after the
// pause if no job comes, and is gone at once if Resume ends the pause.
func TestPausesVanish(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := nearly(t, client, tenantAndGlobal(throttle.PerHour(5), throttle.PerHour(5)), throttle.Options{})
		name := func(key string) string { return "thr:{" + s.throttle.Name() + "}:4:key:tenant:" + key }
		for _, row := range []struct {
			key         string
			until, want time.Duration
		}{
			{"a", time.Minute, time.Minute},
			{"b", 24 * time.Hour, 24 * time.Hour},
			{"b", time.Second, 24 * time.Hour}, // the longer pause goes on
			{"c", time.Second, time.Second},
			{"c", time.Hour, time.Hour}, // the pause is made longer
		} {
			if _, err := s.Pause(dawn, "tenant", row.key, dawn.Add(row.until)); err != nil {
				t.Fatal(err)
			}
			if left := ttl(t, client, name(row.key)); left < row.want-time.Second || left > row.want+row.want/2+5*time.Minute {
				t.Errorf("paused for %s, %s should be paused for %s; its key in Redis lives %s, want little more than the pause",
					row.until, row.key, row.want, left)
			}
		}
		for _, key := range []string{"a", "b", "c"} {
			if done, err := s.Resume(dawn.Add(time.Second), "tenant", key); !done || err != nil {
				t.Errorf("%s resumed: %t, %v", key, done, err)
			}
		}
		if left := keyspace(t, client, s.throttle); len(left) != 0 {
			t.Errorf("after Resume, Redis still has %v", left)
		}
		for _, name := range keyNames(t, client, s.throttle) {
			if ttl(t, client, name) <= 0 {
				t.Errorf("%s does not expire", name)
			}
		}
	})
}

// TestPauseThatIsOverLeavesNothing: jobs that came during a pause leave nothing behind. When the pause is over and
// pulls have looked at the scope key, Redis has only keys that expire.
func TestPauseThatIsOverLeavesNothing(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := nearly(t, client, tenantAndGlobal(throttle.PerMinute(5), throttle.PerMinute(5)), throttle.Options{})
		if _, err := s.Pause(dawn, "tenant", "a", dawn.Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		comes(t, s, 0, throttle.Job{ID: "stays", Keys: of("a")}, throttle.Waiting)
		comes(t, s, 0, throttle.Job{ID: "leaves", Keys: of("a")}, throttle.Waiting)
		if left, err := s.Leave(dawn.Add(time.Second), []string{"leaves"}); err != nil || !left[0] {
			t.Fatalf("left: %v, %v", left, err)
		}
		booked := map[string]time.Duration{}
		for at := time.Duration(0); at <= 2*time.Minute; at += 500 * time.Millisecond {
			pulled, err := s.Pull(dawn.Add(at))
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range pulled.Booked {
				booked[r.Job.ID] = r.Start.Sub(dawn)
				if r.Start.Before(dawn.Add(time.Minute)) {
					t.Errorf("%s is booked for %s, during the pause", r.Job.ID, r.Start.Sub(dawn))
				}
			}
			if slot, is := booked["stays"]; is && at >= slot {
				comes(t, s, at, throttle.Job{ID: "stays", Keys: of("a")}, throttle.Granted)
				break
			}
		}
		if len(booked) != 1 {
			t.Errorf("booked %v, want only the job that stayed", booked)
		}
		for _, name := range keyNames(t, client, s.throttle) {
			if ttl(t, client, name) <= 0 {
				t.Errorf("%s does not expire", name)
			}
		}
	})
}

// TestSettingsSurvive: settings stay in Redis although no process runs for a year, and are gone once they are
// taken back.
func TestSettingsSurvive(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	client := defaultClient(t, server.Addr())
	scopes := tenantAndGlobal(throttle.PerHour(5), throttle.PerHour(5))
	th := newThrottle(t, client, scopes, nil)
	control, key := "thr:{"+th.Name()+"}:4:control", "thr:{"+th.Name()+"}:4:key:tenant:a"
	ctx := t.Context()
	if _, err := inspect.New(th).Pause(ctx, "tenant", "a", time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for _, name := range keyNames(t, client, th) {
		if ttl(t, client, name) <= 0 {
			t.Errorf("%s has no expiry, although nothing but a pause is set", name)
		}
	}
	if err := inspect.New(th).SetLimits(ctx, "tenant", "a", []throttle.Limit{throttle.PerHour(2)}); err != nil {
		t.Fatal(err)
	}
	if err := inspect.New(th).SetMode(ctx, throttle.Global, throttle.Off); err != nil {
		t.Fatal(err)
	}
	if _, err := inspect.New(th).Pause(ctx, "tenant", "b", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{control, key} {
		if left := ttl(t, client, name); left > 0 {
			t.Errorf("with limits and a mode set %s expires after %s", name, left)
		}
	}
	server.FastForward(365 * 24 * time.Hour)
	other := sameAs(t, client, th, scopes, throttle.Options{})
	if state := inForce(t, other, "tenant", "a"); state.SetFor != "key" || state.Limits[0].Limit != throttle.PerHour(2) {
		t.Errorf("after a year: %+v", state)
	}
	if state := inForce(t, other, throttle.Global, ""); state.Mode != throttle.Off || state.SetFor != "" {
		t.Errorf("after a year: %+v", state)
	}
	for _, reset := range []func() error{
		func() error { return inspect.New(other).ResetLimits(ctx, "tenant", "a") },
		func() error { return inspect.New(other).ResetMode(ctx, throttle.Global) },
		func() error { _, err := inspect.New(other).Resume(ctx, "tenant", "a"); return err },
		func() error { _, err := inspect.New(other).Resume(ctx, "tenant", "b"); return err },
	} {
		if err := reset(); err != nil {
			t.Fatal(err)
		}
	}
	if left := keyspace(t, client, th); len(left) != 0 {
		t.Errorf("after all settings were taken back, Redis still has %v", left)
	}
	if state := inForce(t, th, "tenant", "a"); state.SetFor != "" {
		t.Errorf("taken back: %+v", state)
	}
}

// TestForeignControls: if the control key or a scope key has a text that is no setting, every call returns ErrState,
// and nothing is decided or written.
func TestForeignControls(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		set := func(text string) func(ctx context.Context, key string) error {
			return func(ctx context.Context, key string) error { return client.Set(ctx, key, text, time.Hour).Err() }
		}
		hash := func(ctx context.Context, key string) error { return client.HSet(ctx, key, "tenant", "5/1h").Err() }
		for name, row := range map[string]struct {
			end string
			put func(ctx context.Context, key string) error
		}{
			"another type":              {"control", hash},
			"text":                      {"control", set("x")},
			"nothing":                   {"control", set("")},
			"no mode of all":            {"control", set(";tenant=e:-;")},
			"a bad mode of all":         {"control", set("x;")},
			"a key of another type":     {"key:tenant:a", hash},
			"a key of text":             {"key:tenant:a", set("soon")},
			"a key's bad pause":         {"key:tenant:a", set("0 0 0 soon -\n")},
			"a key's limits have blank": {"key:tenant:a", set("0 0 0 0 5/w3600000000/1, 6/w60000000/1\n")},
		} {
			t.Run(name, func(t *testing.T) {
				th := newThrottle(t, client, tenantAndGlobal(throttle.PerHour(5), throttle.PerHour(5)), nil)
				if err := row.put(t.Context(), "thr:{"+th.Name()+"}:4:"+row.end); err != nil {
					t.Fatal(err)
				}
				unchanged(t, client, th, func() {
					job := throttle.Job{ID: "a", Weight: 1, Keys: of("a")}
					_, reserved := th.Reserve(t.Context(), job)
					_, peeked := th.Peek(t.Context(), job)
					_, used := inspect.New(th).Usage(t.Context(), "tenant", "a")
					for call, err := range map[string]error{"Reserve": reserved, "Peek": peeked, "Usage": used} {
						if !errors.Is(err, throttle.ErrState) {
							t.Errorf("%s: %v, want ErrState", call, err)
						}
					}
				})
			})
		}
	})
}
