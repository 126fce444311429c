package throttle_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestJobErrorsNameTheFix: errors about a job's scopes and weight name the scopes that exist and
// say what to do.
func TestJobErrorsNameTheFix(t *testing.T) {
	t.Parallel()
	client := miniClient(t)
	th := newThrottle(t, client, append(tenantAndGlobal(throttle.PerHour(5), throttle.PerHour(5)),
		throttle.Scope{Name: "domain", Optional: true}), nil)
	bare := newThrottle(t, client, globalScope(throttle.PerHour(5)), nil)
	keys := func(list ...string) map[string]string {
		keys := make(map[string]string)
		for i := 0; i < len(list); i += 2 {
			keys[list[i]] = list[i+1]
		}
		return keys
	}
	for name, test := range map[string]struct {
		of   *throttle.Throttle
		job  throttle.Job
		want string
	}{
		"no key": {th, throttle.Job{ID: "j", Weight: 1},
			"tenant has no key for this scope: name one, or make the scope Optional; the scopes with keys are: tenant, domain"},
		"empty key": {th, throttle.Job{ID: "j", Weight: 1, Keys: of("")},
			"has an empty key for this scope: name one, or make the scope Optional"},
		"empty key of optional": {th, throttle.Job{ID: "j", Weight: 1, Keys: keys("tenant", "a", "domain", "")},
			"name one, or leave the scope out"},
		"unknown scope": {th, throttle.Job{ID: "j", Weight: 1, Keys: keys("tennant", "a")},
			"tennant names a scope this throttle does not have; the scopes with keys are: tenant, domain"},
		"key of global": {th, throttle.Job{ID: "j", Weight: 1, Keys: keys("tenant", "a", "global", "x")},
			"global has no keys: leave it out"},
		"no scope with keys": {bare, throttle.Job{ID: "j", Weight: 1, Keys: of("a")},
			"this throttle has no scope with keys"},
		"unknown cost": {th, throttle.Job{ID: "j", Weight: 1, Keys: of("a"),
			Costs: map[string]int64{"host": 1}},
			"host names a scope this throttle does not have; there are: tenant, global, domain"},
		"weight 0": {th, throttle.Job{ID: "j", Keys: of("a")},
			"Weight 0 is not between 1 and 9007199254740992: set it to the units that the job takes of each limit, such as 1"},
	} {
		_, err := test.of.Reserve(t.Context(), test.job)
		var wrong *throttle.InvalidJobError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got  %v\nwant %s", name, err, test.want)
		}
	}
	if _, err := inspect.New(th).Usage(t.Context(), "tennant", "a"); err == nil ||
		!strings.Contains(err.Error(), "there are: tenant, global, domain") {
		t.Errorf("Usage of an unknown scope: got %v", err)
	}
}

// TestFallbackIsNamedInTheLog: the log line about a Redis that cannot decide says what happens to
// jobs meanwhile.
func TestFallbackIsNamedInTheLog(t *testing.T) {
	t.Parallel()
	for is, want := range map[throttle.Fallback]string{
		throttle.FallbackClosed: "throttle: Redis cannot decide, no job starts",
		throttle.FallbackOpen:   "throttle: Redis cannot decide, jobs start unchecked",
		throttle.FallbackLocal:  "throttle: Redis cannot decide, jobs start within this process' share",
	} {
		core, logs := observer.New(zapcore.WarnLevel)
		client := onceClient(t, "127.0.0.1:1")
		th := newThrottle(t, client, globalScope(throttle.PerHour(5)),
			&throttle.Options{Fallback: is, LocalShare: 1, Logger: zap.New(core), Timeout: time.Second})
		_, err := th.Reserve(t.Context(), throttle.Job{ID: "j", Weight: 1})
		if (err != nil) != (is == throttle.FallbackClosed) {
			t.Errorf("%s: %v", is, err)
		}
		if all := logs.All(); len(all) != 1 || all[0].Message != want || all[0].ContextMap()["fallback"] != is.String() {
			t.Errorf("%s: logged %v, want %q", is, all, want)
		}
	}
}

// TestCheckNamesTheAddress: if Redis does not answer, the error of Check has its address, and no
// password.
func TestCheckNamesTheAddress(t *testing.T) {
	t.Parallel()
	silent := redistest.Start(t)
	silent.Pause()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1", "127.0.0.1:2"},
		Password: "SECRET", MaxRetries: -1})
	sentinel := redis.NewFailoverClient(
		&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, Password: "SECRET",
			MaxRetries: -1, DialTimeout: 50 * time.Millisecond, DialerRetries: 1})
	for name, test := range map[string]struct {
		client redis.UniversalClient
		want   string
	}{
		"silent": {redis.NewClient(&redis.Options{Addr: silent.Addr, Password: "SECRET", Username: "SECRET"}),
			"throttle: Redis at " + silent.Addr + " cannot decide (timeout): "},
		"wrong": {redis.NewClient(&redis.Options{Addr: "redis://SECRET:SECRET@127.0.0.1:1", MaxRetries: -1}),
			"throttle: Redis at 127.0.0.1:1 cannot decide ("},
		"cluster":  {cluster, "throttle: Redis at 127.0.0.1:1, 127.0.0.1:2 cannot decide ("},
		"sentinel": {sentinel, "throttle: Redis cannot decide ("},
	} {
		t.Cleanup(func() { _ = test.client.Close() })
		th := newThrottle(t, test.client, globalScope(throttle.PerHour(5)),
			&throttle.Options{Timeout: 300 * time.Millisecond})
		_, err := inspect.New(th).Check(t.Context())
		if !errors.Is(err, throttle.ErrUnavailable) || !strings.HasPrefix(err.Error(), test.want) ||
			strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: got %v, want %s…", name, err, test.want)
		}
	}
}

// TestErrorTexts: each begins with the package's name, holds the offending number
// with its unit, and none of the job's keys or its ID, which may be private.
func TestErrorTexts(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for want, err := range map[string]error{
		"throttle: option Timeout = 2m0s: is not between 1ms and 1m": &throttle.OptionError{
			Field: "Timeout", Value: 2 * time.Minute, Reason: "is not between 1ms and 1m"},
		`throttle: limit "x/1m": units "x" are not an integer of 0 or more`: &throttle.LimitError{
			Text: "x/1m", Reason: `units "x" are not an integer of 0 or more`},
		"throttle: job's Weight 0 is not between 1 and 9007199254740992": &throttle.InvalidJobError{
			Job: "secret", Field: "Weight", Value: int64(0), Reason: "is not between 1 and 9007199254740992"},
		`throttle: job's ID "" is empty`: &throttle.InvalidJobError{Field: "ID", Value: "", Reason: "is empty"},
		`throttle: option name = "": want 1 to 64 of A-Z a-z 0-9 _ . -`: &throttle.OptionError{
			Field: "name", Value: "", Reason: "want 1 to 64 of A-Z a-z 0-9 _ . -"},
		`throttle: scope "" is no scope of this throttle`: &throttle.ArgumentError{
			Argument: "scope", Value: "", Reason: "is no scope of this throttle"},
		"throttle: ctx is nil": &throttle.ArgumentError{Argument: "ctx", Reason: "is nil"},
		"throttle: weight 11 can never start under the tenant limit 10/1m": &throttle.NeverFitsError{
			Job: "secret", Weight: 11, Scope: "tenant", Key: "secret", Limit: throttle.PerMinute(10)},
		"throttle: the earliest start 2026-03-01T12:01:00Z " +
			"is after the deadline 2026-03-01T12:00:00Z": &throttle.DeadlineError{
			Job: "secret", Deadline: at, Start: at.Add(time.Minute), Hold: &throttle.Hold{Key: "secret"}},
		"throttle: the earliest start 2026-03-01T12:00:00.25Z " +
			"is after the deadline 2026-03-01T12:00:00Z": &throttle.DeadlineError{
			Job: "secret", Deadline: at, Start: at.Add(250 * time.Millisecond), Hold: &throttle.Hold{Key: "secret"}},
		"throttle: the line of scope tenant is full: it has 1 job, 5 units, of at most 1 job; " +
			"the wait is about 1m0s": &throttle.LineFullError{
			Job: "secret", Scope: "tenant", Key: "secret", Waiting: throttle.Length{Jobs: 1, Units: 5},
			MaxWaiting: throttle.Length{Jobs: 1}, Wait: time.Minute},
		"throttle: Redis cannot decide (timeout): context deadline exceeded": &throttle.UnavailableError{
			Job: "secret", Nonce: "secret", Failure: "timeout", Err: context.DeadlineExceeded},
	} {
		if err.Error() != want {
			t.Errorf("got  %s\nwant %s", err, want)
		}
	}
	if _, err := throttle.New("n", miniClient(t), globalScope(throttle.Per(1, 0)), nil); err == nil ||
		!strings.HasPrefix(err.Error(), "throttle: scope global: ") {
		t.Errorf("New: got %v, want it to begin throttle: and name the scope", err)
	}
}
