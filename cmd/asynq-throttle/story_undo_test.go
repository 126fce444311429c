package main

import (
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestUndoOfHostileKeys: a key that looks like a flag is none in the command that undoes a change: it concerns that key
// alone.
func TestUndoOfHostileKeys(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := world(t, client)
		in, addr := inspect.New(th), client.Options().Addr
		ofAll := []throttle.Limit{throttle.PerHour(7)}
		if err := in.SetLimits(t.Context(), "tenant", "", ofAll); err != nil {
			t.Fatal(err)
		}
		undone := func(args ...string) {
			t.Helper()
			r := asked(t, addr, args...)
			_, command, has := strings.Cut(strings.TrimSpace(r.out), "undo: asynq-throttle ")
			if r.status != 0 || !has {
				t.Errorf("%q: exit status %d, %s%s", args, r.status, r.out, r.errs)
				return
			}
			words := strings.Fields(strings.NewReplacer("'", "").Replace(command))
			if r := asked(t, addr, words...); r.status != 0 {
				t.Errorf("%q: exit status %d, %s%s", words, r.status, r.out, r.errs)
			}
		}
		for _, key := range []string{"-y", "--yes", "--why=none"} {
			undone("limits", "set", "smtp", "tenant", "--", key, "5/1h")
			undone("pause", "smtp", "tenant", "--for", "1h", "--", key)
			if r := asked(t, addr, "limits", "set", "smtp", "tenant", "--why", "spring", "--for", "2h", "--", key,
				"6/1h"); r.status != 0 {
				t.Fatal(r.out, r.errs)
			}
			undone("limits", "set", "smtp", "tenant", "--", key, "5/1h")
			set, err := in.SettingsOf(t.Context(), "tenant", key)
			if err != nil || len(set) != 1 || set[0].Limits[0] != throttle.PerHour(6) || set[0].Why != "spring" {
				t.Errorf("%s: %+v, %v; want 6/1h", key, set, err)
			}
		}
		if set, err := in.SettingsOf(t.Context(), "tenant", ""); err != nil || len(set) != 1 ||
			set[0].Limits[0] != ofAll[0] {
			t.Errorf("of all keys: %+v, %v; want %s", set, err, ofAll[0])
		}
	})
}

// TestAnotherReasonIsAChange: the same limits or mode with another reason or another end are a change, which is shown
// and can be undone. With the same reason and end nothing has changed.
func TestAnotherReasonIsAChange(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		world(t, client)
		for _, row := range []struct{ line, text string }{
			{"limits set smtp tenant acme 6/1h", "limits of tenant acme: 6/1h; before: not set\n"},
			{"limits set smtp tenant acme 6/1h --why spring", "limits of tenant acme: 6/1h, why: spring; before: 6/1h\n" +
				"undo: asynq-throttle limits set smtp tenant acme 6/1h\n"},
			{"limits set smtp tenant acme 6/1h --why spring",
				"limits of tenant acme: nothing has changed, it is 6/1h, why: spring\n"},
			{"limits set smtp tenant acme 6/1h --why autumn",
				"limits of tenant acme: 6/1h, why: autumn; before: 6/1h, why: spring\n" +
					"undo: asynq-throttle limits set --why spring smtp tenant acme 6/1h\n"},
			{"limits get smtp tenant acme", ": autumn\n"},
			{"limits set smtp tenant acme 6/1h --why autumn --for 4h", "Z, why: autumn; before: 6/1h, why: autumn\n"},
			{"limits set smtp tenant acme 6/1h --why autumn", "limits of tenant acme: 6/1h, why: autumn; before: 6/1h until "},
			{"mode smtp tenant shadow --why try", "mode of all keys of tenant: shadow, why: try; before: not set\n"},
			{"mode smtp tenant shadow --why trial", "shadow, why: trial; before: shadow, why: try\n"},
			{"mode smtp tenant shadow --why trial", "nothing has changed, it is shadow, why: trial\n"},
			{"pause smtp domain web.example --for 1h --why bounces", "Z, why: bounces; before: not paused\n"},
			{"pause smtp domain web.example --for 1m --why more", "Z, why: bounces\n"},
			{"pause smtp domain web.example --for 2h --why more", "Z, why: more; before: until "},
			{"resume smtp domain web.example", "not paused; before: until "},
			{"limits set smtp tenant acme 6/1h --json --why winter", `"why_before": "autumn"`},
		} {
			wants(t, client, row.line, row.text)
		}
	})
}

// TestUndoIsExact: the command that undoes a change names the whole end of the setting before, and gives the same end
// back where the clock of Redis differs from this machine's.
func TestUndoIsExact(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	server.SetTime(time.Now().Add(48 * time.Hour).Truncate(time.Second).Add(123456 * time.Microsecond))
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	in := inspect.New(opened(t, client, scopes, 1))
	for _, row := range []struct{ what, set, another string }{
		{"limits", "limits set smtp tenant a 5/1h --for 1h", "limits set smtp tenant a 6/1h"},
		{"limits", "limits set smtp tenant b 5/1h --for 1h", "limits reset smtp tenant b"},
		{"pause", "pause smtp tenant c --for 1h", "resume smtp tenant c"},
		{"pause", "pause smtp tenant d --for 1h", "pause smtp tenant d --for 2h"},
		{"mode", "mode smtp tenant shadow --for 1h", "mode smtp tenant off"},
	} {
		key := strings.TrimSuffix(nth(strings.Fields(row.another), 3), "off")
		if row.what == "limits" {
			key = nth(strings.Fields(row.another), 4)
		}
		wants(t, client, row.set, "undo: ")
		set, err := in.SettingsOf(t.Context(), "tenant", key)
		if err != nil {
			t.Fatal(err)
		}
		end := view.Find(set, row.what).Until
		r := asked(t, server.Addr(), strings.Fields(row.another)...)
		_, undo, _ := strings.Cut(strings.TrimSpace(r.out), "undo: ")
		_, rest, _ := strings.Cut(undo, "--until ")
		named, err := time.Parse(time.RFC3339, strings.Split(rest, " ")[0])
		if err != nil || !named.Equal(end) {
			t.Errorf("%s: %q, want an end at %s", row.another, undo, end.Format(time.RFC3339Nano))
		}
		for command := range strings.SplitSeq(undo, " && ") {
			wants(t, client, strings.TrimPrefix(command, "asynq-throttle "), "before: ")
		}
		set, err = in.SettingsOf(t.Context(), "tenant", key)
		if is := view.Find(set, row.what).Until; err != nil || is.Sub(end).Abs() > time.Minute {
			t.Errorf("%s: undone until %s, %v, want %s", row.another, is, err, end)
		}
	}
}

// TestRampOfOneKeyEndsAsSetForAll: limits that are set for all keys until some time, and are set for one key with their
// ramp held, end at the same time.
func TestRampOfOneKeyEndsAsSetForAll(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := world(t, client)
		in, addr := inspect.New(th), client.Options().Addr
		ramp := throttle.Ramp("50 100 200/day from " + time.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly) + " @UTC")
		end := time.Now().Add(4 * time.Hour).Truncate(time.Second)
		if err := in.SetLimits(t.Context(), "tenant", "", []throttle.Limit{ramp}, inspect.Until(end)); err != nil {
			t.Fatal(err)
		}
		for _, verb := range []string{"hold", "continue", "end"} {
			if r := asked(t, addr, "ramp", verb, "smtp", "tenant", "acme"); r.status != 0 {
				t.Fatalf("%s: exit status %d, %s%s", verb, r.status, r.out, r.errs)
			}
			set, err := in.SettingsOf(t.Context(), "tenant", "acme")
			if err != nil || len(set) != 1 || set[0].Until.Sub(end).Abs() > time.Second {
				t.Errorf("%s: %+v, %v; want an end at %s", verb, set, err, end)
			}
		}
	})
}
