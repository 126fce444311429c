package throttle_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// badScopeKeys are those that no call about a scope key takes, and the field that the
// error names.
var badScopeKeys = map[string]struct{ scope, key, field string }{
	"an unknown scope":         {"host", "x", "scope"},
	"no scope":                 {"", "x", "scope"},
	"no key of a keyed scope":  {"tenant", "", "key"},
	"a key of the global one":  {throttle.Global, "x", "key"},
	"a scope in another case":  {"Tenant", "x", "scope"},
	"a scope with a separator": {"tenant:acme", "x", "scope"},
}

// TestPauseRefuses: a bad scope key or time gets a typed error that names what is
// wrong, and nothing is written.
func TestPauseRefuses(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := newThrottle(t, client, tenantAndGlobal(throttle.PerHour(5), throttle.PerHour(5)), nil)
		pause := func(ctx context.Context, scope, key string, until time.Time) error {
			_, err := th.Pause(ctx, scope, key, until)
			return err
		}
		refused := func(name string, err error, field string) {
			t.Helper()
			var wrong *throttle.InvalidJobError
			if !errors.As(err, &wrong) || wrong.Field != field || wrong.Reason == "" {
				t.Errorf("%s: got %v, want an *InvalidJobError of %s", name, err, field)
			}
		}
		unchanged(t, client, th, func() {
			soon := time.Now().Add(time.Minute)
			for name, bad := range badScopeKeys {
				refused("Pause, "+name, pause(t.Context(), bad.scope, bad.key, soon), bad.field)
				_, err := th.Resume(t.Context(), bad.scope, bad.key)
				refused("Resume, "+name, err, bad.field)
			}
			refused("400 days and a minute", pause(t.Context(), "tenant", "a", time.Now().Add(throttle.MaxWindow+time.Minute)), "until")
			refused("the end of time", pause(t.Context(), "tenant", "a", time.Unix(1<<40, 0)), "until")
			refused("no context", pause(nil, "tenant", "a", soon), "ctx")
			_, err := th.Resume(nil, "tenant", "a") //nolint:staticcheck // a nil context is what is tested
			refused("no context", err, "ctx")
			over, cancel := context.WithCancel(t.Context())
			cancel()
			if err := pause(over, "tenant", "a", soon); !errors.Is(err, context.Canceled) {
				t.Errorf("a context that is over: %v", err)
			}
		})
		for _, until := range []time.Time{{}, time.Now().Add(-time.Hour), time.Unix(-1<<40, 0)} {
			ends, err := th.Pause(t.Context(), "tenant", "a", until)
			if state := inForce(t, th, "tenant", "a"); err != nil || time.Until(ends) > time.Second || !state.Paused.IsZero() {
				t.Errorf("until %s: ends %s, %v, state %+v; want no pause", until, ends, err, state)
			}
		}
		if err := pause(t.Context(), "tenant", "a", time.Now().Add(throttle.MaxWindow-time.Minute)); err != nil {
			t.Errorf("400 days: %v", err)
		}
	})
}

func inForce(t testing.TB, th *throttle.Throttle, scope, key string) throttle.InForce {
	t.Helper()
	state, err := th.Limits(t.Context(), scope, key)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// TestPauseTellsItsEnd: by Redis' clock, as the observer is told and Limits reads, for
// keys of any bytes.
func TestPauseTellsItsEnd(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		observer := new(heard)
		th := newThrottle(t, client, tenantAndGlobal(throttle.PerHour(5), throttle.PerHour(50)), &throttle.Options{Observer: observer})
		for _, key := range []string{"acme", "a b", "x:y|z=1,2", "{}\x00\n%", "ü", string(make([]byte, 300))} {
			until := time.Now().Add(time.Hour)
			ends, err := th.Pause(t.Context(), "tenant", key, until)
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
			if r.Outcome != throttle.Booked || !r.Start.Equal(ends) || r.Hold == nil || r.Hold.Key != key || !r.Hold.Paused || r.Hold.Limit != (throttle.Limit{}) {
				t.Errorf("key %.10q: %+v, hold %+v", key, r, r.Hold)
			}
			if done, err := th.Resume(t.Context(), "tenant", key); !done || err != nil {
				t.Errorf("key %.10q: resumed %t, %v", key, done, err)
			}
		}
		if r := reserve(t, th, throttle.Job{ID: "free", Weight: 1, Keys: of("free")}); r.Outcome != throttle.Granted {
			t.Errorf("a key that is not paused: %s", r.Outcome)
		}
	})
}

// TestWaitBehindAPause: who waits in place starts when the pause ends, or soon after
// it is ended.
func TestWaitBehindAPause(t *testing.T) {
	t.Parallel()
	for name, resumed := range map[string]bool{"it ends": false, "it is ended": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, globalScope(throttle.PerMinute(10)), &throttle.Options{Lookahead: time.Second}, func(t *testing.T, th *throttle.Throttle) {
				began := time.Now()
				if _, err := th.Pause(t.Context(), throttle.Global, "", began.Add(time.Minute)); err != nil {
					t.Fatal(err)
				}
				if resumed {
					timer := time.AfterFunc(20*time.Second, func() { _, _ = th.Resume(t.Context(), throttle.Global, "") })
					defer timer.Stop()
				}
				r, err := th.Wait(t.Context(), throttle.Job{ID: "a", Weight: 1})
				took := time.Since(began)
				if err != nil || r.Outcome != throttle.Granted {
					t.Fatalf("%+v, %v", r, err)
				}
				if !resumed && took != time.Minute || resumed && (took < 20*time.Second || took > 21*time.Second) {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

// TestPausesVanish: a pause that is over is swept away, and with the last the key;
// where nobody sweeps, the key expires.
func TestPausesVanish(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := nearly(t, client, tenantAndGlobal(throttle.PerHour(5), throttle.PerHour(5)), throttle.Options{})
		control := "thr:{" + s.throttle.Name() + "}:3:control"
		fields := func() map[string]string {
			all, err := client.HGetAll(t.Context(), control).Result()
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		pause := func(key string, until time.Duration) {
			if _, err := s.Pause(dawn, "tenant", key, dawn.Add(until)); err != nil {
				t.Fatal(err)
			}
		}
		pause("a", time.Minute)
		if left := ttl(t, client, control); left < 24*time.Hour || left > 24*time.Hour+time.Minute {
			t.Errorf("with a pause of a minute the key lives %s, want a day and a minute", left)
		}
		pause("b", 24*time.Hour)
		if left := ttl(t, client, control); left < 48*time.Hour-time.Minute || left > 48*time.Hour {
			t.Errorf("with a pause of a day the key lives %s, want two days", left)
		}
		pause("c", time.Second)
		if left := ttl(t, client, control); left < 48*time.Hour-time.Minute {
			t.Errorf("after a short pause the key lives %s, want two days", left)
		}
		for _, at := range []struct {
			after time.Duration
			want  int
		}{{0, 3}, {time.Second - 1, 3}, {time.Second, 2}, {time.Minute, 1}, {time.Hour, 1}, {24 * time.Hour, 0}} {
			if _, err := s.Sweep(dawn.Add(at.after)); err != nil {
				t.Fatal(err)
			}
			if got := fields(); len(got) != at.want {
				t.Errorf("swept after %s: %v, want %d pauses", at.after, got, at.want)
			}
		}
		if names := keyNames(t, client, s.throttle); len(names) != 0 {
			t.Errorf("there is still %v", names)
		}
	})
}

// TestSettingsSurvive: what was set lives on though nothing runs for a year, and goes
// when it is taken back.
func TestSettingsSurvive(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	client := defaultClient(t, server.Addr())
	scopes := tenantAndGlobal(throttle.PerHour(5), throttle.PerHour(5))
	th := newThrottle(t, client, scopes, nil)
	control := "thr:{" + th.Name() + "}:3:control"
	ctx := t.Context()
	if _, err := th.Pause(ctx, "tenant", "a", time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if ttl(t, client, control) <= 0 {
		t.Error("with a pause only the key has no expiry")
	}
	if err := th.SetLimits(ctx, "tenant", "a", []throttle.Limit{throttle.PerHour(2)}); err != nil {
		t.Fatal(err)
	}
	if err := th.SetMode(ctx, throttle.Global, throttle.Off); err != nil {
		t.Fatal(err)
	}
	if _, err := th.Pause(ctx, "tenant", "b", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if left := ttl(t, client, control); left > 0 {
		t.Errorf("with limits set the key expires after %s", left)
	}
	server.FastForward(365 * 24 * time.Hour)
	other := sameAs(t, client, th, scopes, throttle.Options{})
	if state := inForce(t, other, "tenant", "a"); state.Origin != throttle.FromKey || state.Limits[0] != throttle.PerHour(2) {
		t.Errorf("after a year: %+v", state)
	}
	if state := inForce(t, other, throttle.Global, ""); state.Mode != throttle.Off || state.Origin != throttle.FromConfiguration {
		t.Errorf("after a year: %+v", state)
	}
	for _, reset := range []func() error{
		func() error { return other.ResetLimits(ctx, "tenant", "a") },
		func() error { return other.ResetMode(ctx, throttle.Global) },
		func() error { _, err := other.Resume(ctx, "tenant", "a"); return err },
		func() error { _, err := other.Resume(ctx, "tenant", "b"); return err },
	} {
		if err := reset(); err != nil {
			t.Fatal(err)
		}
	}
	if server.Exists(control) {
		t.Error("taken back, the key is still there")
	}
	if state := inForce(t, th, "tenant", "a"); state.Origin != throttle.FromConfiguration {
		t.Errorf("taken back: %+v", state)
	}
}

// TestForeignControls: what is no setting under the control key is told as such, and
// nothing is decided or written.
func TestForeignControls(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		for name, put := range map[string]func(key string) error{
			"another type":  func(key string) error { return client.Set(t.Context(), key, "x", time.Hour).Err() },
			"no limits":     func(key string) error { return client.HSet(t.Context(), key, "%tenant:a", "many").Err() },
			"a bad limit":   func(key string) error { return client.HSet(t.Context(), key, "%tenant:", "5/1h,-1/1s").Err() },
			"no mode":       func(key string) error { return client.HSet(t.Context(), key, "~", "x").Err() },
			"a long mode":   func(key string) error { return client.HSet(t.Context(), key, "~tenant", "eso").Err() },
			"a bad pause":   func(key string) error { return client.HSet(t.Context(), key, "!tenant:a", "soon").Err() },
			"blanks":        func(key string) error { return client.HSet(t.Context(), key, "%tenant:a", "5/1h, 6/1m").Err() },
			"a new line":    func(key string) error { return client.HSet(t.Context(), key, "%tenant:a", "5/1h\n6/1m").Err() },
			"an empty mode": func(key string) error { return client.HSet(t.Context(), key, "~global", "").Err() },
		} {
			t.Run(name, func(t *testing.T) {
				th := newThrottle(t, client, tenantAndGlobal(throttle.PerHour(5), throttle.PerHour(5)), nil)
				control := "thr:{" + th.Name() + "}:3:control"
				if err := put(control); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { client.Del(context.Background(), control) })
				unchanged(t, client, th, func() {
					job := throttle.Job{ID: "a", Weight: 1, Keys: of("a")}
					_, reserved := th.Reserve(t.Context(), job)
					_, peeked := th.Peek(t.Context(), job)
					_, used := th.Usage(t.Context(), "tenant", "a")
					if name == "an empty mode" {
						_, used = th.Usage(t.Context(), throttle.Global, "")
					}
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
