package throttletest_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestCloneIsApart: what happens to a clone does not happen to its model, and it knew all
// that the model knew.
func TestCloneIsApart(t *testing.T) {
	t.Parallel()
	scopes := []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.PerSecond(1)}}}
	now := time.UnixMicro(1_800_000_000_000_000)
	job := func(id string) throttle.Job {
		return throttle.Job{ID: id, Weight: 1, Keys: map[string]string{"tenant": "a"}, Nonce: id}
	}
	m := throttletest.NewModel(scopes, throttle.Options{Lookahead: time.Second})
	play := func(m *throttletest.Model) (told []any) {
		note := func(value any, err error) { told = append(told, value, err) }
		usage, err := m.Usage(now, "tenant", "a")
		note(usage, err)
		granted, err := m.Reserve(now, job("new"))
		note(granted, err)
		for _, id := range []string{"granted", "booked", "waiting"} {
			r, err := m.Reserve(now, job(id))
			note(r, err)
		}
		done, err := m.Cancel(now, job("booked"))
		note(done, err)
		booked, next, err := m.Pull(now, "a|")
		note(booked, err)
		note(next, nil)
		if granted.Outcome == throttle.Granted {
			done, err = m.Settle(now, granted, 0)
			note(done, err)
		}
		note(m.Pause(now, "tenant", "a", now.Add(time.Hour)))
		note(nil, m.SetLimits(now, "tenant", "a", []throttle.Limit{throttle.PerSecond(7)}))
		note(m.Limits(now, "tenant", "a"))
		note(m.Lines(now, ""))
		note(m.Sweep(now.Add(time.Minute)))
		return told
	}
	for _, id := range []string{"granted", "booked", "waiting"} {
		if _, err := m.Reserve(now, job(id)); err != nil {
			t.Fatal(err)
		}
	}
	first, second := play(m.Clone()), play(m.Clone())
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("a second clone answers otherwise than the first (-first +second):\n%s", diff)
	}
	if diff := cmp.Diff(first, play(m)); diff != "" {
		t.Errorf("the model answers otherwise than its clones did (-clones +model):\n%s", diff)
	}
}
