package throttle_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// marker is a part of every value that belongs to a user.
const marker = "SECRET"

// TestT12_ErrorsAndLogsHoldNoKeys: neither the text of an error of any kind nor a line
// above debug has a tenant's key or a job's ID.
func TestT12_ErrorsAndLogsHoldNoKeys(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		core, logs := observer.New(zapcore.InfoLevel)
		scopes := []throttle.Scope{
			{Name: "tenant", Limits: []throttle.Limit{throttle.PerHour(5)}},
			{Name: "domain", Limits: []throttle.Limit{throttle.PerHour(100)}, Optional: true},
			{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerHour(100)}, Mode: throttle.Shadow},
		}
		th := newThrottle(t, client, scopes, &throttle.Options{Lookahead: time.Second, Logger: zap.New(core)})
		for what, err := range secretErrors(t, client, th) {
			if err == nil {
				t.Errorf("%s: no error", what)
				continue
			}
			for err := range chain(err) {
				if strings.Contains(err.Error(), marker) {
					t.Errorf("%s: the error reads %q", what, err)
				}
			}
		}
		if logs.Len() == 0 {
			t.Error("nothing was logged: this test has gone blind")
		}
		for _, entry := range logs.All() {
			if text := fmt.Sprint(entry.Message, entry.ContextMap()); strings.Contains(text, marker) {
				t.Errorf("logged at %s: %s", entry.Level, text)
			}
		}
	})
}

// secretErrors provokes errors of each kind about a tenant, a domain and jobs that are
// nobody's business.
func secretErrors(t *testing.T, client *redis.Client, th *throttle.Throttle) map[string]error {
	t.Helper()
	ctx := t.Context()
	tenant, domain := "tenant-"+marker, "domain-"+marker
	job := throttle.Job{ID: "id-" + marker, Weight: 5, Keys: map[string]string{"tenant": tenant, "domain": domain}}
	with := func(change func(*throttle.Job)) throttle.Job {
		changed := job
		change(&changed)
		return changed
	}
	errs := make(map[string]error)
	ask := func(what string, job throttle.Job) { _, errs[what] = th.Reserve(ctx, job) }
	granted := reserve(t, th, job)
	reserve(t, th, with(func(j *throttle.Job) { j.ID += "2" }))
	ask("never fits", with(func(j *throttle.Job) { j.Weight = 6 }))
	ask("deadline", with(func(j *throttle.Job) { j.ID, j.Deadline = "late-"+marker, time.Now().Add(time.Minute) }))
	ask("weight", with(func(j *throttle.Job) { j.Weight = -1 }))
	ask("unknown scope", with(func(j *throttle.Job) { j.Keys = map[string]string{"tenant": tenant, "host": domain} }))
	ask("key for global",
		with(func(j *throttle.Job) { j.Keys = map[string]string{"tenant": tenant, throttle.Global: domain} }))
	_, errs["settled for less than nothing"] = th.Settle(ctx, granted, -1)
	_, errs["settled for a scope that is none"] = th.SettleCosts(ctx, granted, map[string]int64{"host": 1})
	if err := inspect.New(th).SetLimits(ctx, "tenant", tenant, []throttle.Limit{throttle.PerHour(4)}); err != nil {
		t.Fatal(err)
	}
	ask("blocked", with(func(j *throttle.Job) { j.ID = "blocked-" + marker }))
	if err := inspect.New(th).ResetLimits(ctx, "tenant", tenant); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, errs["cancelled"] = th.Reserve(ended, job)

	prefix := "thr:{" + th.Name() + "}:4:"
	lane := tenant + "|domain:" + domain + ",global:,tenant:" + tenant
	for _, end := range []string{"key:tenant:" + tenant, "lane:" + lane, "lanes:tenant:" + tenant + ":" + tenant,
		"wait:tenant:" + tenant, "tags:tenant:" + tenant, "jobs", "timers"} {
		aside := "aside:" + prefix + end
		err := client.Rename(ctx, prefix+end, aside).Err()
		was := err == nil
		if err != nil && !strings.Contains(err.Error(), "no such key") {
			t.Fatalf("%s: %v", end, err)
		}
		for kind, put := range map[string]func() error{
			"a list":       func() error { return client.RPush(ctx, prefix+end, marker).Err() },
			"a string":     func() error { return client.Set(ctx, prefix+end, marker, 0).Err() },
			"a sorted set": func() error { return client.ZAdd(ctx, prefix+end, redis.Z{Member: marker}).Err() },
		} {
			if err := client.Del(ctx, prefix+end).Err(); err != nil {
				t.Fatal(err)
			}
			if err := put(); err != nil {
				t.Fatalf("%s at %s: %v", kind, end, err)
			}
			for call, err := range everyJobCall(soonOver(t), th, job) {
				foreign(errs, fmt.Sprintf("%s of %s at %s", call, kind, end), err)
			}
			_, err := inspect.New(th).Explain(ctx, job)
			foreign(errs, fmt.Sprintf("Explain of %s at %s", kind, end), err)
			_, err = inspect.New(th).Usage(ctx, "tenant", tenant)
			foreign(errs, fmt.Sprintf("Usage of %s at %s", kind, end), err)
			_, err = inspect.New(th).Forecast(ctx, []throttle.Job{job})
			foreign(errs, fmt.Sprintf("Forecast of %s at %s", kind, end), err)
			_, err = th.Driver().Pull(ctx)
			foreign(errs, fmt.Sprintf("Pull of %s at %s", kind, end), err)
			_, _, err = inspect.New(th).Jobs(ctx, lane, "")
			foreign(errs, fmt.Sprintf("Jobs of %s at %s", kind, end), err)
			_, err = th.Driver().Leave(ctx, []string{job.ID + "2"})
			foreign(errs, fmt.Sprintf("Leave of %s at %s", kind, end), err)
			_, err = th.Refund(ctx, granted)
			foreign(errs, fmt.Sprintf("Refund of %s at %s", kind, end), err)
		}
		client.Del(ctx, prefix+end)
		if !was {
			continue
		}
		if err := client.Rename(ctx, aside, prefix+end).Err(); err != nil {
			t.Fatal(err)
		}
	}
	client.Del(ctx, prefix+"control")
	if err := client.Set(ctx, prefix+"control", marker, 0).Err(); err != nil {
		t.Fatal(err)
	}
	ask("foreign control", job)
	_, errs["foreign limits"] = inspect.New(th).Usage(ctx, "tenant", tenant)
	_, errs["foreign pause"] = inspect.New(th).Pause(ctx, "domain", domain, time.Now().Add(time.Hour))
	return errs
}

// foreign keeps an error about foreign data, if there is one: not every call reads every key.
func foreign(errs map[string]error, what string, err error) {
	if err != nil {
		errs[what] = err
	}
}

// soonOver is a context for calls that would wait.
func soonOver(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// chain goes through an error and all that it wraps.
func chain(err error) func(yield func(error) bool) {
	return func(yield func(error) bool) { walkErrors(err, yield) }
}

func walkErrors(err error, yield func(error) bool) bool {
	if err == nil {
		return true
	}
	if !yield(err) {
		return false
	}
	if many, is := err.(interface{ Unwrap() []error }); is {
		for _, each := range many.Unwrap() {
			if !walkErrors(each, yield) {
				return false
			}
		}
		return true
	}
	return walkErrors(errors.Unwrap(err), yield)
}

// TestF16_T12_StateErrorNamesItsKey: a field of the error has the whole key, and its text has a hash of it.
func TestF16_T12_StateErrorNamesItsKey(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := newThrottle(t, client, tenantAndGlobal(throttle.PerHour(5), throttle.PerHour(5)), nil)
		key := "thr:{" + th.Name() + "}:4:key:tenant:acme"
		if err := client.Set(t.Context(), key, "foreign", 0).Err(); err != nil {
			t.Fatal(err)
		}
		_, err := th.Reserve(t.Context(), throttle.Job{ID: "x", Weight: 1, Keys: of("acme")})
		var state *throttle.StateError
		if !errors.As(err, &state) || state.Key != key || !errors.Is(err, throttle.ErrState) {
			t.Fatalf("got %#v, want a *StateError with the key %s", err, key)
		}
		sum := sha256.Sum256([]byte(key))
		if text := err.Error(); strings.Contains(text, "acme") ||
			!strings.Contains(text, hex.EncodeToString(sum[:6])) || !strings.Contains(text, "}:4:key:") {
			t.Errorf("it reads %q, want the kind of key and its hash", text)
		}
		whole := (&throttle.StateError{Key: "thr:{n}:4:line"}).Error()
		if !strings.HasSuffix(whole, ": thr:{n}:4:line") {
			t.Errorf("it reads %q, want a key that is nobody's as it is", whole)
		}
	})
}
