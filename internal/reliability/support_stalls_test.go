package reliability_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
)

// timely reports a finding that a slow machine may have caused, such as a start that came too late:
// it fails the test only in full runs (LONG=1).
func timely(t *testing.T, format string, args ...any) {
	t.Helper()
	if longtest.Full() {
		t.Errorf(format, args...)
	} else {
		t.Logf(format+" (asserted in make long)", args...)
	}
}

// beat is how often stalls checks whether the machine stands still.
const beat = 10 * time.Millisecond

// stalls notes for how long this machine, or the server on it, stood still: bounds in real time
// allow for that.
type stalls struct {
	mu    sync.Mutex
	beats []time.Time
}

// newStalls begins to beat. At each beat it calls ask, unless ask is nil.
func newStalls(t *testing.T, ask func(context.Context) error) *stalls {
	t.Helper()
	p := &stalls{}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(beat)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if ask != nil && ask(t.Context()) != nil {
					continue
				}
				p.mu.Lock()
				p.beats = append(p.beats, time.Now())
				p.mu.Unlock()
			case <-end:
				return
			}
		}
	}()
	t.Cleanup(func() { close(end); <-ended })
	return p
}

// of returns how much of the time from one instant to another had no beat.
func (p *stalls) of(from, to time.Time) (stalled time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := from
	for _, b := range append(p.beats[:len(p.beats):len(p.beats)], to) {
		if b.Before(from) || b.After(to) {
			continue
		}
		if gap := b.Sub(last); gap > 2*beat {
			stalled += gap - beat
		}
		last = b
	}
	return stalled
}
