package reliability_test

import (
	"sync"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// answers notes when Redis answers the throttles of the worker processes. It is safe for
// use by many goroutines.
type answers struct {
	mu sync.Mutex
	at []time.Time
}

// Called notes an answer.
func (a *answers) Called(call throttle.ScriptCall) {
	if call.Failure != "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = append(a.at, time.Now())
}

// firstAfter returns the time of the first answer after an instant; zero if there is none.
func (a *answers) firstAfter(instant time.Time) (first time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, at := range a.at {
		if at.After(instant) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// Decided ignores the event.
func (*answers) Decided(throttle.Decision) {}

// FellBack ignores the event.
func (*answers) FellBack(throttle.Outage) {}

// Settled ignores the event.
func (*answers) Settled(throttle.Settlement) {}

// Paused ignores the event.
func (*answers) Paused(throttle.Pause) {}

// Adapted ignores the event.
func (*answers) Adapted(throttle.Adaptation) {}

// Started ignores the event.
func (*answers) Started(throttle.Lateness) {}

// PutBack ignores the event.
func (*answers) PutBack(throttle.PutBack) {}

// Ended ignores the event.
func (*answers) Ended(throttle.Ending) {}
