package redistest

import (
	"errors"
	"fmt"
	"time"
)

// await polls until the condition holds, which then returns nil; what it returns
// otherwise is what is missing. It gives up after startWithin.
func await(what string, condition func() error) error {
	deadline := time.Now().Add(startWithin)
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for ; ; <-poll.C {
		err := condition()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("redistest: %s: not within %s: %w", what, startWithin, err)
		}
	}
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
