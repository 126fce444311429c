package reliability_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
)

// timely says what a slow machine may be the cause of, as what takes too long does or what did
// not come about: it fails the test in full (LONG=1) alone.
func timely(t *testing.T, format string, args ...any) {
	t.Helper()
	if longtest.Full() {
		t.Errorf(format, args...)
	} else {
		t.Logf(format+" (asserted in make long)", args...)
	}
}

// beat is how often it is seen whether the machine stands still.
const beat = 10 * time.Millisecond

// stalls notes for how long this machine stood still, or the server on it: bounds in real
// time allow for it.
type stalls struct {
	mu    sync.Mutex
	beats []time.Time
}

// newStalls begins to beat. With each beat the server is asked, if there is one that no fault
// takes away for good.
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

// stalled is how much of the time from one instant to another had no beat.
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
