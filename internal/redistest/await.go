package redistest

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// patience bounds every wait for a server, another goroutine or another process. It ends a
// test that hangs. A slow machine does not reach it: Redis starts in ten milliseconds.
const patience = 2 * time.Minute

// Await polls until the condition holds. The test fails, and names what it waited for, only if
// it hangs: the polls are counted, so a machine that stands still for a while causes no
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

// await polls until the condition returns nil. The condition's error says what is missing.
// await gives up after patience.
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

// together calls f for each element at the same time.
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
