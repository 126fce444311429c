package redistest

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// patience bounds every wait for a server or for what other goroutines and processes do. It
// ends a test that hangs. A slow machine does not reach it: Redis starts in ten milliseconds.
const patience = 2 * time.Minute

// Await polls until the condition holds. The test fails, and says what did not come about,
// only if it hangs: the polls are counted, so a machine that stands still for a while is no
// failure.
func Await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	err := await(what, func() error {
		if condition() {
			return nil
		}
		return errMissing
	})
	if err != nil {
		t.Fatal(err)
	}
}

var errMissing = errors.New("it has not come about")

// await polls until the condition holds, which then returns nil; what it returns
// otherwise is what is missing. It gives up after patience.
func await(what string, condition func() error) error {
	const interval = 5 * time.Millisecond
	poll := time.NewTicker(interval)
	defer poll.Stop()
	var err error
	for range patience / interval {
		if err = condition(); err == nil {
			return nil
		}
		<-poll.C
	}
	return fmt.Errorf("redistest: %s: not within %s: %w", what, patience, err)
}

// together calls f for each of them at the same time.
func together[T any](all []T, f func(T) error) error {
	errs := make(chan error, len(all))
	for _, one := range all {
		go func() { errs <- f(one) }()
	}
	var joined error
	for range all {
		joined = errors.Join(joined, <-errs)
	}
	return joined
}
