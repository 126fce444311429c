package longtest

import "testing"

// Unwatched skips a test in a build with the race detector, which makes it five to ten times as slow: a
// property, which calls from one goroutine, or one of the longest stories, when a shorter one goes through
// the same code with the detector. A run without the detector has them all.
func Unwatched(t testing.TB) {
	t.Helper()
	if Watched {
		t.Skip("longtest: runs without the race detector: a shorter test goes through the same code with it")
	}
}
