package throttle_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/asynq-throttle/asynq-throttle/internal/seam"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// broken is an Observer whose methods panic.
type broken struct{}

func (broken) Decided(throttle.Decision)   { panic("decided") }
func (broken) FellBack(throttle.Outage)    { panic("fell back") }
func (broken) Called(throttle.ScriptCall)  { panic("called") }
func (broken) Started(throttle.Lateness)   { panic("started") }
func (broken) Settled(throttle.Settlement) { panic("settled") }
func (broken) Paused(throttle.Pause)       { panic("paused") }
func (broken) Adapted(throttle.Adaptation) { panic("adapted") }
func (broken) PutBack(throttle.PutBack)    { panic("put back") }
func (broken) Ended(throttle.Ending)       { panic("ended") }

// TestPanicsOfTheUserGoNoFurther: an Observer and a Share that panic end neither the goroutine
// that calls Redis for all jobs nor any call of the throttle, and the log names each of them.
func TestPanicsOfTheUserGoNoFurther(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	core, logs := observer.New(zapcore.ErrorLevel)
	scopes := tenantAndGlobal(throttle.PerMinute(10), throttle.PerMinute(10))
	scopes[0].Floor = 0.1
	th := newThrottle(t, client, scopes, &throttle.Options{
		Observer: broken{}, Logger: zap.New(core), BreakPeriod: time.Millisecond,
		Share: func(string) int { panic("share") },
	})
	ctx, job := t.Context(), throttle.Job{ID: "a", Weight: 2, Keys: of("acme")}
	granted, err := th.Wait(ctx, job)
	if err != nil {
		t.Fatal("Wait:", err)
	}
	if settled, err := th.Settle(ctx, granted, 1); err != nil || !settled {
		t.Errorf("Settle: %t, %v", settled, err)
	}
	refused := throttle.Report{Refused: true, RetryAfter: time.Minute}
	if _, err := th.Report(ctx, scopes[0].Name, "acme", refused); err != nil {
		t.Error("Report:", err)
	}
	if r, err := th.Reserve(ctx, throttle.Job{ID: "b", Weight: 1, Keys: of("acme")}); err != nil ||
		r.Outcome == throttle.Granted {
		t.Errorf("Reserve: %s, %v", r.Outcome, err)
	}
	th.Inside(seam.Key{}).Options().Observer.PutBack(throttle.PutBack{})
	th.Inside(seam.Key{}).Options().Observer.Ended(throttle.Ending{})
	server.SetError("LOADING")
	if _, err := th.Reserve(ctx, job); err == nil {
		t.Error("Reserve: no error of a Redis that is away")
	}
	panicked := make(map[string]bool)
	for _, line := range logs.All() {
		panicked[line.Message] = true
		if line.ContextMap()["stack"] == "" {
			t.Errorf("no stack: %v", line)
		}
	}
	for _, of := range []string{
		"Observer.Decided", "Observer.FellBack", "Observer.Called", "Observer.Settled", "Observer.Paused",
		"Observer.Adapted", "Observer.Started", "Observer.PutBack", "Options.Share",
	} {
		if text := "throttle: " + of + " panicked, which changes nothing else"; !panicked[text] {
			t.Errorf("the log lacks %q", text)
		}
	}
}
