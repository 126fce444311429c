package throttle_test

import (
	"crypto/rand"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// nameOf is a throttle's name of a test's own.
func nameOf(*testing.T) string { return rand.Text() }

// TestSettings: what is set at run time is told with its scope keys, and who changed it.
func TestSettings(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		ctx := t.Context()
		th := published(t, client, "settings-"+nameOf(t),
			tenantAndGlobal(throttle.PerMinute(2), throttle.PerMinute(50)), throttle.Options{})
		hostile := "a b:c\n{}*\x00é"
		end, err := th.Pause(ctx, "tenant", hostile, time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		long := []throttle.Limit{}
		for i := range 12 { // more than is read at first
			long = append(long, throttle.Per(int64(i+1), time.Duration(i+1)*time.Second))
		}
		for _, err := range []error{
			th.Inspector().SetLimits(ctx, "tenant", "acme", long),
			th.Inspector().SetLimits(ctx, "tenant", "", []throttle.Limit{throttle.PerMinute(7)}),
			th.Inspector().SetMode(ctx, "", throttle.Shadow), th.Inspector().SetMode(ctx, "tenant", throttle.Off),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		want := []throttle.Setting{
			{What: "mode", Mode: "shadow"}, {Scope: "tenant", What: "limits", Limits: []throttle.Limit{throttle.PerMinute(7)}},
			{Scope: "tenant", What: "mode", Mode: "off"},
			{Scope: "tenant", Key: hostile, What: "pause", Until: end},
			{Scope: "tenant", Key: "acme", What: "limits", Limits: long},
		}
		got, err := th.Inspector().Settings(ctx)
		noted := cmpopts.IgnoreFields(throttle.Setting{}, "At", "By", "Why")
		if diff := cmp.Diff(want, got, noted); err != nil || diff != "" {
			t.Errorf("%v, settings (-want +got):\n%s", err, diff)
		}
		for _, s := range want {
			of := slices.DeleteFunc(slices.Clone(want),
				func(other throttle.Setting) bool { return other.Scope != s.Scope || other.Key != s.Key })
			if got, err := th.Inspector().SettingsOf(ctx, s.Scope, s.Key); err != nil || !cmp.Equal(of, got, noted) {
				t.Errorf("of %s %q: %+v, %v", s.Scope, s.Key, got, err)
			}
		}
		if _, err := th.Resume(ctx, "tenant", hostile); err != nil {
			t.Fatal(err)
		}
		if got, err := th.Inspector().SettingsOf(ctx, "tenant", hostile); err != nil || len(got) != 0 {
			t.Errorf("resumed: %+v, %v", got, err)
		}
		changes, err := th.Inspector().Changes(ctx)
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

// TestLanesAndJobsByID: lanes are told with their flows, counts and what they wait for, and
// jobs are found by their IDs alone, wherever they are.
func TestLanesAndJobsByID(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		ctx := t.Context()
		th := published(t, client, "lanes-"+nameOf(t), tenantAndGlobal(throttle.PerHour(2), throttle.PerHour(1000)),
			throttle.Options{Lookahead: 2 * time.Second})
		for i := range 5 {
			for _, tenant := range []string{"acme", "a b"} {
				if _, err := th.Reserve(ctx, throttle.Job{ID: fmt.Sprint(tenant, i), Weight: 1, Keys: of(tenant)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		lanes, err := th.Inspector().Lanes(ctx)
		if err != nil || len(lanes) != 2 {
			t.Fatalf("%+v, %v", lanes, err)
		}
		for i, flow := range []string{"acme", "a b"} {
			l := lanes[i]
			if l.Flow != flow || l.Jobs != 3 || l.Scope != "tenant" || l.Key != flow || l.Since.IsZero() ||
				!cmp.Equal(l.Keys, of(flow)) {
				t.Errorf("lane %d: %+v", i, l)
			}
		}
		e, err := th.Inspector().ExplainID(ctx, "a b4")
		if err != nil || e.Before != 2 || e.Waiting != 3 || e.Blocked == nil || e.Blocked.Key != "a b" ||
			e.Arrived.IsZero() || e.Guessed {
			t.Errorf("in line: %+v, %v", e, err)
		}
		whole, err := th.Inspector().Explain(ctx, throttle.Job{ID: "a b4", Weight: 1, Keys: of("a b")})
		if err != nil || whole.Expected.Sub(e.Expected).Abs() > time.Second {
			t.Errorf("by its ID it is expected at %s, else at %s (%v)", e.Expected, whole.Expected, err)
		}
		if e, err = th.Inspector().ExplainID(ctx, "acme0"); err != nil || e.Waiting != 0 || !e.Slot.IsZero() ||
			!e.Arrived.IsZero() {
			t.Errorf("started: %+v, %v", e, err)
		}
		planned, err := th.Reserve(ctx, throttle.Job{ID: "planned", Weight: 1, Keys: of("c"), Plan: true})
		if e, err2 := th.Inspector().ExplainID(ctx, "planned"); err != nil || err2 != nil ||
			!e.Slot.Equal(planned.Start) || len(e.Usage) != 2 {
			t.Errorf("planned: %+v, %v, %v", e, err, err2)
		}
		all, err := th.Inspector().UsageAll(ctx, "tenant")
		if err != nil || len(all) != 3 || all[1].Key != "acme" || all[1].Limits[0].Used != 2 {
			t.Errorf("usage of all: %+v, %v", all, err)
		}
	})
}
