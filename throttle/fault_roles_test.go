package throttle_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// rulesOf are the rules that docs/operations.md has for a user.
func rulesOf(t *testing.T, user string) []string {
	t.Helper()
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "\nACL SETUSER "+user+" ")
	if !found {
		t.Fatalf("docs/operations.md has no rules for the user %s", user)
	}
	rules, _, _ := strings.Cut(rest, "\n```")
	rules, _, _ = strings.Cut(rules, "\nACL")
	return strings.Fields(rules)
}

// TestF18_Roles: the users of docs/operations.md may do what their roles do and nothing else: one decides, one
// looks, one looks and changes what is in force.
func TestF18_Roles(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := make(map[string]*redis.Client)
	for _, user := range []string{"throttle", "viewer", "operator"} {
		client[user] = userClient(t, server, user, rulesOf(t, user))
	}
	th := newThrottle(t, client["throttle"], tenantAndGlobal(throttle.PerHour(2), throttle.PerHour(5)), nil)
	for _, id := range []string{"a", "b", "c", "d"} {
		if _, err := th.Reserve(t.Context(), throttle.Job{ID: id, Weight: 1, Keys: of("acme")}); err != nil {
			t.Fatal(err)
		}
	}
	th.AwaitPublished()
	for _, user := range []string{"viewer", "operator"} {
		in, err := inspect.Attach(t.Context(), th.Name(), client[user])
		if err != nil {
			t.Fatalf("%s: %v", user, err)
		}
		for call, look := range looks(in) {
			if err := look(t.Context()); err != nil {
				t.Errorf("%s: %s: %v", user, call, err)
			}
		}
		var lacks *inspect.CheckError
		if _, err := in.Check(t.Context()); !errors.As(err, &lacks) {
			t.Errorf("%s: Check: got %v, want the rules that it lacks for decisions", user, err)
		}
		for call, change := range changes(in) {
			err := change(t.Context())
			if user == "operator" && err != nil || user == "viewer" && !isRefused(err) {
				t.Errorf("%s: %s: %v", user, call, err)
			}
		}
		if _, err := in.Leave(t.Context(), []string{"d"}); !isRefused(err) {
			t.Errorf("%s takes a job out of the line: %v", user, err)
		}
		if err := client[user].Get(t.Context(), "asynq:x").Err(); !redis.HasErrorPrefix(err, "NOPERM") {
			t.Errorf("%s reads a key of asynq: %v", user, err)
		}
	}
}

// isRefused reports whether a script called a command that its user may not call.
func isRefused(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "can't run this command") || // Redis 7.0
		strings.Contains(err.Error(), "has no permissions to run the '")) // newer ones, and Valkey
}

func looks(in *inspect.Inspector) map[string]func(context.Context) error {
	job := throttle.Job{ID: "d", Weight: 1, Keys: of("acme")}
	return map[string]func(context.Context) error{
		"Usage":     func(ctx context.Context) error { _, err := in.Usage(ctx, "tenant", "acme"); return err },
		"UsageAll":  func(ctx context.Context) error { _, err := in.UsageAll(ctx, "tenant"); return err },
		"Lines":     func(ctx context.Context) error { _, err := in.Lines(ctx, ""); return err },
		"Lanes":     func(ctx context.Context) error { _, err := in.Lanes(ctx); return err },
		"Explain":   func(ctx context.Context) error { _, err := in.Explain(ctx, job); return err },
		"Forecast":  func(ctx context.Context) error { _, err := in.Forecast(ctx, []throttle.Job{job}); return err },
		"Settings":  func(ctx context.Context) error { _, err := in.Settings(ctx); return err },
		"Changes":   func(ctx context.Context) error { _, err := in.Changes(ctx); return err },
		"Processes": func(ctx context.Context) error { _, err := in.Processes(ctx); return err },
	}
}

func changes(in *inspect.Inspector) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Pause": func(ctx context.Context) error {
			_, err := in.Pause(ctx, "tenant", "acme", time.Now().Add(time.Minute))
			return err
		},
		"Resume": func(ctx context.Context) error { _, err := in.Resume(ctx, "tenant", "acme"); return err },
		"SetLimits": func(ctx context.Context) error {
			return in.SetLimits(ctx, "tenant", "acme", []throttle.Limit{throttle.PerHour(3)})
		},
		"SetMode":     func(ctx context.Context) error { return in.SetMode(ctx, "tenant", throttle.Shadow) },
		"ResetLimits": func(ctx context.Context) error { return in.ResetLimits(ctx, "tenant", "acme") },
		"ResetMode":   func(ctx context.Context) error { return in.ResetMode(ctx, "tenant") },
	}
}
