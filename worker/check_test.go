package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// checkedBy returns a shaper that pulls its line through this client, and what it logs.
func checkedBy(t *testing.T, client redis.UniversalClient) (*worker.Shaper, *observer.ObservedLogs) {
	t.Helper()
	opts, logs := watched()
	th, err := throttle.New(redistest.Name(t), client, perTenant(1, time.Second), &throttle.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	s, err := worker.New(th, client, jobOf, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	s.Wrap(asynq.NotFoundHandler())
	return s, logs
}

// TestShaperChecksRedis_F15_F18: a Shaper that begins logs each finding about Redis once, at the
// level of its severity.
func TestShaperChecksRedis_F15_F18(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		args  []string
		level zapcore.Level
		says  string
	}{
		"as it should be": {nil, zapcore.DebugLevel, "appendonly is off"},
		"eviction": {[]string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"},
			zapcore.WarnLevel, "maxmemory-policy is allkeys-lru"},
		"a replica":   {[]string{"--replicaof", "127.0.0.1", "1"}, zapcore.ErrorLevel, "this server is a replica"},
		"permissions": {strings.Fields("--user default on nopass ~* &* +@all -zadd"), zapcore.ErrorLevel, "allow +zadd"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, logs := checkedBy(t, redistest.Start(t, test.args...).Client(t))
			telling := func() int {
				return logs.Filter(func(e observer.LoggedEntry) bool {
					for _, field := range e.Context {
						if strings.Contains(field.String, test.says) {
							return e.Level == test.level
						}
						if err, is := field.Interface.(error); is && strings.Contains(err.Error(), test.says) {
							return e.Level == test.level
						}
					}
					return false
				}).Len()
			}
			redistest.Await(t, "it is logged", func() bool { return telling() > 0 })
			s.Stop()
			if got := telling(); got != 1 {
				t.Errorf("said %d times that %s, want once", got, test.says)
			}
			if got := errorsIn(logs) > 0; got != (test.level == zapcore.ErrorLevel) {
				t.Errorf("errors were logged: %t, want %t; %v", got, !got, logs.All())
			}
		})
	}
}

// TestShaperChecksLater: if Redis is away when a Shaper begins, the Shaper checks Redis when it
// is back; a Stop meanwhile is not held up.
func TestShaperChecksLater(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	server := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	client := server.Client(t)
	server.Pause()
	held, _ := checkedBy(t, client)
	began := time.Now()
	held.Stop()
	if took := time.Since(began); longtest.Full() && took > 10*time.Second {
		t.Errorf("Stop took %s, want no timeout of a minute", took)
	}
	server.Resume()
	server.Stop()
	_, logs := checkedBy(t, client)
	redistest.Await(t, "it has asked", func() bool { return logs.FilterMessageSnippet("cannot be checked").Len() > 0 })
	server.Restart()
	redistest.Await(t, "it is logged", func() bool { return logs.FilterMessageSnippet("not as it should be").Len() > 0 })
}

// unloading is a network that loses the commands that load a script.
type unloading struct{ redis.Hook }

func (unloading) DialHook(next redis.DialHook) redis.DialHook { return next }

func (unloading) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		if command.Name() == "script" {
			err := errors.New("lost")
			command.SetErr(err)
			return err
		}
		return next(ctx, command)
	}
}

func (unloading) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestShaperChecksSeldom: if Redis decides but cannot be checked, the Shaper does not try the check
// again with each pull, since the line stands still during a check.
func TestShaperChecksSeldom(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	server := redistest.Start(t)
	patient := throttle.Options{Timeout: time.Minute}
	th, err := throttle.New(redistest.Name(t), server.Client(t), perTenant(1, time.Second), &patient)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inspect.New(th).Check(t.Context()); err != nil { // it loads the scripts
		t.Fatal(err)
	}
	options := server.Options()
	options.ContextTimeoutEnabled = true // else the throttle makes a client of its own of it, without hooks
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(unloading{})
	_, logs := checkedBy(t, client)
	failed := func() []observer.LoggedEntry { return logs.FilterMessageSnippet("cannot be checked").All() }
	redistest.Await(t, "it has asked twice", func() bool { return len(failed()) >= 2 })
	if apart := failed()[1].Time.Sub(failed()[0].Time); apart < time.Second {
		t.Errorf("asked again after %s, want some pulls between", apart)
	}
	if got := logs.FilterLevelExact(zapcore.WarnLevel).Len() + errorsIn(logs); got > 0 {
		t.Errorf("it was told as a fault: %v", logs.All())
	}
}
