package throttle_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestF05_F20_DataLost: after a restart without data, or FLUSHALL, the throttle goes on at once,
// without an error about a missing script, and lets at most one more limit start.
func TestF05_F20_DataLost(t *testing.T) {
	t.Parallel()
	mini := miniredis.RunT(t)
	own := redistest.Start(t)
	for name, lose := range map[string]struct {
		addr string
		data func()
	}{
		"miniredis, flushed": {mini.Addr(), mini.FlushAll},
		"redis, restarted":   {own.Addr, own.Restart},
		"redis, flushed": {own.Addr, func() {
			if err := own.Client(t).FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		scopes := globalScope(throttle.PerHour(5))
		th := newThrottle(t, defaultClient(t, lose.addr), scopes, &throttle.Options{Timeout: patient})
		granted := 0
		for i := range 10 {
			if reserve(t, th, throttle.Job{ID: fmt.Sprint("before", i), Weight: 1}).Outcome == throttle.Granted {
				granted++
			}
		}
		lose.data()
		for i := range 10 {
			// The booked ones come back too, as if they were new.
			for _, id := range []string{"before", "after"} {
				if reserve(t, th, throttle.Job{ID: fmt.Sprint(id, i), Weight: 1}).Outcome == throttle.Granted {
					granted++
				}
			}
		}
		if granted != 5+5 {
			t.Errorf("%s: %d granted, want 5 before and 5 after", name, granted)
		}
	}
}

// TestF06_ScriptsForgotten: no caller notices a SCRIPT FLUSH between two calls.
func TestF06_ScriptsForgotten(t *testing.T) {
	t.Parallel()
	behindProxy(t, func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client) {
		th := newThrottle(t, onceClient(t, proxy.Addr), globalScope(throttle.PerHour(3)), &throttle.Options{Timeout: patient})
		var granted throttle.Reservation
		for i := range 5 {
			want := throttle.Granted
			if i >= 3 {
				want = throttle.Booked
			}
			got := reserve(t, th, throttle.Job{ID: fmt.Sprint(i), Weight: 1})
			if got.Outcome != want {
				t.Errorf("job %d: got %v, want %v", i, got.Outcome, want)
			}
			if want == throttle.Granted {
				granted = got
			}
			if err := direct.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		job := throttle.Job{ID: "4", Weight: 1}
		for call, ask := range map[string]func() error{
			"Peek":   func() error { _, err := th.Peek(t.Context(), job); return err },
			"Settle": func() error { _, err := th.Settle(t.Context(), granted, 1); return err },
			"Cancel": func() error { _, err := th.Cancel(t.Context(), job); return err },
			"Usage":  func() error { _, err := inspect.New(th).Usage(t.Context(), throttle.Global, ""); return err },
			"Count": func() error {
				_, err := inspect.New(th).Count(t.Context(), throttle.Global, "", time.Minute, 0)
				return err
			},
			"Pull":   func() error { _, err := th.Driver().Pull(t.Context()); return err },
			"Resume": func() error { _, err := inspect.New(th).Resume(t.Context(), throttle.Global, ""); return err },
			"Lines":  func() error { _, err := inspect.New(th).Lines(t.Context(), ""); return err },
		} {
			if err := direct.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			if err := ask(); err != nil {
				t.Errorf("%s: %v", call, err)
			}
		}
	})
}

// forgetful makes Redis forget a script as soon as it is loaded, a number of times.
type forgetful struct {
	flush func(ctx context.Context)
	times int
}

// DialHook changes nothing.
func (f *forgetful) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook changes nothing.
func (f *forgetful) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook forgets what was loaded.
func (f *forgetful) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		err := next(ctx, command)
		if command.Name() == "script" && f.times > 0 {
			f.times--
			f.flush(ctx)
		}
		return err
	}
}

// TestF06_ScriptsForgottenAtOnce: SCRIPT FLUSH, or a failover, between the loading of a
// script and the call.
func TestF06_ScriptsForgottenAtOnce(t *testing.T) {
	t.Parallel()
	behindProxy(t, func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client) {
		client := onceClient(t, proxy.Addr)
		client.AddHook(&forgetful{times: 1, flush: func(ctx context.Context) {
			if err := direct.ScriptFlush(ctx).Err(); err != nil {
				t.Error(err)
			}
		}})
		th := newThrottle(t, client, globalScope(throttle.PerHour(3)), &throttle.Options{Timeout: patient})
		if got := reserve(t, th, throttle.Job{ID: "1", Weight: 1}); got.Outcome != throttle.Granted {
			t.Errorf("got %+v, want granted", got)
		}
	})
}
