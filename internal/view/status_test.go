package view

import (
	"context"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// scans counts how often all keys are looked through.
type scans struct{ n int }

func (c *scans) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c *scans) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "scan" {
			c.n++
		}
		return next(ctx, cmd)
	}
}
func (c *scans) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestWatchDoesNotScanEachTime: all keys are looked through at the first look, then as often
// as takes a thousandth of the time, and when something was changed; what is set is told each
// time, and a pause that has ended is not.
func TestWatchDoesNotScanEachTime(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	th, err := throttle.New("smtp", client,
		[]throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.PerHour(2)}}},
		&throttle.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	pause := func(key string) {
		t.Helper()
		if _, err := inspect.New(th).Pause(t.Context(), "tenant", key, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	pause("acme")
	counted := new(scans)
	client.AddHook(counted)
	var w Watch
	look := func(want, set int) {
		t.Helper()
		s, _, err := w.Read(t.Context(), inspect.New(th), 10)
		if err != nil || counted.n != want || len(s.Set) != set {
			t.Fatalf("%d scans, %d settings, %v; want %d, %d", counted.n, len(s.Set), err, want, set)
		}
	}
	look(1, 1)
	w.sets.took = time.Millisecond
	for range 5 {
		look(1, 1)
	}
	pause("hooli")
	w.sets.read = w.sets.read.Add(-300 * w.sets.took)
	look(2, 2)
	w.sets.read = w.sets.read.Add(-max(10*time.Second, 1000*w.sets.took))
	look(3, 2)
	for i := range w.sets.All {
		w.sets.All[i].Until = time.Now().Add(-time.Second)
	}
	look(3, 0)
}

// TestLoadIsMeasuredFromLookToLook: what Redis did before the last look does not count, and a
// sample of another server, or an old one, is not measured from.
func TestLoadIsMeasuredFromLookToLook(t *testing.T) {
	t.Parallel()
	at := time.Now()
	before := Sample{at, map[string]string{"run_id": "a", "used_cpu_user_main_thread": "1000",
		"total_commands_processed": "1000000",
		"cmdstat_evalsha":          "calls=1000000,usec=900000000,usec_per_call=900.00"}}
	after := Sample{at.Add(2 * time.Second),
		map[string]string{"run_id": "a", "used_cpu_user_main_thread": "1001", "total_commands_processed": "1000400",
			"cmdstat_evalsha": "calls=1000100,usec=900002000,usec_per_call=899.9"}}
	var l Load
	l.between(before, after)
	if l.CPU != 0.5 || l.Commands != 200 || l.Script != 20*time.Microsecond || l.Over != 2*time.Second ||
		l.Verdict != "busy" {
		t.Errorf("%+v", l)
	}
	other, late, soon := after, after, after
	other.fields = map[string]string{"run_id": "b"}
	late.at, soon.at = at.Add(time.Hour), at.Add(time.Millisecond)
	for name, s := range map[string]Sample{"another server": other, "too long ago": late, "just now": soon} {
		if before.reaches(s) {
			t.Errorf("%s: it is measured from the sample", name)
		}
	}
	if !before.reaches(after) || (Sample{}).reaches(after) {
		t.Error("it is measured from none, or not from the last look")
	}
}
