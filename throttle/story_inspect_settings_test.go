package throttle_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestSettingsAreByWhoSetThem: Settings says what is in force, by whom, why and until when, however
// many changes were made since, and by whom.
func TestSettingsAreByWhoSetThem(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	now := time.Now().Truncate(time.Second)
	m.SetTime(now)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	th := newThrottle(t, client, tenantAndGlobal(throttle.PerMinute(10), throttle.PerMinute(100)), nil)
	ctx, five := t.Context(), []throttle.Limit{throttle.PerMinute(5)}
	if _, err := inspect.New(th).Pause(ctx, "tenant", "acme", time.Now().Add(time.Hour), inspect.By("ann"),
		inspect.Why("a | strange; 100% =reason: é")); err != nil {
		t.Fatal(err)
	}
	m.SetTime(now.Add(time.Minute))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(inspect.New(th).SetLimits(ctx, "tenant", "acme", five, inspect.By("bob"),
		inspect.Until(time.Now().Add(4*time.Hour))))
	must(inspect.New(th).SetLimits(ctx, "tenant", "", five, inspect.By("cid"), inspect.Why("all of them")))
	must(inspect.New(th).SetMode(ctx, "tenant", throttle.Shadow, inspect.By("dan"),
		inspect.Until(time.Now().Add(time.Hour))))
	must(inspect.New(th).SetMode(ctx, "", throttle.Off, inspect.By("eve")))
	for i := range 210 {
		must(inspect.New(th).SetLimits(ctx, "tenant", "other", []throttle.Limit{throttle.PerMinute(int64(i + 1))}))
	}
	must(inspect.New(th).ResetLimits(ctx, "tenant", "other"))
	settings, err := inspect.New(th).Settings(ctx)
	must(err)
	var told []string
	for _, s := range settings {
		person, process, _ := strings.Cut(s.By, ", ")
		if !strings.Contains(process, "process ") {
			t.Errorf("set by %q, want the process too", s.By)
		}
		ends := ""
		if !s.Until.IsZero() {
			ends = s.Until.Sub(now).Round(time.Minute).String()
		}
		told = append(told, fmt.Sprintf("%s %s %s %v%s %s %s %s %q", s.What, s.Scope, s.Key, s.Limits, s.Mode, ends,
			s.At.Sub(now), person, s.Why))
	}
	want := []string{
		`mode   []off  1m0s eve ""`, `limits tenant  [5/1m]  1m0s cid "all of them"`,
		`mode tenant  []shadow 1h1m0s 1m0s dan ""`,
		`pause tenant acme [] 1h0m0s 0s ann "a | strange; 100% =reason: é"`, `limits tenant acme [5/1m] 4h1m0s 1m0s bob ""`,
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

// TestTermsAreRefused: a text that is too long, or an end that is past, is refused before anything is
// written.
func TestTermsAreRefused(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	th := newThrottle(t, client, tenantAndGlobal(throttle.PerMinute(10), throttle.PerMinute(100)), nil)
	for field, option := range map[string]inspect.SetOption{
		"Why": inspect.Why(strings.Repeat("y", 201)), "By": inspect.By(strings.Repeat("b", 101)),
		"Until": inspect.Until(time.Now().Add(-time.Second)),
	} {
		for what, err := range map[string]error{
			"limits": inspect.New(th).SetLimits(t.Context(), "tenant", "acme", []throttle.Limit{throttle.PerMinute(5)}, option),
			"check":  inspect.New(th).CheckLimits("tenant", []throttle.Limit{throttle.PerMinute(5)}, option),
			"mode":   inspect.New(th).SetMode(t.Context(), "", throttle.Off, option),
			"reset":  inspect.New(th).ResetLimits(t.Context(), "tenant", "acme", option),
		} {
			var wrong *throttle.OptionError
			if !errors.As(err, &wrong) || wrong.Field != field {
				t.Errorf("%s with %s: %v", what, field, err)
			}
		}
	}
	if err := inspect.New(th).CheckLimits("tenant", nil); !isOptionError(err, "limits") {
		t.Errorf("no limits: %v, want an *OptionError", err)
	}
	if err := inspect.New(th).CheckLimits("tenant", []throttle.Limit{throttle.PerMinute(5)}, inspect.Why("y"),
		inspect.Until(time.Now().Add(time.Hour))); err != nil {
		t.Error(err)
	}
	if keys := m.Keys(); len(keys) > 0 {
		t.Errorf("written: %v", keys)
	}
}

// TestSetLimitsAreShownAsEntered: a limit that was set without a precision or a lease, and has taken it from
// the configured limit, is shown without it; and what is shown is shown again when it is entered.
func TestSetLimitsAreShownAsEntered(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		for i, row := range []struct{ configured, entered, shown string }{
			{"50/1m", "182/1m", "182/1m"},
			{"5000/1m@60ms", "182/1m", "182/1m"},
			{"5000/1m@60ms", "182/1m@60ms", "182/1m"},
			{"5000/1m@60ms", "5000/1m", "5000/1m"},
			{"5000/1m@60ms", "6000/1m@60ms", "6000/1m@60ms"}, // 6000/1m would have 600 ms
			{"5000/1m", "50/1m", "50/1m"},
			{"5000/1m", "50/1m@1us", "50/1m"},   // the default
			{"50/1m", "182/1m@600ms", "182/1m"}, // the default
			{"50/1m", "182/1m@300ms", "182/1m@300ms"},
			{"5/running@10m", "3/running", "3/running"},
			{"5/running@10m", "3/running@5m", "3/running@5m"},
			{"5000/1m@60ms", "9/1s@10ms", "9/1s@10ms"},
		} {
			ctx, scope := t.Context(), "tenant"
			own, err := throttle.ParseLimits(row.configured)
			if err != nil {
				t.Fatal(err)
			}
			th := published(t, client, fmt.Sprintf("entered-%d-%s", i, nameOf(t)),
				[]throttle.Scope{{Name: scope, Limits: own}}, throttle.Options{})
			shown := func(entered string) (usage, setting string) {
				limits, err := throttle.ParseLimits(entered)
				if err != nil {
					t.Fatal(err)
				}
				if err := inspect.New(th).SetLimits(ctx, scope, "a", limits); err != nil {
					t.Fatalf("%s: %v", entered, err)
				}
				u, err := inspect.New(th).Usage(ctx, scope, "a")
				if err != nil {
					t.Fatal(err)
				}
				settings, err := inspect.New(th).SettingsOf(ctx, scope, "a")
				if err != nil || len(settings) != 1 || len(settings[0].Limits) != 1 || len(u.Limits) == 0 {
					t.Fatalf("%+v, %v, %+v", settings, err, u)
				}
				return u.Limits[0].Limit.String(), settings[0].Limits[0].String()
			}
			if usage, setting := shown(row.entered); usage != row.shown || setting != row.shown {
				t.Errorf("%s over %s: usage has %s, the setting %s; want %s", row.entered, row.configured, usage, setting,
					row.shown)
			}
			if again, _ := shown(row.shown); again != row.shown {
				t.Errorf("%s over %s: shown as %s, and entered again as %s", row.entered, row.configured, row.shown, again)
			}
		}
	})
}

// TestSettings: Settings returns the settings of run time with their scope keys and authors.
func TestSettings(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		ctx := t.Context()
		th := published(t, client, "settings-"+nameOf(t),
			tenantAndGlobal(throttle.PerMinute(2), throttle.PerMinute(50)), throttle.Options{})
		hostile := "a b:c\n{}*\x00é"
		end, err := inspect.New(th).Pause(ctx, "tenant", hostile, time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		long := []throttle.Limit{}
		for i := range 12 { // more than is read at first
			long = append(long, throttle.Per(int64(i+1), time.Duration(i+1)*time.Second))
		}
		for _, err := range []error{
			inspect.New(th).SetLimits(ctx, "tenant", "acme", long),
			inspect.New(th).SetLimits(ctx, "tenant", "", []throttle.Limit{throttle.PerMinute(7)}),
			inspect.New(th).SetMode(ctx, "", throttle.Shadow), inspect.New(th).SetMode(ctx, "tenant", throttle.Off),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		want := []inspect.Setting{
			{What: "mode", Mode: "shadow"}, {Scope: "tenant", What: "limits", Limits: []throttle.Limit{throttle.PerMinute(7)}},
			{Scope: "tenant", What: "mode", Mode: "off"},
			{Scope: "tenant", Key: hostile, What: "pause", Until: end},
			{Scope: "tenant", Key: "acme", What: "limits", Limits: long},
		}
		got, err := inspect.New(th).Settings(ctx)
		noted := cmpopts.IgnoreFields(inspect.Setting{}, "At", "By", "Why")
		if diff := cmp.Diff(want, got, noted); err != nil || diff != "" {
			t.Errorf("%v, settings (-want +got):\n%s", err, diff)
		}
		for _, s := range want {
			of := slices.DeleteFunc(slices.Clone(want),
				func(other inspect.Setting) bool { return other.Scope != s.Scope || other.Key != s.Key })
			if got, err := inspect.New(th).SettingsOf(ctx, s.Scope, s.Key); err != nil || !cmp.Equal(of, got, noted) {
				t.Errorf("of %s %q: %+v, %v", s.Scope, s.Key, got, err)
			}
		}
		if _, err := inspect.New(th).Resume(ctx, "tenant", hostile); err != nil {
			t.Fatal(err)
		}
		if got, err := inspect.New(th).SettingsOf(ctx, "tenant", hostile); err != nil || len(got) != 0 {
			t.Errorf("resumed: %+v, %v", got, err)
		}
		changes, err := inspect.New(th).Changes(ctx)
		var told []string
		for _, c := range changes {
			told = append(told, fmt.Sprintf("%s %s %q: %q %q", c.What, c.Scope, c.Key, c.Before, c.After))
		}
		until := end.UTC().Format(time.RFC3339)
		wanted := []string{
			fmt.Sprintf("pause tenant %q: %q %q", hostile, until, ""), `mode tenant "": "" "off"`,
			`mode  "": "" "shadow"`, `limits tenant "": "" "7/1m"`,
			`limits tenant "acme": "" "1/1s, 2/2s, 3/3s, 4/4s, 5/5s, 6/6s, 7/7s, 8/8s, 9/9s, 10/10s, 11/11s, 12/12s"`,
			fmt.Sprintf("pause tenant %q: %q %q", hostile, "", until),
		}
		if diff := cmp.Diff(wanted, told); err != nil || diff != "" || changes[0].By == "" || changes[0].At.IsZero() {
			t.Errorf("%v, changes (-want +got):\n%s", err, diff)
		}
	})
}

// TestAnotherReasonIsAChange: limits and modes that are set again with another reason or another end are a change; with
// the same they are none. A reason for a pause that is shorter than the one in force is not kept, and so no change.
func TestAnotherReasonIsAChange(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := newThrottle(t, client, tenantAndGlobal(throttle.PerHour(5), throttle.PerHour(50)), nil)
		ctx, in := t.Context(), inspect.New(th)
		pause := func(length time.Duration) func(...inspect.SetOption) error {
			return func(options ...inspect.SetOption) error {
				_, err := in.Pause(ctx, "tenant", "acme", time.Now().Add(length), options...)
				return err
			}
		}
		limits := func(key string) func(...inspect.SetOption) error {
			return func(options ...inspect.SetOption) error {
				return in.SetLimits(ctx, "tenant", key, []throttle.Limit{throttle.PerHour(9)}, options...)
			}
		}
		mode := func(options ...inspect.SetOption) error {
			return in.SetMode(ctx, "tenant", throttle.Shadow, options...)
		}
		reset := func(options ...inspect.SetOption) error { return in.ResetLimits(ctx, "tenant", "acme", options...) }
		end := inspect.Until(time.Now().Add(time.Hour))
		for i, row := range []struct {
			do      func(...inspect.SetOption) error
			options []inspect.SetOption
			told    string // the change that is recorded; empty for none
		}{
			{reset, []inspect.SetOption{inspect.Why("tidy")}, ""},
			{limits("acme"), []inspect.SetOption{inspect.Why("spring")}, `limits: "" "9/1h" "spring" false`},
			{limits("acme"), []inspect.SetOption{inspect.Why("spring")}, ""},
			{limits("acme"), []inspect.SetOption{inspect.Why("summer")}, `limits: "9/1h" "9/1h" "summer" false`},
			{limits("acme"), []inspect.SetOption{inspect.Why("summer"), end}, `limits: "9/1h" "9/1h" "summer" true`},
			{limits("acme"), []inspect.SetOption{inspect.Why("summer"), end}, ""}, // it ends a moment earlier or later
			{limits("acme"), nil, `limits: "9/1h" "9/1h" "" false`},
			{limits(""), []inspect.SetOption{inspect.Why("spring")}, `limits: "" "9/1h" "spring" false`},
			{limits(""), []inspect.SetOption{inspect.Why("summer")}, `limits: "9/1h" "9/1h" "summer" false`},
			{mode, nil, `mode: "" "shadow" "" false`},
			{mode, []inspect.SetOption{inspect.Why("a look")}, `mode: "shadow" "shadow" "a look" false`},
			{mode, []inspect.SetOption{inspect.Why("a look")}, ""},
			{pause(2 * time.Hour), nil, "pause"},
			{pause(time.Hour), []inspect.SetOption{inspect.Why("shorter")}, ""},
		} {
			before, err := in.Changes(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := row.do(row.options...); err != nil {
				t.Fatal(err)
			}
			after, err := in.Changes(ctx)
			if err != nil {
				t.Fatal(err)
			}
			told := ""
			if len(after) > len(before) {
				c := after[0]
				if told = "pause"; c.What != told {
					told = fmt.Sprintf("%s: %q %q %q %t", c.What, c.Before, c.After, c.Why, !c.Until.IsZero())
				}
			}
			if told != row.told {
				t.Errorf("%d: recorded %q, want %q", i, told, row.told)
			}
		}
	})
}

// TestUpstreamsPushOutNobody: 300 pauses that upstreams asked for leave the change that a person made.
func TestUpstreamsPushOutNobody(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := newThrottle(t, client, threeScopes, nil)
		ctx := t.Context()
		if err := inspect.New(th).SetLimits(ctx, "tenant", "acme", []throttle.Limit{throttle.PerHour(5)},
			inspect.By("ann"), inspect.Why("spring")); err != nil {
			t.Fatal(err)
		}
		for i := range 300 {
			_, err := inspect.New(th).Pause(ctx, "domain", fmt.Sprint(i), time.Now().Add(time.Hour), inspect.ForUpstream())
			if err != nil {
				t.Fatal(err)
			}
		}
		changes, err := inspect.New(th).Changes(ctx)
		if err != nil || len(changes) != 201 || changes[0].Key != "299" {
			t.Fatalf("%d changes, the last of %q, %v", len(changes), changes[0].Key, err)
		}
		if first := changes[200]; first.Key != "acme" || first.Why != "spring" || !strings.HasPrefix(first.By, "ann, ") {
			t.Errorf("the first change is %+v", first)
		}
	})
}
